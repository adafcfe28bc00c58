"""Batches in which every group teaches: groups without spread are set aside, and more problems are drawn for them.

Dynamic sampling of DAPO (arXiv 2503.14476, section 3.2), in rounds before TRL's own generation, which is then handed
the completions that were chosen, and what they scored, as if it had just drawn them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from trl.trainer.utils import nanstd

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.metrics.completions import SampledEntropies
from rlvr_vocab.training.problem_order import ProblemOrder
from rlvr_vocab.training.settings import CurriculumSettings

# What TRL takes for none.
_NO_SPREAD = 1e-8
# Shapes: B completions of all processes, group after group; R reward functions; G completions of a group.


@dataclass(frozen=True)
class Rollout:
    """A completion, and what was made of it.

    Attributes:
        row: of the problem set.
        tokens: of prompt and completion together.
        extra: what reward functions logged of it, by column.
    """

    row: dict[str, Any]
    tokens: int
    completion_ids: list[int]
    logps: list[float] | None
    entropies: tuple[list[float], ...] | None
    extra: dict[str, Any]


@dataclass(frozen=True)
class ChosenBatch:
    """A full batch of completions, of which a trainer takes this process's part for its own.

    Attributes:
        rollouts: this process's part.
        rewards_BR: of all processes' completions.
        sampled_BR: of all that were sampled for it.
    """

    rollouts: Sequence[Rollout]
    rewards_BR: torch.Tensor
    sampled_BR: torch.Tensor

    @property
    def completion_ids(self) -> list[list[int]]:
        return [each.completion_ids for each in self.rollouts]

    @property
    def logps(self) -> list[list[float]] | None:
        found = [each.logps for each in self.rollouts if each.logps is not None]
        return found if len(found) == len(self.rollouts) else None

    @property
    def entropies(self) -> SampledEntropies | None:
        found = [each.entropies for each in self.rollouts if each.entropies is not None]
        if len(found) < len(self.rollouts):
            return None
        return SampledEntropies(*map(list, zip(*found, strict=True)))

    @property
    def extra(self) -> dict[str, list[Any]]:
        columns = {column for each in self.rollouts for column in each.extra}
        return {column: [each.extra.get(column) for each in self.rollouts] for column in columns}


class DynamicSampling:
    """Fills the generation batches of a `RegionGRPOTrainer` with groups whose rewards differ.

    Args:
        solved_by: the reward that tells right from wrong, by the name it is logged under, and from which score on.
        max_rounds: after so many, groups without spread fill what is left; after one, a batch is what a curriculum has
            chosen.

    Attributes:
        order: where problems come from, which is told how they were answered.
    """

    def __init__(self, trainer: Any, max_rounds: int, order: ProblemOrder, solved_by: tuple[str, float] | None) -> None:
        self.order = order
        self._trainer, self._max_rounds, self._solved_by = trainer, max_rounds, solved_by

    @classmethod
    def of(
        cls,
        trainer: Any,
        max_rounds: int,
        curriculum: CurriculumSettings,
        solved_by: tuple[str, float] | None,
    ) -> DynamicSampling | None:
        """None where the loader's batches are trained on.

        Raises:
            UserError: nothing tells what is solved.
        """
        skip_solved = curriculum.skip_solved
        if max_rounds == 1 and skip_solved is None:
            return None
        if trainer.rollout_func is not None or trainer.tools or trainer.environment_factories is not None:
            raise UserError("dynamic sampling and curricula draw plain completions: not with rollout_func or tools")
        if solved_by is None and skip_solved is not None:
            raise UserError("a curriculum that goes by what is solved needs solved_by, the reward that tells")
        order = ProblemOrder(len(trainer.train_dataset), trainer.args.seed, skip_solved)
        return cls(trainer, max_rounds, order, solved_by)

    def fill(self, completions: int) -> ChosenBatch:
        """A batch with so many completions in each process."""
        trainer, group = self._trainer, self._trainer.num_generations
        wanted = completions * trainer.accelerator.num_processes // group
        teaching: list[_Group] = []
        flat: list[_Group] = []
        by, rounds = (trainer.reward_weights, trainer.multi_objective_aggregation), 0
        while len(teaching) < wanted and rounds < self._max_rounds:
            for each in self._round(self._groups_to_draw(wanted, len(teaching), len(flat))):
                (teaching if each.has_spread(*by) else flat).append(each)
            rounds += 1
        chosen = (teaching + flat)[:wanted]
        self._log(rounds, chosen, teaching + flat)
        first = completions * trainer.accelerator.process_index
        of_all = [rollout for each in chosen for rollout in each.rollouts]
        return ChosenBatch(
            of_all[first : first + completions],
            torch.cat([each.rewards_GR for each in chosen]),
            torch.cat([each.rewards_GR for each in teaching + flat]),
        )

    def _groups_to_draw(self, wanted: int, teaching: int, flat: int) -> int:
        """As many as lack, and more where few have taught so far, up to a whole batch; each process gets as many."""
        lacking = wanted - teaching
        expected = lacking if not flat else math.ceil(lacking * (teaching + flat) / max(teaching, 1))
        processes = self._trainer.accelerator.num_processes
        together = processes // math.gcd(processes, self._trainer.num_generations)
        return min(wanted, math.ceil(expected / together) * together)

    def _round(self, groups: int) -> list[_Group]:
        """Groups of the next problems, of all processes."""
        trainer, size = self._trainer, self._trainer.num_generations
        places = self.order.draw(groups)
        rows = [trainer.train_dataset[place] for place in places for _ in range(size)]
        count = len(rows) // trainer.accelerator.num_processes
        first = count * trainer.accelerator.process_index
        mine = rows[first : first + count]
        with self._unlogged():
            prompts = [row["prompt"] for row in mine]
            prompt_ids, completion_ids, _, completions, logps, *_ = trainer._generate(prompts)
            entropies = trainer.sampled_entropies
            rewards_BR = trainer._calculate_rewards(mine, prompts, completions, completion_ids)
            # A function that was called row by row, and failed on one, has logged fewer.
            extra = {name: each for name, each in trainer._pending_extra_logs.items() if len(each) == len(mine)}
            trainer._pending_extra_logs.clear()
        local = [
            Rollout(
                row=row,
                tokens=len(prompt_ids[place]) + len(completion_ids[place]),
                completion_ids=list(completion_ids[place]),
                logps=None if logps is None else logps[place],
                entropies=None if entropies is None else tuple(each[place] for each in entropies if each is not None),
                extra={column: values[place] for column, values in extra.items()},
            )
            for place, row in enumerate(mine)
        ]
        of_all = gather_object(local)
        starts = range(0, len(of_all), size)
        found = [_Group(of_all[start : start + size], rewards_BR[start : start + size]) for start in starts]
        if self._solved_by is not None:
            name, threshold = self._solved_by
            for place, each in zip(places, found, strict=True):
                self.order.observe(place, each.pass_rate(trainer.reward_func_names.index(name), threshold))
        return found

    @contextmanager
    def _unlogged(self) -> Iterator[None]:
        """Inside the block what is logged of completions is of no step: of those that are chosen TRL logs it again."""
        metrics = self._trainer._metrics
        kept, metrics["train"] = metrics["train"], defaultdict(list)
        try:
            yield
        finally:
            metrics["train"] = kept

    def _log(self, rounds: int, chosen: Sequence[_Group], drawn: Sequence[_Group]) -> None:
        trainer = self._trainer
        # TRL counts the tokens of the chosen completions once more.
        trainer.state.num_input_tokens_seen -= sum(each.tokens for each in chosen)
        if self._max_rounds == 1:
            return
        rewards = torch.cat([each.total(trainer.reward_weights) for each in drawn])
        logged: Mapping[str, float] = {
            "dynamic/rounds": rounds,
            "dynamic/completions_thrown_away": (len(drawn) - len(chosen)) * trainer.num_generations,
            "dynamic/tokens_thrown_away": sum(each.tokens for each in drawn) - sum(each.tokens for each in chosen),
            "reward/sampled": rewards.nanmean().item(),
        }
        for name, value in logged.items():
            trainer._metrics["train"][name].append(float(value))


@dataclass(frozen=True)
class _Group:
    """All completions of one problem that were drawn together."""

    rollouts: Sequence[Rollout]
    rewards_GR: torch.Tensor

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.rollouts)

    def total(self, weights_R: torch.Tensor) -> torch.Tensor:
        """`(G,)` weighted rewards, NaN where no function gave one."""
        total_G = (self.rewards_GR * weights_R.to(self.rewards_GR.device)).nansum(dim=1)
        return total_G.masked_fill(self.rewards_GR.isnan().all(dim=1), torch.nan)

    def has_spread(self, weights_R: torch.Tensor, aggregation: str) -> bool:
        """Whether the rewards differ, as TRL counts it: their sum, or any of them where each is normalised first."""
        if aggregation == "normalize_then_sum":
            compared = self.rewards_GR[:, weights_R.to(self.rewards_GR.device) != 0]
        else:
            compared = self.total(weights_R).unsqueeze(1)
        return bool((nanstd(compared, dim=0) > _NO_SPREAD).any())

    def pass_rate(self, reward: int, threshold: float) -> float:
        """The share of completions that a reward is no less than a threshold for."""
        return float((self.rewards_GR[:, reward] >= threshold).float().mean())
