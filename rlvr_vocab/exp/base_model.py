"""The model that a run starts from: named, or made on the spot, and warmed up where the recipe says so."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.atomic_folder import folder_appearing_whole
from rlvr_vocab.counted import counted
from rlvr_vocab.evaluation.accuracy import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings
from rlvr_vocab.exp.model_wiring import cache_folder
from rlvr_vocab.exp.problem_account import fingerprint_of
from rlvr_vocab.exp.reward_wiring import grader_of
from rlvr_vocab.exp.typed_sections import ModelSettings, RunSettings, TinyShape
from rlvr_vocab.training.progress import stage
from rlvr_vocab.training.tiny import CONTEXT, write_tiny_model
from rlvr_vocab.training.tiny import TinyShape as TinyModelShape
from rlvr_vocab.training.warmup import WarmupSettings, WorkedProblem, warm_up
from rlvr_vocab.vocab.chat import find_turn_ids
from rlvr_vocab.vocab.layout import VocabLayout

# Whatever decides the bytes of a model made here is part of its cache key.
_PACKAGES = ("torch", "transformers", "trl", "tokenizers")


def base_model(settings: RunSettings, train: Dataset, console: Console) -> str:
    """Hub name or folder of the model to expand; making and warming up are done once per configuration."""
    base = untrained_base(settings)
    if settings.warmup.max_steps:
        base = str(_warmed_up(base, settings, train, console))
    return base


def untrained_base(settings: RunSettings) -> str:
    """The model before any warm-up: as named, or made now."""
    if settings.model.tiny is None:
        return settings.model.name
    return str(tiny_model(settings.model, settings.dataset.system_prompt, settings.seed))


def tiny_model(model: ModelSettings, system_prompt: str | None, seed: int) -> Path:
    """The untrained embedded model, in the cache."""
    assert model.tiny is not None
    texts = [system_prompt or "", "\\boxed{}"] * 10
    shape = {**asdict(model.tiny), "context": CONTEXT}
    folder = _cached("tiny", {"shape": shape, "texts": texts, "tags": model.think_tags, "seed": seed})
    if not folder.exists():
        with folder_appearing_whole(folder, theirs_stays=True) as partial:
            write_tiny_model(partial, _shape(model.tiny), texts, model.think_tags, seed)
    return folder


def _warmed_up(base: str, settings: RunSettings, train: Dataset, console: Console) -> Path:
    key = {
        "base": base,
        "warmup": asdict(settings.warmup),
        "problems": fingerprint_of(zip(train["prompt"], train["reasoning"], train["solution"], strict=True)),
        "seed": settings.seed,
    }
    folder = _cached("warmup", key)
    outcome_file = folder / "warmup.json"
    if folder.exists():
        console.print(f"warm-up: done before with the same settings, taken from {folder}")
    else:
        with folder_appearing_whole(folder, theirs_stays=True) as partial:
            outcome = _run_warmup(base, partial, settings, train, console)
            (partial / outcome_file.name).write_text(json.dumps(outcome), encoding="utf-8")
    outcome = json.loads(outcome_file.read_text(encoding="utf-8"))
    reached = "" if outcome["accuracy"] is None else f", sampled accuracy {outcome['accuracy']:.0%} at the last check"
    console.print(f"warm-up: {counted(outcome['steps'], 'supervised step')}{reached}")
    return folder


def _run_warmup(base: str, out: Path, settings: RunSettings, train: Dataset, console: Console) -> dict[str, Any]:
    warmup, tags = settings.warmup, settings.model.think_tags
    checked = min(warmup.num_check_problems, len(train) // 2) if warmup.until_accuracy is not None else 0
    check_rows = [train[index] for index in range(checked)]
    worked = [_worked_problem(train[index], tags) for index in range(checked, len(train))]
    grader = grader_of(settings.rewards, tags).function
    sampling = SamplingSettings(
        settings.training.grpo["max_completion_length"],
        settings.training.grpo["temperature"],
        checked or 1,
        limit_key="training.max_completion_length",
    )

    def measure(model: Any, tokenizer: Any) -> float | None:
        open_id, close_id = (tokenizer.convert_tokens_to_ids(tag) for tag in tags)
        layout = VocabLayout(len(tokenizer), (), open_id, close_id, find_turn_ids(tokenizer, tags), ())
        return accuracy_of(evaluate_checkpoint(Checkpoint(model, tokenizer, layout), check_rows, grader, sampling))

    with stage(console, "warm-up", warmup.max_steps) as display:
        shown: dict[str, str] = {}

        def show(step: int, total: int, loss: float | None, accuracy: float | None) -> None:
            shown.update({} if accuracy is None else {"accuracy": f"{accuracy:.2f}"})
            shown.update({} if loss is None else {"loss": f"{loss:.3f}"})
            display.update(step, shown, total=total)

        outcome = warm_up(
            base,
            out,
            worked,
            WarmupSettings(
                max_steps=warmup.max_steps,
                batch_size=warmup.batch_size,
                learning_rate=warmup.learning_rate,
                until_accuracy=warmup.until_accuracy,
                check_every=warmup.check_every,
                seed=settings.seed,
            ),
            measure,
            show,
        )
        display.update(outcome.steps, shown, total=outcome.steps)
    return asdict(outcome)


def _worked_problem(row: dict[str, Any], tags: tuple[str, str]) -> WorkedProblem:
    opened, closed = tags
    return WorkedProblem(row["prompt"], f"{opened}{row['reasoning']}{closed}\\boxed{{{row['solution']}}}")


def _shape(shape: TinyShape) -> TinyModelShape:
    return TinyModelShape(**asdict(shape))


def _cached(kind: str, key: dict[str, Any]) -> Path:
    content = json.dumps({**key, "versions": [version(package) for package in _PACKAGES]}, sort_keys=True, default=str)
    return cache_folder() / kind / hashlib.sha256(content.encode()).hexdigest()[:16]
