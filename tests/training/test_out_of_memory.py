"""A GPU without room ends a run in one line: the phase, keys that exist and are not set, what is saved."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr_vocab.config.overrides import known_keys
from rlvr_vocab.errors import OutOfRoom
from rlvr_vocab.training.metrics import reference_kl
from rlvr_vocab.training.out_of_memory import FOUR_BITS, LORA, PHASES, naming_out_of_memory

TORCHS_WORDS = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.2 GiB"
)


def no_room(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError(TORCHS_WORDS)


@pytest.fixture
def trainer(make_trainer: Callable[..., Any], expand_shape: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    return lambda **args: make_trainer(expand_shape("llama", size=None), tmp_path / "run", **args)


def line_of(run: Callable[[], Any], run_folder: Path, already: tuple[str, ...] = ()) -> str:
    with pytest.raises(OutOfRoom) as caught, naming_out_of_memory(run_folder, already):
        run()
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    return str(caught.value)


def fail_in(monkeypatch: pytest.MonkeyPatch, model: Any, when: Callable[[], bool]) -> None:
    """Let the first layer of a model run out of memory, as soon as `when` says so."""
    layer = model.get_submodule("model.layers.0.mlp")
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda *given: no_room() if when() else forward(*given))


def is_going_back() -> bool:
    """Whether autograd is at work, which computes checkpointed layers again."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":
        frame = frame.f_back  # type: ignore[assignment]  # None at the end
    return frame is not None


def break_optimizer(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made.create_optimizer()
    monkeypatch.setattr(made.optimizer, "step", no_room)


@pytest.mark.parametrize(
    ("settings", "break_it", "words"),
    [
        (
            {},
            lambda made, patch: fail_in(patch, made.model, lambda: not torch.is_grad_enabled()),
            "sampling completions",
        ),
        ({"beta": 0.1}, lambda made, patch: fail_in(patch, made.ref_model, lambda: True), "scoring completions"),
        (
            {"gradient_checkpointing": True},
            lambda made, patch: fail_in(patch, made.model, is_going_back),
            "computing gradients",
        ),
        ({}, break_optimizer, "updating the weights"),
        (
            {"save_strategy": "steps", "save_steps": 1},
            lambda made, patch: patch.setattr(made.model, "save_pretrained", no_room),
            "saving a checkpoint",
        ),
        (
            {"kl_log_steps": 1},
            lambda made, patch: patch.setattr(reference_kl, "create_model_from_path", no_room),
            "loading the reference model",
        ),
    ],
)
def test_the_phase_of_a_training_is_named(
    settings: Any, break_it: Any, words: str, trainer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = trainer(**settings)
    break_it(made, monkeypatch)
    line = line_of(made.train, tmp_path / "run")
    assert line.startswith(f"CUDA out of memory while {words}, 2.50 GiB more were asked for; smaller: ")
    assert line.endswith("; no checkpoint was saved yet") and "\n" not in line


def test_the_words_of_other_phases_name_functions_that_exist() -> None:
    from rlvr_vocab.evaluation.sampling import sample_completions
    from rlvr_vocab.runs.final_model import save_final_model

    assert {sample_completions.__name__, save_final_model.__name__} <= {phase.function for phase in PHASES}


def test_every_key_exists() -> None:
    for key in {key for phase in PHASES for key in phase.smaller}:
        known_keys("train").check(key.partition("=")[0])


def test_keys_that_are_set_are_left_out(tmp_path: Path) -> None:
    assert line_of(no_room, tmp_path, already=(LORA,)) == (
        f"CUDA out of memory while loading the model, 2.50 GiB more were asked for; smaller: {FOUR_BITS}; "
        "no checkpoint was saved yet"
    )


def test_a_resume_that_has_no_room_names_the_checkpoint(
    trainer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trainer(save_strategy="steps", save_steps=1).train()
    made = trainer(save_strategy="steps", save_steps=1)
    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", no_room)
    line = line_of(lambda: made.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-1")), tmp_path / "run")
    assert line.startswith("CUDA out of memory while loading the model")
    assert "; checkpoint-2 is intact, the same command goes on from it" in line


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_a_lack_of_memory_that_is_not_torchs_own_is_told_alike(text: str, tmp_path: Path) -> None:
    with pytest.raises(OutOfRoom, match=r"^CUDA out of memory while loading"), naming_out_of_memory(tmp_path):
        raise RuntimeError(text)
