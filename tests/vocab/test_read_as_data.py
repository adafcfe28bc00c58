"""Nothing is unpickled from a model folder, and no code of a model's own is run unless it is asked for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.model import loading_kwargs, source_kwargs
from rlvr_vocab.training.models.lora import skeleton
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, read_with_think_tags, write_expansion
from rlvr_vocab.vocab.peft.adapter import load_model
from rlvr_vocab.vocab.weights import pickled_weights, refuse_pickled, why_not_read


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.trace, "unpickled"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "unpickled.txt"


@pytest.fixture
def pickled(expand_shape: Callable[..., Path], tmp_path: Path, trace: Path) -> Path:
    """A model folder whose weights are a pickle that does harm."""
    folder = tmp_path / "pickled"
    shutil.copytree(expand_shape("llama", size=0), folder)
    (folder / "model.safetensors").unlink()
    torch.save({"model.weight": Malicious(trace)}, folder / "pytorch_model.bin")
    return folder


def expand(folder: Path, out: Path) -> None:
    write_expansion(plan_expansion(str(folder), Expansion(size=4)), out)


TAGS = ("<think>", "</think>")


@pytest.mark.parametrize(
    "read",
    [
        lambda folder, out: load_settings("train", [f"model.name={folder}", "logging=disabled"]),
        lambda folder, out: load_settings("expand", [f"model.name={folder}", f"out={out}"]),
        lambda folder, out: load_settings("evaluate", [f"checkpoint={folder}", "dataset=arithmetic"]),
        lambda folder, out: expand(folder, out),
        lambda folder, out: read_with_think_tags(str(folder), TAGS),
        lambda folder, out: load_model(folder),
    ],
)
def test_pickled_weights_are_refused_in_one_line_and_stay_unread(
    read: Callable[[Path, Path], Any], pickled: Path, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"holds only pickled weights \(pytorch_model.bin\), which are not read"):
        read(pickled, tmp_path / "out")
    assert not trace.exists() and not (tmp_path / "out").exists()


def test_a_pickle_beside_safetensors_is_passed_over(pickled: Path, trace: Path, expand_shape: Any) -> None:
    whole = expand_shape("llama", size=0)
    shutil.copyfile(whole / "model.safetensors", pickled / "model.safetensors")
    weights = load_model(pickled).get_input_embeddings().weight
    assert torch.equal(weights, load_model(whole).get_input_embeddings().weight)
    assert not trace.exists()


def test_pickled_adapters_are_refused_and_stay_unread(
    expand_shape: Any, make_adapter: Callable[..., Path], trace: Path
) -> None:
    base = expand_shape("qwen3", size=20)
    adapter = make_adapter(base, "reasoning")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"weight": Malicious(trace)}, adapter / "adapter_model.bin")
    for read in (
        lambda: load_model(adapter, base),
        lambda: load_settings("merge", [f"checkpoint={adapter}", f"base={base}", "out=merged"]),
    ):
        with pytest.raises(UserError, match=r"holds only pickled weights \(adapter_model.bin\)"):
            read()
    assert not trace.exists()


def test_a_checkpoint_is_not_mistaken_for_pickled_weights(tmp_path: Path) -> None:
    for name in ("training_args.bin", "optimizer.pt", "rng_state_0.pth", "scheduler.pt", "pending_0.pt"):
        (tmp_path / name).touch()
    assert pickled_weights(tmp_path) is None
    refuse_pickled(tmp_path, "a folder")
    (tmp_path / "model.ckpt").touch()
    with pytest.raises(UserError, match=r"a folder: holds only pickled weights \(model.ckpt\)"):
        refuse_pickled(tmp_path, "a folder")


def test_a_hub_model_without_safetensors_is_refused_in_one_line() -> None:
    said = OSError(
        "someone/old does not appear to have a file named model.safetensors or model.safetensors.index.json and thus "
        "cannot be loaded with `safetensors`. Please do not set `use_safetensors=True`."
    )
    assert str(why_not_read("someone/old", said)).startswith("someone/old: holds only pickled weights, which are not")
    assert why_not_read("someone/old", OSError("no route to host")) is None


@pytest.mark.parametrize("key", ["use_safetensors", "weights_only"])
def test_unpickling_cannot_be_asked_for(key: str) -> None:
    with pytest.raises(UserError, match=rf"model.model_kwargs.{key} is not used here: weights are read as safetensors"):
        load_settings("train", ["model=tiny", "dataset=arithmetic", f"+model.model_kwargs.{key}=false"])


CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path(__file__).with_name("ran.txt").write_text("ran")
Path({trace!r}).write_text("ran")
class OddConfig(LlamaConfig):
    model_type = "odd_llama"
class OddModel(LlamaForCausalLM):
    config_class = OddConfig
"""


@pytest.fixture
def with_code(expand_shape: Callable[..., Path], tmp_path: Path, trace: Path, monkeypatch: Any) -> Path:
    """A model folder with classes of its own."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "with_code"
    shutil.copytree(expand_shape("llama", size=None), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "odd_llama",
        "auto_map": {"AutoConfig": "odd.OddConfig", "AutoModelForCausalLM": "odd.OddModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "odd.py").write_text(CODE.format(trace=str(trace)))
    return folder


@pytest.mark.parametrize(
    "read",
    [
        lambda folder: plan_expansion(str(folder), Expansion(size=4)),
        lambda folder: read_with_think_tags(str(folder), TAGS),
        load_model,
    ],
    ids=["expand", "warm-up", "load_model"],
)
def test_code_of_a_model_is_refused_in_one_line_and_not_run(
    read: Callable[[Path], Any], with_code: Path, trace: Path
) -> None:
    with pytest.raises(UserError, match="brings Python code of its own, which is not run") as caught:
        read(with_code)
    assert "\n" not in str(caught.value) and not trace.exists()


def test_the_skeleton_runs_no_code_either(with_code: Path, trace: Path) -> None:
    with pytest.raises(ValueError, match="custom code"):
        skeleton(with_code)
    assert not trace.exists()


def test_code_of_a_model_is_run_where_it_is_asked_for(with_code: Path, trace: Path) -> None:
    assert skeleton(with_code, trust_remote_code=True).config.model_type == "odd_llama"
    assert trace.read_text() == "ran"


def model_of(*words: str) -> Any:
    settings = read_settings("train", ["model=tiny", "dataset=arithmetic", *words])
    assert isinstance(settings, RunSettings)
    return settings.model


def test_a_run_passes_trust_through_and_reads_its_own_folder_as_data() -> None:
    assert loading_kwargs(model_of())["use_safetensors"] is True
    assert "trust_remote_code" not in source_kwargs(model_of())
    assert source_kwargs(model_of("+model.model_kwargs.trust_remote_code=true")) == {"trust_remote_code": True}
    assert "trust_remote_code" not in loading_kwargs(model_of("+model.model_kwargs.trust_remote_code=true"))
