"""Held-out accuracy of a run, before and after GRPO, with every problem's result on disk."""

from __future__ import annotations

from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.evaluation.accuracy import accuracy_of, evaluate_checkpoint, read_results, write_results
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, sample_completions
from rlvr_vocab.exp.reward_wiring import grader_of
from rlvr_vocab.exp.run_folder import results_file
from rlvr_vocab.exp.typed_sections import RunSettings
from rlvr_vocab.training.progress import stage
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.marking import marked_stretches

_LARGEST_BATCH = 256


class HeldOut:
    """The held-out problems of a run, answered as they would be in training."""

    def __init__(self, settings: RunSettings, rows: Dataset | None, console: Console) -> None:
        grpo = settings.training.grpo
        self.size = 0 if rows is None else len(rows)
        self._rows = rows
        self._console = console
        self._run_folder = settings.output_dir
        self._grader = grader_of(settings.rewards, settings.model.think_tags).function
        self._sampling = SamplingSettings(
            max_new_tokens=grpo["max_completion_length"],
            temperature=grpo["temperature"],
            batch_size=min(_LARGEST_BATCH, 8 * grpo["per_device_train_batch_size"]),
            seed=settings.seed,
        )

    def accuracy(self, when: str, checkpoint: Checkpoint | None) -> float | None:
        """Share of the held-out problems that one sample each gets right; None without held-out problems.

        `evaluation/<when>.jsonl` keeps the results; one that is there already is not measured again.

        Args:
            checkpoint: the model to measure; None where it is past that moment, and only the file can tell.
        """
        path = results_file(self._run_folder, when)
        # One process looks for all: sharded models are sampled by every process together or not at all.
        [there] = broadcast_object_list([path.exists()])
        if there:
            return accuracy_of(read_results(path))
        if self._rows is None or checkpoint is None:
            return None
        with stage(self._console, f"held-out accuracy {when} GRPO", self.size) as display:
            results = evaluate_checkpoint(
                checkpoint,
                self._rows,
                self._grader,
                self._sampling,
                on_progress=lambda done, total: display.update(done),
            )
        if PartialState().is_main_process:
            write_results(results, path)
        return accuracy_of(results)

    def sample(self, checkpoint: Checkpoint) -> dict[str, Any] | None:
        """One answer to the first held-out problem, in stretches of text with the multiplicity of their tokens."""
        if self._rows is None:
            return None
        prompt = self._rows[0]["prompt"]
        [completion] = sample_completions(checkpoint, [prompt], self._sampling)
        layout = checkpoint.layout
        turn_ids = [*prefilled_ids(completion.prompt_ids, layout), *completion.completion_ids]
        stretches = marked_stretches(checkpoint.tokenizer, layout, turn_ids)
        return {
            "problem": prompt[-1]["content"],
            "solution": self._rows[0]["solution"],
            "stretches": stretches,
        }
