"""Evaluation on the held-out problems of a run before, during and after GRPO, with each result on disk."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeAlias

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import stages_of
from rlvr_vocab.config.trl_fields import held_out_batch
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.figures import format_of
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.record.files import MEASURED
from rlvr_vocab.record.results import (
    HeldOutMetric,
    ProblemResult,
    mean_over_problems,
    problem_means,
    read_lines,
    write_results,
)
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import Run, results_file
from rlvr_vocab.runs.rewards import grader_of_run, reward_context
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.tools.transcripts import ToolLoop
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.sharding import is_sharded, on_its_device
from rlvr_vocab.training.stage import AtTrainBegin
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.tokenizer import prefilled_ids

# Rows with `prompt`, `problem` (its text) and the columns that the grader reads.
Problems: TypeAlias = "Dataset | Sequence[Mapping[str, Any]]"


class HeldOutEvaluator:
    """Evaluates a model on the held-out problems of a run, once for each `evaluation/<when>.jsonl`."""

    def __init__(
        self, folder: Path, console: Console, problems: Problems | None, grader: Grader, sampling: SamplingSettings
    ) -> None:
        self._folder, self._console, self.problems = folder, console, problems
        self._grader, self._sampling = grader, sampling
        self.graded_by = self._grader.spec.record()
        self.metric = HeldOutMetric.of(self.graded_by)

    @classmethod
    def of_run(cls, run: Run, problems: Dataset | None) -> HeldOutEvaluator:
        """Grades and samples as in the last stage of a run."""
        settings = stages_of(run.settings)[-1].run
        grpo = settings.training.grpo
        sampling = SamplingSettings.of_training(grpo, batch_size=held_out_batch(grpo), seed=settings.seed)
        grader = Grader(grader_of_run(settings), reward_context(settings))
        return cls(run.folder, run.console, problems, grader, sampling)

    def measure_before(self, trainer: RegionGRPOTrainer) -> None:
        """Evaluate the initial model: now, or once it is sharded."""
        if is_sharded(trainer.accelerator.state):
            trainer.add_callback(AtTrainBegin(lambda: self._measured("before", trainer)))
        else:
            self._measured("before", trainer)

    def during(self, trainer: RegionGRPOTrainer) -> dict[str, float]:
        """The figures of the model during training; training is not affected."""
        results = self._results(trainer)
        if PartialState().is_main_process:
            write_results(results, self._step_file(trainer.stage_context.run_step(trainer.state.global_step)))
        return held_out_figures(results)

    def outcome(self, trainer: RegionGRPOTrainer, step: int | None) -> dict[str, Any]:
        """The figures before and after training (those of `step`, if evaluated) and a sample, for `summary.json`."""
        before = self._recorded([results_file(self._folder, "before")]) or ()
        results = {"before": before, "after": self._measured("after", trainer, step)}
        figures = {when: held_out_figures(each) for when, each in results.items()}
        with trainer.accelerator.autocast():
            sample = self._sample(trainer)
        return {
            **{f"{name}_{when}": figures[when].get(name) for name in MEASURED for when in figures},
            "held_out_problems": len(self.problems or ()),
            "grader": self.graded_by,
            "sample": sample,
        }

    def _measured(self, when: str, trainer: RegionGRPOTrainer, step: int | None = None) -> Sequence[ProblemResult]:
        """The results before or after training, as recorded, or of an evaluation now."""
        path = results_file(self._folder, when)
        results = self._recorded([path, *([] if step is None else [self._step_file(step)])])
        if results is None:
            if self.problems is None:
                return []
            title = f"held-out problems {when} GRPO"
            # Under the autocast of training: flash attention supports only 16-bit types.
            with progress_bar(self._console, title, len(self.problems)) as bar, trainer.accelerator.autocast():
                results = self._results(trainer, bar.update)
        if PartialState().is_main_process and not path.exists():
            write_results(results, path)
        return results

    def _recorded(self, paths: Sequence[Path]) -> list[ProblemResult] | None:
        """The results in the first of the files that exists, read by the main process for all; None without one."""
        existing = [path for path in paths if PartialState().is_main_process and path.exists()]
        found, wanted = read_lines(existing[0], ProblemResult) if existing else None, len(self.problems or ())
        if found is not None and len(found) != wanted:
            raise UserError(f"{existing[0]} holds {len(found):,} of {wanted:,} results; delete it to evaluate again")
        [results] = broadcast_object_list([found])
        return results

    def _step_file(self, step: int) -> Path:
        return results_file(self._folder, f"step_{step:05d}")

    @peak_memory.phase("evaluation")
    def _results(
        self, trainer: RegionGRPOTrainer, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[ProblemResult]:
        assert self.problems is not None
        rewards = [reward for _, reward in trainer.checkpoints.stateful_rewards()]
        states = [copy.deepcopy(reward.state_dict()) for reward in rewards]
        checkpoint = _checkpoint(trainer)
        results = evaluate_checkpoint(checkpoint, self.problems, self._grader, self._sampling, on_progress=on_progress)
        for reward, state in zip(rewards, states, strict=True):  # to measure is not to train
            reward.load_state_dict(state)
        return results

    @peak_memory.phase("evaluation")
    def _sample(self, trainer: RegionGRPOTrainer) -> dict[str, Any] | None:
        """One answer to the first held-out problem, as text spans with their copy indices."""
        if self.problems is None:
            return None
        row, checkpoint = self.problems[0], _checkpoint(trainer)
        [completion] = sample_completions(checkpoint, [row], self._sampling)
        marker, layout = Marker(checkpoint.tokenizer, checkpoint.layout), checkpoint.layout
        turns = ([*prefilled_ids(context_ids, layout), *ids] for context_ids, ids in completion.turns_ids)
        return {
            "problem": row["problem"],
            "solution": cell_text(row.get("solution")),
            "stretches": [span for turn in turns for span in marker.spans(turn)],
        }


def _checkpoint(trainer: RegionGRPOTrainer) -> Checkpoint:
    layout, tool_format, tools = trainer.policy.layout, trainer.tool_format, None
    if tool_format is not None:
        environments, rounds = trainer.environment_factories, trainer.max_tool_calling_iterations
        tools = ToolLoop(tool_format, trainer.standalone_tools, environments, rounds)
    template, model = trainer.chat_template_kwargs, on_its_device(trainer)
    return Checkpoint(trainer.processing_class, layout, template, tools, model=model)


def held_out_figures(results: Sequence[ProblemResult]) -> dict[str, float]:
    """The figures of an evaluation by name, without undefined ones; `reward_std` is over the problems."""
    if not results:
        return {}
    scores = [*problem_means(results, lambda result: result.score).values()]
    thinking, reasoning = (sum(map(attrgetter(name), results)) for name in ("thinking_tokens", "reasoning_tokens"))
    figures = {
        "accuracy": accuracy_of(results),
        "reward": mean(scores) if scores else None,
        "reward_std": stdev(scores) if len(scores) > 1 else None,
        "format": mean_over_problems(results, format_of(results)),
        "mean_length": sum(result.tokens for result in results) / len(results),
        "clipped_ratio": sum(not result.finished for result in results) / len(results),
        "problems": len({result.problem for result in results}),
        "reasoning_share": reasoning / thinking if thinking and reasoning else None,
    }
    return {name: value for name, value in figures.items() if value is not None}
