"""The held-out problems of a run, measured before, during and after GRPO, with the result of each on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset

from rlvr_vocab.config.trl_fields import held_out_batch
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.figures import format_of
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.record.files import MEASURED
from rlvr_vocab.record.manifest import set_aside
from rlvr_vocab.record.results import (
    HeldOutMetric,
    ProblemResult,
    mean_over_problems,
    problem_means,
    read_results,
    write_results,
)
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import Run, results_file
from rlvr_vocab.runs.problems import stages_of
from rlvr_vocab.runs.rewards import grader_of_run, reward_context
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.sharding import is_sharded, on_its_device
from rlvr_vocab.training.stage import AtTrainBegin
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.tokenizer import prefilled_ids


class HeldOutEvaluator:
    """Measures a model on the held-out problems of a run, with answers sampled as in its last stage.

    `evaluation/<when>.jsonl` keeps the results; a measurement that is there already is not repeated.
    """

    def __init__(self, run: Run, problems: Dataset | None) -> None:
        settings = stages_of(run.settings)[-1].run
        grpo = settings.training.grpo
        self._run, self.problems = run, problems
        self._grader = Grader(grader_of_run(settings), reward_context(settings, run.layout))
        self.graded_by = self._grader.spec.record()
        self._sampling = SamplingSettings(
            max_new_tokens=grpo["max_completion_length"],
            temperature=grpo["temperature"],
            batch_size=held_out_batch(grpo),
            seed=settings.seed,
            limit_key="training.max_completion_length",
        )

    @property
    def measure(self) -> HeldOutMetric:
        """Accuracy, or the mean reward of a grader that calls nothing right."""
        return HeldOutMetric.of(self.graded_by)

    @property
    def _size(self) -> int:
        return 0 if self.problems is None else len(self.problems)

    def measure_before(self, trainer: RegionGRPOTrainer) -> None:
        """HeldOutMetric the initial model, now or, where it is still to be sharded, as soon as it is."""
        if is_sharded(trainer.accelerator.state):
            trainer.add_callback(AtTrainBegin(lambda: self._measured("before", trainer)))
        else:
            self._measured("before", trainer)

    def during(self, trainer: RegionGRPOTrainer) -> dict[str, float]:
        """The figures of the model in the middle of its training, which this does not change."""
        results = self._results(_checkpoint(trainer))
        step = trainer.stage_context.run_step(trainer.state.global_step)
        if PartialState().is_main_process:
            write_results(results, self._step_file(step))
        return held_out_figures(results)

    def outcome(self, trainer: RegionGRPOTrainer, step: int | None) -> dict[str, Any]:
        """The figures before and after training and one sampled answer, for `summary.json`.

        Args:
            step: the step that made the weights, whose measurement during training counts; None to measure again.
        """
        before = self._found(results_file(self._run.folder, "before"))
        if before is None and self.problems is not None:
            self._warn("evaluation/before.jsonl is lost: the results before training are not known")
        after = self._measured("after", trainer, step)
        self._warn_where_none_could_be_right([*(before or ()), *after])
        figures = {"before": held_out_figures(before or ()), "after": held_out_figures(after)}
        with trainer.accelerator.autocast():
            sample = self._sample(_checkpoint(trainer))
        return {
            **{f"{name}_{when}": figures[when].get(name) for name in MEASURED for when in figures},
            "held_out_problems": self._size,
            "grader": self.graded_by,
            "sample": sample,
        }

    def _measured(self, when: str, trainer: RegionGRPOTrainer, step: int | None = None) -> Sequence[ProblemResult]:
        path = results_file(self._run.folder, when)
        results = self._found(path)
        if results is None and step is not None:
            results = self._found(self._step_file(step))
        if results is None:
            if self.problems is None:
                return []
            title = f"held-out problems {when} GRPO"
            # Under the autocast of training: flash attention computes in 16 bits alone.
            with progress_bar(self._run.console, title, self._size) as bar, trainer.accelerator.autocast():
                results = self._results(_checkpoint(trainer), lambda done, total: bar.update(done))
        if PartialState().is_main_process and not path.exists():
            write_results(results, path)
        return results

    def _found(self, path: Path) -> list[ProblemResult] | None:
        # One process looks for all: sharded models are sampled by every process together or not at all.
        main = PartialState().is_main_process
        [results] = broadcast_object_list([self._read(path) if main and path.exists() else None])
        return results

    def _read(self, path: Path) -> list[ProblemResult] | None:
        """The results in a file; None, and the file set aside, where they are not those of all problems."""
        try:
            results = read_results(path)
            if self.problems is None or len(results) == self._size:
                return results
            why = f"{path} holds {len(results):,} of {self._size:,} results"
        except UserError as error:
            why = str(error)
        self._warn(f"{why}; set aside as {set_aside(path, 'broken').name}")
        return None

    def _step_file(self, step: int) -> Path:
        return results_file(self._run.folder, f"step_{step:05d}")

    def _warn_where_none_could_be_right(self, results: Sequence[ProblemResult]) -> None:
        spec, scores = self._grader.spec, {each.score for each in results if each.score is not None}
        if spec.threshold is not None and len(scores) > 1 and max(scores) < spec.threshold:
            self._warn(
                f"held-out answers score {max(scores):g} at best with {spec.name}, and one is right from "
                f"{spec.threshold:g} on: set evaluation.threshold where that is not so"
            )

    def _warn(self, message: str) -> None:
        self._run.console.print(f"warning: {message}", style="yellow", markup=False)

    @peak_memory.phase("evaluation")
    def _results(
        self, checkpoint: Checkpoint, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[ProblemResult]:
        assert self.problems is not None
        return evaluate_checkpoint(checkpoint, self.problems, self._grader, self._sampling, on_progress=on_progress)

    @peak_memory.phase("evaluation")
    def _sample(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """One answer to the first held-out problem, as text spans with their copy indices."""
        if self.problems is None:
            return None
        row = self.problems[0]
        [completion] = sample_completions(checkpoint, [row["prompt"]], self._sampling)
        turn_ids = [*prefilled_ids(completion.prompt_ids, checkpoint.layout), *completion.completion_ids]
        return {
            "problem": row["problem"],
            "solution": cell_text(row.get("solution")),
            "stretches": Marker(checkpoint.tokenizer, checkpoint.layout).spans(turn_ids),
        }


def _checkpoint(trainer: RegionGRPOTrainer) -> Checkpoint:
    return Checkpoint(on_its_device(trainer), trainer.processing_class, trainer.policy.layout)


def held_out_figures(results: Sequence[ProblemResult]) -> dict[str, float]:
    """The figures of a measurement by name, without those that have no value; `reward_std` is over the problems."""
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
