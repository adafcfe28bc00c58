"""What a run is worth on its held-out problems before, during and after GRPO, with every problem's result on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.trl_fields import held_out_batch
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.accuracy import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.figures import format_of
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.record.manifest import set_aside
from rlvr_vocab.record.results import (
    ProblemResult,
    mean_over_problems,
    problem_means,
    read_results,
    write_results,
)
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.rewards import grader_of_run, reward_context
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.sharding import on_its_device
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker


class HeldOutEvaluator:
    """Measures a model on the held-out problems of a run, with answers sampled as in training."""

    def __init__(self, settings: RunSettings, layout: VocabLayout, rows: Dataset | None, console: Console) -> None:
        grpo = settings.training.grpo
        self.size = 0 if rows is None else len(rows)
        self.problems = rows
        self._console = console
        self._run_folder = settings.output_dir
        self.grader = Grader(grader_of_run(settings), reward_context(settings, layout))
        self.graded_by = self.grader.spec.record()
        self._sampling = SamplingSettings(
            max_new_tokens=grpo["max_completion_length"],
            temperature=grpo["temperature"],
            batch_size=held_out_batch(grpo),
            seed=settings.seed,
            limit_key="training.max_completion_length",
        )

    def measure(self, when: str, checkpoint: Checkpoint | None, step: int | None = None) -> Sequence[ProblemResult]:
        """One answer to each of the held-out problems, graded; none without held-out problems.

        `evaluation/<when>.jsonl` keeps the results; one that is there already is not measured again.

        Args:
            checkpoint: the model to measure; None where it is past that moment, and only the file can tell.
            step: the step that has made it; one that was measured during training is not measured again.
        """
        path = results_file(self._run_folder, when)
        measured = self._found(path)
        if measured is None and step is not None:
            measured = self._found(self._during_file(step))
        if measured is None:
            if self.problems is not None and checkpoint is None:
                self._console.print(f"warning: {path} is lost: what was measured then is not known", markup=False)
            if self.problems is None or checkpoint is None:
                return []
            with progress_bar(self._console, f"held-out problems {when} GRPO", self.size) as display:
                measured = self._results(checkpoint, lambda done, total: display.update(done))
        if PartialState().is_main_process and not path.exists():
            write_results(measured, path)
        return measured

    def _found(self, path: Path) -> list[ProblemResult] | None:
        # One process looks for all: sharded models are sampled by every process together or not at all.
        main = PartialState().is_main_process
        [results] = broadcast_object_list([self._read(path) if main and path.exists() else None])
        return results

    def _read(self, path: Path) -> list[ProblemResult] | None:
        """The results in a file; None, and the file set aside, where they are not those of all problems."""
        try:
            results = read_results(path)
            of_this_grader = all(each.threshold == self.grader.spec.threshold for each in results)
            if self.problems is None or (len(results) == self.size and of_this_grader):
                return results
            why = f"{path} holds {len(results):,} of {self.size:,} results"
            if not of_this_grader:
                why = f"{path} was graded otherwise, by an older version"
        except UserError as error:
            why = str(error)
        aside = set_aside(path, "broken")
        self._console.print(f"warning: {why}; set aside as {aside.name}", style="yellow", markup=False)
        return None

    def _during_file(self, step: int) -> Path:
        return results_file(self._run_folder, f"step_{step:05d}")

    def during(self, trainer: RegionGRPOTrainer) -> dict[str, float]:
        """The figures of the model in the middle of its training, which this does not change.

        `evaluation/step_00100.jsonl` keeps the results; one of an earlier start that came further is replaced.
        """
        model = on_its_device(trainer)
        results = self._results(Checkpoint(model, trainer.processing_class, trainer.policy.layout))
        step = trainer.stage_context.run_step(trainer.state.global_step)
        if PartialState().is_main_process:
            write_results(results, self._during_file(step))
        return held_out_figures(results)

    def warn_where_none_could_be_right(self, results: Sequence[ProblemResult]) -> None:
        """Say so where some answers score and none reaches the score from which one is right."""
        scores, threshold = {each.score for each in results if each.score is not None}, self.grader.spec.threshold
        if threshold is not None and len(scores) > 1 and max(scores) < threshold:
            self._console.print(
                f"warning: held-out answers score {max(scores):g} at best with {self.grader.spec.name}, and one is "
                f"right from {threshold:g} on: set evaluation.threshold where that is not so",
                style="yellow",
                markup=False,
            )

    @peak_memory.phase("evaluation")
    def _results(
        self, checkpoint: Checkpoint, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[ProblemResult]:
        assert self.problems is not None
        return evaluate_checkpoint(
            checkpoint,
            self.problems,
            self.grader,
            self._sampling,
            on_progress=on_progress,
        )

    @peak_memory.phase("evaluation")
    def sample(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """One answer to the first held-out problem, as text spans with their copy indices."""
        if self.problems is None:
            return None
        prompt = self.problems[0]["prompt"]
        [completion] = sample_completions(checkpoint, [prompt], self._sampling)
        layout = checkpoint.layout
        turn_ids = [*prefilled_ids(completion.prompt_ids, layout), *completion.completion_ids]
        spans = Marker(checkpoint.tokenizer, layout).spans(turn_ids)
        return {
            "problem": self.problems[0]["problem"],
            "solution": cell_text(self.problems[0].get("solution")),
            "stretches": spans,
        }


def held_out_figures(results: Sequence[ProblemResult]) -> dict[str, float]:
    """The figures of a measurement by name; one that nothing can be said of is not there.

    `reward_std` is that over the problems.
    """
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
