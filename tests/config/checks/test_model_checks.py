"""What of model, optimizer and kernels is refused before torch is imported, and what is not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.checks import machine
from rlvr_vocab.config.checks.machine import ATTENTIONS
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.plan import fit

LORA = "model.lora.enabled=true"
FOUR_BIT = "model.model_kwargs.load_in_4bit=true"
EIGHT_BIT = "model.model_kwargs.load_in_8bit=true"
ATTENTION = "model.model_kwargs.attn_implementation"
BATCHING = "training.use_transformers_continuous_batching=true"


@pytest.fixture(autouse=True)
def everything_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: True)


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(machine, "installed", lambda package: package not in packages)


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as caught:
        load_settings("train", list(words))
    assert "\n" not in str(caught.value)
    assert not Path("out").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([LORA, "model.lora.r=0"], ["model.lora.r=0", "greater than or equal to 1"]),
        ([LORA, "model.lora.lora_dropout=1.5"], ["lora_dropout=1.5", "less than 1"]),
        ([LORA, "model.lora.train_rows=reasonin"], ["did you mean reasoning?"]),
        ([LORA, "model.lora.target_modules=[]"], ["all-linear"]),
        ([LORA, "model.lora.target_modules=q_proj"], ["target_modules=q_proj", "all-linear"]),
        ([FOUR_BIT, "model.lora.enabled=false"], ["load_in_4bit=true", "model.lora.enabled=false"]),
        ([EIGHT_BIT, "model.lora.enabled=false"], ["load_in_8bit=true", "model.lora.enabled=false"]),
        ([FOUR_BIT, EIGHT_BIT], ["choose one"]),
        ([FOUR_BIT, "model.pure_bf16=true"], ["pure_bf16", "float32"]),
        (["model.model_kwargs.load_in_4bit=maybe"], ["load_in_4bit=maybe", "a valid boolean"]),
        (["+model.model_kwargs.quantization_config={load_in_4bit: true}"], ["load_in_4bit"]),
        ([EIGHT_BIT, "training.use_vllm=true"], ["load_in_8bit=false", "use_vllm=false"]),
        ([FOUR_BIT, "training.use_vllm=true"], ["load_in_4bit=false", "use_vllm=false"]),
        ([f"{ATTENTION}=sdp"], ["did you mean sdpa?", "flash_attention_2"]),
        ([f"{ATTENTION}=flash_attention_2", "training.bf16=false"], ["16 bits", "training.bf16=true"]),
        ([BATCHING, "model.reasoning_vocab_size=5"], ["past the region policy"]),
        ([BATCHING], ["training.bf16=true", "16 bits"]),
        (
            ["training.use_liger_kernel=true", "+training.liger_kernel_config={fused_linear_cross_entropy: true}"],
            ["fused_linear_cross_entropy", "region policy"],
        ),
    ],
)
def test_a_run_that_cannot_work_is_refused_in_one_line(words: list[str], parts: list[str]) -> None:
    message = refusal(*words)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    "words",
    [
        [FOUR_BIT, "model.reasoning_vocab_size=full"],
        [EIGHT_BIT],
        ["model.lora.enabled=true", "model.lora.train_rows=reasoning", "model.reasoning_vocab_size=0"],
        [f"{ATTENTION}=flash_attention_2"],
        [f"{ATTENTION}=kernels-community/flash-attn2"],
        [f"{ATTENTION}=flash_attention_2", FOUR_BIT, "training.bf16=false"],
        [BATCHING, "training.bf16=false"],
        ["training.use_liger_kernel=true"],
        ["training.optim=paged_adamw_8bit"],
    ],
)
def test_what_goes_together_is_accepted(words: list[str]) -> None:
    load_settings("train", words)


@pytest.mark.parametrize(
    ("words", "package", "told"),
    [
        ([FOUR_BIT], "bitsandbytes", "pip install -e '.[quantization]'"),
        (["training.optim=adamw_8bit"], "bitsandbytes", "pip install -e '.[quantization]'"),
        (["training.use_liger_kernel=true"], "liger_kernel", "pip install liger-kernel"),
        (["+model.model_kwargs.use_kernels=true"], "kernels", "pip install kernels"),
    ],
)
def test_a_package_that_is_not_there_is_asked_for_by_name(
    words: list[str], package: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_settings("train", words)
    without(monkeypatch, package)
    message = refusal(*words)
    assert f"{package.replace('liger_', 'liger-')} is not installed" in message and told in message


def test_flash_attention_comes_with_its_package_or_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two of them install a module flash_attn.
    there: set[str] = set()
    monkeypatch.setattr(machine, "distributions", lambda name: there & {name})
    own = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3", "flash_attention_4": "flash-attn-4"}
    for attention, package in own.items():
        word = f"{ATTENTION}={attention}"
        without(monkeypatch)  # but with the package kernels
        load_settings("train", [word])
        without(monkeypatch, "kernels")
        there = {package}
        load_settings("train", [word])
        there = set(own.values()) - {package}
        assert f"{package} is not installed" in refusal(word)
    assert "kernels is not installed" in refusal(f"{ATTENTION}=kernels-community/flash-attn2")


def test_fit_does_not_quantize_what_vllm_is_to_sample_from() -> None:
    by_torch, by_vllm = (load_settings("train", [LORA, f"training.use_vllm={by}"]) for by in ("false", "true"))
    assert isinstance(by_torch, RunSettings) and isinstance(by_vllm, RunSettings)
    offered = [
        [change and change.words for change in (step(run) for step in fit._STEPS)] for run in (by_torch, by_vllm)
    ]
    assert [(FOUR_BIT,) in words for words in offered] == [True, False]


def test_only_a_run_asks_for_what_only_a_run_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "bitsandbytes")
    load_settings("expand", ["out=new", FOUR_BIT])
    load_settings("check", ["model=qwen3_0.6b", FOUR_BIT])


def test_a_model_that_is_quantized_already_is_refused(model_folder: Callable[..., Path]) -> None:
    folder = model_folder(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    message = refusal(f"model.name={folder}")
    assert "quantized already" in message and FOUR_BIT in message


@pytest.mark.parametrize(
    ("words", "adapter"),
    [
        ([], False),
        (["model.lora.enabled=true"], True),
        ([FOUR_BIT], True),
        ([EIGHT_BIT], True),
    ],
)
def test_what_cannot_train_itself_switches_an_adapter_on(words: list[str], adapter: bool) -> None:
    model = load_settings("train", words).model
    assert model.trains_adapter is adapter
    assert model.loaded_dtype == ("bfloat16" if adapter else "float32")


def test_every_attention_of_transformers_but_the_paged_ones_may_be_chosen() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    known = {"eager", *ALL_ATTENTION_FUNCTIONS.valid_keys()}
    assert {name for name in known if not name.startswith("paged|")} == set(ATTENTIONS)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["model.lora.r=64"], "model.lora.r has nothing to apply to: add model.lora.enabled=true"),
        (["model.lora.enabled=false", "model.lora.train_rows=all"], "model.lora.train_rows has nothing to apply to"),
    ],
)
def test_a_typed_key_that_nothing_would_read_is_refused(words, line):
    with pytest.raises(UserError, match=line):
        read_settings("train", ["model=tiny", *words])
    read_settings("train", ["model=tiny", "model.lora.enabled=true", "model.lora.r=64"])
    read_settings("train", ["model=tiny", "model.lora.enabled=false"])
