"""Dynamic sampling of DAPO (arXiv 2503.14476, section 3.2): groups without spread give their place to other problems.

It draws in rounds before TRL's own generation, which then gets the chosen completions and their rewards.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl.trainer.utils import nanstd

from rlvr_vocab.bounds import reaches
from rlvr_vocab.training.metrics.batch import weighted_total
from rlvr_vocab.vocab.truncation import PackedTexts

# Shapes: B completions of all processes, group after group; R reward functions; G completions of a group.


@dataclass(frozen=True)
class Rollout:
    """A completion of a row of the problem set; `tokens`: of prompt and completion, `extra`: logged by rewards."""

    row: dict[str, Any]
    tokens: int
    completion_ids: list[int]
    logps: list[float] | None
    entropies: tuple[list[float], ...] | None
    kept_texts: PackedTexts | None
    extra: dict[str, Any]


@dataclass(frozen=True)
class Group:
    """All completions of one problem that were drawn together."""

    rollouts: Sequence[Rollout]
    rewards_GR: torch.Tensor

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.rollouts)


@dataclass(frozen=True)
class ChosenBatch:
    """This process's part of a full batch; `rewards_BR` of all processes, `sampled_BR` of all that was drawn."""

    rollouts: Sequence[Rollout]
    rewards_BR: torch.Tensor
    sampled_BR: torch.Tensor
    kept_N: torch.Tensor  # which of its groups `keep_groups` kept

    def column(self, name: str) -> Any:
        """A field of each rollout; None where they have none."""
        values = [getattr(each, name) for each in self.rollouts]
        return None if values[0] is None else values

    @property
    def extra(self) -> dict[str, list[Any]]:
        columns = {column for each in self.rollouts for column in each.extra}
        return {column: [each.extra.get(column) for each in self.rollouts] for column in columns}


class DynamicSampling:
    """Fills the generation batches of a `RegionGRPOTrainer` with groups whose rewards differ.

    Args:
        solved_by: the reward that tells right from wrong, by its logged name, and from which score on.
        max_rounds: after so many, groups without spread fill the rest; 1 leaves the choice to `order`.
    """

    def __init__(self, trainer: Any, max_rounds: int, order: ProblemOrder, solved_by: tuple[str, float] | None) -> None:
        self.order = order
        self._trainer, self._max_rounds, self._solved_by = trainer, max_rounds, solved_by

    def fill(self, completions: int) -> ChosenBatch:
        """A batch with so many completions in each process."""
        trainer = self._trainer
        wanted = completions * trainer.accelerator.num_processes // trainer.num_generations
        varied, flat, rounds = list[Group](), list[Group](), 0
        while len(varied) < wanted and rounds < self._max_rounds:
            found = self._draw(self._groups_to_draw(wanted, len(varied), len(flat)))
            kept_N = trainer.kept_groups(torch.stack([each.rewards_GR for each in found]))
            for each, keeps in zip(found, kept_N.tolist(), strict=True):
                (varied if keeps else flat).append(each)
            rounds += 1
        drawn = varied + flat
        chosen, thrown_away = drawn[:wanted], drawn[wanted:]
        # TRL counts the tokens of the chosen completions once more.
        trainer.state.num_input_tokens_seen -= sum(each.tokens for each in chosen)
        rewards_BR, sampled_BR = (torch.cat([each.rewards_GR for each in groups]) for groups in (chosen, drawn))
        if self._max_rounds > 1:
            metrics = trainer.train_metrics
            metrics["dynamic/rounds"].append(float(rounds))
            metrics["dynamic/completions_thrown_away"].append(float(len(thrown_away) * trainer.num_generations))
            metrics["dynamic/tokens_thrown_away"].append(float(sum(each.tokens for each in thrown_away)))
            metrics["reward/sampled"].append(weighted_total(sampled_BR, trainer.reward_weights).nanmean().item())
        of_all = [rollout for each in chosen for rollout in each.rollouts]
        mine = of_all[completions * trainer.accelerator.process_index :][:completions]
        return ChosenBatch(mine, rewards_BR, sampled_BR, torch.arange(wanted) < len(varied))

    def _groups_to_draw(self, wanted: int, varied: int, flat: int) -> int:
        """As many as lack, and more where few had a spread so far, up to a whole batch; each process gets as many."""
        lacking = wanted - varied
        expected = lacking if not flat else math.ceil(lacking * (varied + flat) / max(varied, 1))
        processes = self._trainer.accelerator.num_processes
        together = processes // math.gcd(processes, self._trainer.num_generations)
        return min(wanted, math.ceil(expected / together) * together)

    def _draw(self, groups: int) -> list[Group]:
        """Scored completions of the next problems, of all processes."""
        trainer, size = self._trainer, self._trainer.num_generations
        places = self.order.draw(groups)
        rows = [trainer.train_dataset[place] for place in places for _ in range(size)]
        count = len(rows) // trainer.accelerator.num_processes
        mine = rows[count * trainer.accelerator.process_index :][:count]
        with trainer.metrics_set_aside():  # TRL logs those that are chosen again
            prompts = [row["prompt"] for row in mine]
            prompt_ids, completion_ids, _, completions, logps, *_ = trainer._generate(prompts)
            entropies, kept_texts = trainer.sampled_entropies, trainer.kept_texts
            rewards_BR = trainer._calculate_rewards(mine, prompts, completions, completion_ids)
            # A function that was called row by row, and failed on one, has logged fewer.
            extra = {name: each for name, each in trainer.extra_logs.items() if len(each) == len(mine)}
            trainer.extra_logs.clear()
        local = [
            Rollout(
                row=row,
                tokens=len(prompt_ids[place]) + len(completion_ids[place]),
                completion_ids=list(completion_ids[place]),
                logps=None if logps is None else logps[place],
                entropies=None if entropies is None else tuple(each[place] for each in entropies),
                kept_texts=None if kept_texts is None else kept_texts[place],
                extra={column: values[place] for column, values in extra.items()},
            )
            for place, row in enumerate(mine)
        ]
        of_all, starts = gather_object(local), range(0, len(rows), size)
        found = [Group(of_all[start : start + size], rewards_BR[start : start + size]) for start in starts]
        if self._solved_by is not None:
            name, threshold = self._solved_by
            column = trainer.reward_func_names.index(name)
            for place, each in zip(places, found, strict=True):
                self.order.observe(place, reaches(each.rewards_GR[:, column].min().item(), threshold))
        return found


def has_spread(rewards_GR: torch.Tensor, weights_R: torch.Tensor, aggregation: str) -> bool:
    """Whether the rewards of a group differ, as TRL counts it: their sum, or any where each is normalised first."""
    if aggregation == "normalize_then_sum":
        compared = rewards_GR[:, weights_R.to(rewards_GR.device) != 0]
    else:
        compared = weighted_total(rewards_GR, weights_R).unsqueeze(1)
    return bool((nanstd(compared, dim=0) > 1e-8).any())  # TRL's bound, below which rewards count as equal


class ProblemOrder:
    """Draws problems in a seeded order, each once in a pass; all processes draw alike.

    A problem that was answered right throughout `skip_solved` times in a row is not drawn again.
    """

    def __init__(self, problems: int, seed: int, skip_solved: int | None = None) -> None:
        self._problems, self._seed, self._skip_solved = problems, seed, skip_solved
        self._drawn = self._passed_over = 0
        self._streaks: Counter[int] = Counter()
        self._go_to(0, 0)

    def _go_to(self, passes: int, place: int) -> None:
        self._passes, self._place = passes, place
        self._of_pass = np.random.default_rng((self._seed, 0, passes)).permutation(self._problems)

    def draw(self, count: int) -> list[int]:
        """The places in the set of the next problems."""
        return [self._next() for _ in range(count)]

    def _next(self) -> int:
        self._drawn += 1
        for _ in range(2 * self._problems):  # a whole pass at least
            place = self._step()
            if self._skip_solved is None or self._streaks[place] < self._skip_solved:
                return place
            self._passed_over += 1
        return self._step()  # nothing else is left

    def _step(self) -> int:
        if self._place == self._problems:
            self._go_to(self._passes + 1, 0)
        self._place += 1
        return int(self._of_pass[self._place - 1])

    def observe(self, place: int, solved: bool) -> None:
        """Note whether all completions of a problem were right."""
        self._streaks[place] = self._streaks[place] + 1 if solved else 0

    def summary(self) -> dict[str, Any]:
        """Counts of drawn, skipped and solved problems."""
        if self._skip_solved is None:
            return {"drawn": self._drawn}
        solved = sum(streak >= self._skip_solved for streak in self._streaks.values())
        return {"drawn": self._drawn, "passed_over": self._passed_over, "problems_solved": solved}

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        counts = {"drawn": self._drawn, "passed_over": self._passed_over}
        return {"passes": self._passes, "place": self._place, "streaks": dict(self._streaks), **counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._go_to(state["passes"], state["place"])
        self._drawn, self._passed_over = state["drawn"], state["passed_over"]
        self._streaks = Counter(state["streaks"])
