"""A GPU without room ends a run in one line: the phase, what took the room, keys that exist and are not set, what is
saved. The phases are those of a real trainer; the figures of a device stand in for it here."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlvr_vocab.config.overrides import known_keys
from rlvr_vocab.errors import OutOfRoom
from rlvr_vocab.training import memory_advice as memory_room
from rlvr_vocab.training import memory_advice as smaller_settings
from rlvr_vocab.training.lora import Lora
from rlvr_vocab.training.memory_advice import DeviceRoom, Room, device_room, room_of, settings_that_take_less
from rlvr_vocab.training.out_of_memory import naming_out_of_memory, out_of_memory

GIB = 2**30
TORCHS_WORDS = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.2 GiB"
)
LORA = Lora(r=2, lora_alpha=4, target_modules="all-linear", lora_dropout=0.0, train_rows="reasoning")


def no_room(*_: Any, **__: Any) -> Any:
    raise torch.OutOfMemoryError(TORCHS_WORDS)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    return lambda there: monkeypatch.setattr(smaller_settings, "quantization_is_installed", lambda: there)


@pytest.fixture
def trainer(make_trainer: Callable[..., Any], expand_shape: Callable[..., Path], tmp_path: Path) -> Callable[..., Any]:
    return lambda **args: make_trainer(expand_shape("llama", size=None), tmp_path / "run", **args)


def keys_of(line: str) -> list[str]:
    """The keys that a line names, in its order."""
    smaller = next(part for part in line.split("; ") if part.startswith("smaller: "))
    words = smaller.removeprefix("smaller: ").replace(" with ", ", ").replace(" and ", ", ").split(", ")
    return [word.partition("=")[0] for word in words]


def line_of(trainer: Any, run: Callable[[], Any] | None = None) -> str:
    with pytest.raises(OutOfRoom) as caught, naming_out_of_memory(lambda: trainer):
        (run or trainer.train)()
    for key in keys_of(str(caught.value)):
        known_keys("train").check(key)
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fail_in(monkeypatch: pytest.MonkeyPatch, model: Any, when: Callable[[], bool]) -> None:
    """Let the first layer of a model run out of memory, as soon as `when` says so."""
    layer = model.get_submodule("model.layers.0.mlp")
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda *given: no_room() if when() else forward(*given))


def calls(name: str) -> Callable[[], bool]:
    """Whether a function of that name is being called."""

    def under_way() -> bool:
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != name:
            frame = frame.f_back  # type: ignore[assignment]  # None at the end
        return frame is not None

    return under_way


def test_sampling(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(gradient_accumulation_steps=4)
    fail_in(monkeypatch, made.model, lambda: not torch.is_grad_enabled())
    line = line_of(made)
    assert line.startswith(
        "CUDA out of memory while sampling 16 completions of up to 16 tokens at once, 2.50 GiB more were asked for: "
    )
    assert "smaller: training.steps_per_generation=2, training.max_completion_length=8;" in line
    assert line.endswith("; no checkpoint was saved yet")


def test_scoring_before_the_update(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(beta=0.1, gradient_accumulation_steps=4, steps_per_generation=2)
    fail_in(monkeypatch, made.ref_model, lambda: True)
    line = line_of(made)
    assert line.startswith("CUDA out of memory while scoring 4 completions of up to 16 tokens at once")
    assert (
        "smaller: training.per_device_train_batch_size=2 with training.gradient_accumulation_steps=8 and "
        "training.steps_per_generation=4, training.max_completion_length=8, training.beta=0 (no reference model);"
    ) in line


def test_the_forward_pass(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer()
    fail_in(monkeypatch, made.model, torch.is_grad_enabled)
    line = line_of(made)
    assert line.startswith("CUDA out of memory in the forward pass of 4 completions of up to 16 tokens")
    assert "smaller: training.gradient_checkpointing=true, training.per_device_train_batch_size=2 with" in line


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_backward_pass_names_checkpointing_where_it_is_off(
    trainer: Any, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    made = trainer(gradient_checkpointing=checkpointing)
    if checkpointing:  # the forward pass is computed again while going back
        fail_in(monkeypatch, made.model, calls("_engine_run_backward"))
    else:
        made.model.get_output_embeddings().weight.register_hook(no_room)
    line = line_of(made)
    assert line.startswith("CUDA out of memory in the backward pass of 4 completions of up to 16 tokens")
    assert ("training.gradient_checkpointing" in keys_of(line)) is not checkpointing


@pytest.mark.parametrize(
    ("bitsandbytes", "optim", "first"),
    [
        (True, "adamw_torch", ["training.optim", "model.lora.enabled", "model.model_kwargs.load_in_4bit"]),
        (False, "adamw_torch", ["training.optim", "model.lora.enabled"]),
        (False, "adafactor", ["model.lora.enabled"]),
    ],
)
def test_the_optimizers_step(
    trainer: Any, installed: Any, monkeypatch: pytest.MonkeyPatch, bitsandbytes: bool, optim: str, first: list[str]
) -> None:
    installed(bitsandbytes)
    made = trainer(optim=optim)
    made.create_optimizer()
    monkeypatch.setattr(made.optimizer, "step", no_room)
    line = line_of(made)
    assert line.startswith("CUDA out of memory in the optimizer's step")
    assert keys_of(line) == first
    assert ("training.optim=adamw_8bit" in line) is bitsandbytes
    assert ("training.optim=adafactor" in line) is (not bitsandbytes and optim == "adamw_torch")


def test_an_adapter_is_not_told_to_be_one(trainer: Any, installed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(True)
    made = trainer(lora=LORA)
    made.create_optimizer()
    monkeypatch.setattr(made.optimizer, "step", no_room)
    assert keys_of(line_of(made)) == ["training.optim", "model.model_kwargs.load_in_4bit"]


def test_saving_names_the_checkpoint_before_it(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(save_strategy="steps", save_steps=1)
    save = made.model.save_pretrained
    monkeypatch.setattr(
        made.model, "save_pretrained", lambda *to, **how: (no_room if made.state.global_step > 1 else save)(*to, **how)
    )
    line = line_of(made)
    assert line.startswith("CUDA out of memory while saving a checkpoint")
    assert "; checkpoint-1 is intact, the same command goes on from it" in line


def test_a_reference_that_is_read_for_the_moment(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr_vocab.training import trainer as module

    made = trainer(kl_log_steps=1)
    monkeypatch.setattr(module, "create_model_from_path", no_room)
    line = line_of(made)
    assert line.startswith("CUDA out of memory while loading the reference model")
    assert "smaller: training.kl_log_steps=0 (no reference model);" in line


def test_held_out_answers(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer()
    monkeypatch.setattr(made, "_measure", no_room)
    line = line_of(made, made.evaluate)
    assert line.startswith("CUDA out of memory while sampling answers of up to 16 tokens to held-out problems")


def test_loading_before_there_is_a_trainer(installed: Any, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    installed(True)
    monkeypatch.setattr(transformers.modeling_utils.PreTrainedModel, "from_pretrained", no_room)
    with pytest.raises(OutOfRoom) as caught, naming_out_of_memory(lambda: None, already=["model.lora.enabled"]):
        trainer()
    assert str(caught.value) == (
        "CUDA out of memory while loading the model, 2.50 GiB more were asked for; "
        "smaller: model.model_kwargs.load_in_4bit=true"
    )


def test_other_errors_pass_as_they_are(trainer: Any) -> None:
    with pytest.raises(RuntimeError, match="shapes") as caught, naming_out_of_memory(lambda: None):
        raise RuntimeError("shapes do not fit")
    assert type(caught.value) is RuntimeError


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_a_lack_of_memory_that_is_not_torchs_own_is_told_alike(text: str) -> None:
    with (
        pytest.raises(OutOfRoom, match=r"^CUDA out of memory while loading the model"),
        naming_out_of_memory(lambda: None),
    ):
        raise RuntimeError(text)  # fmt: skip


def test_bytes_are_those_of_the_tensors_tied_weights_once(trainer: Any) -> None:
    made = trainer()
    before = room_of(made)
    made.train()
    room = room_of(made)
    numbers = sum(weight.numel() for weight in made.model.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in made.model.buffers())
    assert before.weights == room.weights == 4 * numbers + buffers
    assert (before.optimizer, before.gradients) == (0, 0)
    steps = len(list(made.model.parameters())) * 4  # AdamW counts for every tensor
    assert room.optimizer == 2 * 4 * numbers + steps
    assert room.device is None and room.rest is None


def test_tensors_that_share_their_memory_count_once() -> None:
    model = torch.nn.Linear(4, 4, bias=False)
    model.register_buffer("view", model.weight.detach().view(16))
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cpu")), model=model, ref_model=None, optimizer=None
    )
    assert room_of(trainer).weights == 4 * 4 * 4


def test_a_reference_model_counts_among_the_weights(trainer: Any) -> None:
    assert room_of(trainer(beta=0.1)).weights == 2 * room_of(trainer()).weights


@pytest.fixture
def an_80_gib_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = DeviceRoom(total=80 * GIB, allocated=60 * GIB, elsewhere=12 * GIB)
    monkeypatch.setattr(memory_room, "device_room", lambda device=None: found)


@pytest.mark.usefixtures("an_80_gib_gpu")
def test_the_room_of_a_device_is_told_by_its_parts(trainer: Any) -> None:
    line = str(out_of_memory(torch.OutOfMemoryError(TORCHS_WORDS), trainer()))
    assert line.startswith(
        "CUDA out of memory while loading the model, 2.50 GiB more were asked for: 80.0 GiB in all, of which weights "
        "0.0, gradients 0.0, optimizer 0.0, activations and cache 60.0, other processes and CUDA 12.0; smaller: "
    )


def test_weights_that_take_most_bring_keys_of_the_model_to_the_front(trainer: Any, installed: Any) -> None:
    installed(True)
    made = trainer()
    device = DeviceRoom(80 * GIB, 60 * GIB, 0)
    mostly_weights = Room(15 * GIB, 15 * GIB, 25 * GIB, device)
    mostly_activations = Room(1 * GIB, 1 * GIB, 2 * GIB, device)
    keys = settings_that_take_less("backward", mostly_weights, made)
    assert keys[1:3] == ["model.lora.enabled=true", "model.model_kwargs.load_in_4bit=true"]
    assert not [key for key in settings_that_take_less("backward", mostly_activations, made) if "model." in key]


def arguments(**given: Any) -> Any:
    defaults = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 4,
        "num_generations": 4,
        "world_size": 1,
        "max_completion_length": 1024,
        "beta": 0.0,
        "gradient_checkpointing": True,
        "optim": "adamw_torch_fused",
        "use_vllm": False,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": 0.3,
        "vllm_enable_sleep_mode": False,
    }
    return SimpleNamespace(args=SimpleNamespace(**{**defaults, **given}), model=torch.nn.Linear(1, 1), kl_log_steps=0)


NO_DEVICE = Room(0, 0, 0, None)


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({}, "training.steps_per_generation=2"),
        ({"num_generations": 8}, "training.steps_per_generation=2"),
        ({"gradient_accumulation_steps": 6, "steps_per_generation": 6}, "training.steps_per_generation=3"),
        ({"gradient_accumulation_steps": 8, "steps_per_generation": 6}, "training.steps_per_generation=2"),
        ({"num_generations": 8, "world_size": 2}, "training.steps_per_generation=2"),
        (
            {"steps_per_generation": 1},
            "training.per_device_train_batch_size=2 with training.gradient_accumulation_steps=8 and "
            "training.steps_per_generation=1",
        ),
    ],
)
def test_settings_that_sample_fewer_at_once_keep_groups_whole(given: dict[str, Any], setting: str) -> None:
    if given.get("steps_per_generation") == 1:
        given = {**given, "num_generations": 2}
    assert settings_that_take_less("sampling", NO_DEVICE, arguments(**given))[0] == setting


def test_where_no_smaller_batch_holds_a_group_only_the_length_is_named() -> None:
    odd = arguments(per_device_train_batch_size=1, num_generations=4)
    assert settings_that_take_less("sampling", NO_DEVICE, odd) == ["training.max_completion_length=512"]


def test_a_colocated_engine_is_told_to_take_less() -> None:
    engine = {"training.vllm_gpu_memory_utilization=0.15", "training.vllm_enable_sleep_mode=true"}
    assert engine <= set(settings_that_take_less("backward", NO_DEVICE, arguments(use_vllm=True)))
    served = settings_that_take_less("backward", NO_DEVICE, arguments(use_vllm=True, vllm_mode="server"))
    assert not engine & set(served)
    asleep = settings_that_take_less("loading", NO_DEVICE, arguments(use_vllm=True, vllm_enable_sleep_mode=True))
    assert "training.vllm_enable_sleep_mode=true" not in asleep


@pytest.mark.parametrize("use_vllm", [False, True])
@pytest.mark.parametrize(
    "phase",
    ["loading", "loading the reference", "sampling", "evaluating", "scoring", "backward", "optimizer", "saving"],
)
def test_every_key_exists(phase: Any, use_vllm: bool, installed: Any) -> None:
    installed(True)
    setup = arguments(use_vllm=use_vllm, beta=0.1, gradient_checkpointing=False, steps_per_generation=2)
    setup.kl_log_steps = 5
    settings = settings_that_take_less(phase, Room(3, 3, 3, DeviceRoom(10, 10, 0)), setup)
    assert settings
    for key in keys_of(f"smaller: {', '.join(settings)}"):
        known_keys("train").check(key)


def test_what_is_read_on_a_resume_is_loading(trainer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trainer(save_strategy="steps", save_steps=1).train()
    made = trainer(save_strategy="steps", save_steps=1)
    monkeypatch.setattr(torch.optim.AdamW, "load_state_dict", no_room)
    line = line_of(made, lambda: made.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-1")))
    assert line.startswith("CUDA out of memory while loading the model")
    assert "; checkpoint-2 is intact, the same command goes on from it" in line


def test_an_error_after_a_phase_has_ended_is_not_told_as_one_of_it(trainer: Any) -> None:
    made = trainer(save_strategy="steps", save_steps=1, kl_log_steps=1)
    made.train()
    assert made.phases.current == "training"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_lack_of_memory_is_told_with_the_devices_figures() -> None:
    room = device_room()
    assert room is not None
    with pytest.raises(OutOfRoom) as caught, naming_out_of_memory(lambda: None):
        torch.empty(room.total + GIB, dtype=torch.uint8, device="cuda")
    assert f"{room.total / GIB:,.1f} GiB in all, of which this process holds" in str(caught.value)
    assert "more were asked for" in str(caught.value)
