"""Model folders are read as data: nothing is unpickled, no code is run unless asked for; weights have a fingerprint."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, read_with_think_tags, write_expansion
from rlvr_vocab.vocab.weights import weights_fingerprint
from tests.settings import load_settings

TAGS = ("<think>", "</think>")


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (Path.write_text, (self.trace, "unpickled"))


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "unpickled.txt"


def test_pickled_weights_are_refused_in_one_line_and_stay_unread(trace, tmp_path, expand_shape, make_adapter):
    pickled = shutil.copytree(expand_shape("llama", size=0), tmp_path / "pickled")
    (pickled / "model.safetensors").unlink()
    torch.save({"model.weight": Malicious(trace)}, pickled / "pytorch_model.bin")
    base = expand_shape("qwen3", size=20)
    adapter = make_adapter(base, "reasoning")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"weight": Malicious(trace)}, adapter / "adapter_model.bin")
    for read in (
        lambda: load_settings("train", [f"model.name={pickled}", "logging=disabled"]),
        lambda: load_settings("evaluate", [f"checkpoint={pickled}", "dataset=arithmetic"]),
        lambda: write_expansion(plan_expansion(str(pickled), Expansion(size=4)), tmp_path / "out"),
        lambda: read_with_think_tags(str(pickled), TAGS),
        lambda: load_model(pickled),
        lambda: load_model(adapter, base),
    ):
        with pytest.raises(UserError, match=r"safetensors") as caught:
            read()
        assert not trace.exists() and "\n" not in str(caught.value)


def test_code_of_a_model_is_refused_in_one_line_and_not_run(expand_shape, tmp_path, trace, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    with_code = shutil.copytree(expand_shape("llama", size=None), tmp_path / "with_code")
    config = json.loads((with_code / "config.json").read_text())
    classes = {"AutoConfig": "odd.OddConfig", "AutoModelForCausalLM": "odd.OddModel"}
    (with_code / "config.json").write_text(json.dumps({**config, "model_type": "odd_llama", "auto_map": classes}))
    (with_code / "odd.py").write_text(f"from pathlib import Path\nPath({str(trace)!r}).write_text('ran')\n")
    for read in (
        lambda: plan_expansion(str(with_code), Expansion(size=4)),
        lambda: read_with_think_tags(str(with_code), TAGS),
        lambda: load_model(with_code),
    ):
        with pytest.raises(UserError, match="needs its own Python code, which is not run") as caught:
            read()
        assert "\n" not in str(caught.value) and not trace.exists()


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(300, 40, generator=generator) for name in ("embedding", "layer", "head")}


def test_a_fingerprint_depends_on_tensors_alone_not_on_their_files(tensors, tmp_path):
    head = tensors.pop("head")
    first, last = head.clone(), head.clone()
    first[0, 0] += 1e-3
    last[-1, -1] += 1e-3
    others = {"head": first, "tail": last}, {"head": first}, {"head": last}, {"head": head.view(torch.int32)}
    assert weights_fingerprint(tmp_path) is None
    found = []
    for changed in ({"head": head}, *others, {"tail": head}, {"head": head.view(40, 300)}):
        save_file({**tensors, **changed}, tmp_path / "model.safetensors")
        found.append(weights_fingerprint(tmp_path))
    assert len(set(found)) == 7
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    save_file({"head": head}, tmp_path / "another.safetensors")
    assert weights_fingerprint(tmp_path) == found[0]


@pytest.mark.parametrize("kept", [3, 40, -1])
def test_a_file_that_was_cut_short_is_refused(kept, tensors, tmp_path):
    save_file(tensors, tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:kept])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as weights: it is cut short"):
        weights_fingerprint(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        *([], "text", {}, {"dtype": "F32", "shape": [1]}, {"dtype": "F32", "data_offsets": [0, 4]}),
        *({"dtype": "F32", "shape": [1], "data_offsets": offsets} for offsets in ([0], [0, "4"], [4, 0], [-99, 4])),
    ],
)
def test_a_tensor_whose_entry_is_malformed_is_refused(entry, tmp_path):
    header = json.dumps({"weight": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as weights"):
        weights_fingerprint(tmp_path)
