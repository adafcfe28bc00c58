"""Held-out accuracy of a run, before, during and after GRPO, with every problem's result on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.accuracy import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.progress import stage
from rlvr_vocab.record.manifest import set_aside
from rlvr_vocab.record.results import ProblemResult, read_results, write_results
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.rewards import answer_reader, grader_of
from rlvr_vocab.training.sharding import on_its_device
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.marking import Marker

_LARGEST_BATCH = 256


class HeldOutEvaluator:
    """Measures a model on the held-out problems of a run, with answers sampled as in training."""

    def __init__(self, settings: RunSettings, rows: Dataset | None, console: Console) -> None:
        grpo = settings.training.grpo
        self.size = 0 if rows is None else len(rows)
        self.problems = rows
        self._console = console
        self._run_folder = settings.output_dir
        grader = grader_of(settings.rewards, settings.model.think_tags)
        self._grader, self._read_answer = grader.function, answer_reader(grader)
        self._sampling = SamplingSettings(
            max_new_tokens=grpo["max_completion_length"],
            temperature=grpo["temperature"],
            batch_size=min(_LARGEST_BATCH, 8 * grpo["per_device_train_batch_size"]),
            seed=settings.seed,
            limit_key="training.max_completion_length",
        )

    def accuracy(self, when: str, checkpoint: Checkpoint | None, step: int | None = None) -> float | None:
        """Share of the held-out problems that one sample each gets right; None without held-out problems.

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
            if self.problems is None or checkpoint is None:
                return None
            with stage(self._console, f"held-out accuracy {when} GRPO", self.size) as display:
                measured = self._results(checkpoint, lambda done, total: display.update(done))
        if PartialState().is_main_process and not path.exists():
            write_results(measured, path)
        return accuracy_of(measured)

    def _found(self, path: Path) -> list[ProblemResult] | None:
        # One process looks for all: sharded models are sampled by every process together or not at all.
        main = PartialState().is_main_process
        [results] = broadcast_object_list([self._read(path) if main and path.exists() else None])
        return results

    def _read(self, path: Path) -> list[ProblemResult] | None:
        """The results in a file; None, and the file set aside, where they are not those of all problems."""
        try:
            results = read_results(path)
            if self.problems is None or len(results) == self.size:
                return results
            why = f"{path} holds {len(results):,} of {self.size:,} results"
        except UserError as error:
            why = str(error)
        aside = set_aside(path, "broken")
        self._console.print(f"warning: {why}; set aside as {aside.name}", style="yellow", markup=False)
        return None

    def _during_file(self, step: int) -> Path:
        return results_file(self._run_folder, f"step_{step:05d}")

    def during(self, trainer: RegionGRPOTrainer) -> dict[str, float | None]:
        """The figures of the model in the middle of its training, which this does not change.

        `evaluation/step_00100.jsonl` keeps the results; one of an earlier start that came further is replaced.
        """
        model = on_its_device(trainer)
        results = self._results(Checkpoint(model, trainer.processing_class, trainer.policy.layout))
        step = trainer.stage_context.run_step(trainer.state.global_step)
        if PartialState().is_main_process:
            write_results(results, self._during_file(step))
        return held_out_figures(results, accuracy_of(results))

    def _results(
        self, checkpoint: Checkpoint, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> list[ProblemResult]:
        assert self.problems is not None
        return evaluate_checkpoint(
            checkpoint,
            self.problems,
            self._grader,
            self._sampling,
            on_progress=on_progress,
            read_answer=self._read_answer,
        )

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
            "problem": prompt[-1]["content"],
            "solution": self.problems[0]["solution"],
            "stretches": spans,
        }


def held_out_figures(results: Sequence[ProblemResult], accuracy: float | None) -> dict[str, float | None]:
    """The figures of a measurement by name; no `reasoning_share` where nothing was thought.

    Args:
        results: with their answers read.
        accuracy: what share of them is right; None where nothing could be graded.
    """
    answers = len(results)
    thinking = sum(result.thinking_tokens for result in results)
    figures: dict[str, float | None] = {
        "accuracy": accuracy,
        "format": sum(_well_formed(result) for result in results) / answers,
        "mean_length": sum(result.tokens for result in results) / answers,
        "clipped_ratio": sum(not result.finished for result in results) / answers,
        "problems": len({result.problem for result in results}),
    }
    if thinking:
        figures["reasoning_share"] = sum(result.reasoning_tokens for result in results) / thinking
    return figures


def _well_formed(result: ProblemResult) -> bool:
    """Whether it closed its thinking, ended by itself, and holds an answer that the verifier could find."""
    return result.closed and result.finished and result.answer is not None
