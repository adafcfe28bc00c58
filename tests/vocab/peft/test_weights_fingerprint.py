"""Weights are told from others of the same shape, and are the same however they lie in files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.weights import weights_fingerprint


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {name: torch.randn(300, 40, generator=generator) for name in ("embedding", "layer", "head")}


def fingerprint_of(folder: Path, *files: dict[str, torch.Tensor], **metadata: str) -> str | None:
    folder.mkdir()
    for number, tensors in enumerate(files):
        save_file(tensors, folder / f"model-{number}.safetensors", metadata=metadata or None)
    return weights_fingerprint(folder)


def test_the_same_tensors_in_other_files_have_the_same_fingerprint(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    assert weights_fingerprint(tmp_path) is None
    whole = fingerprint_of(tmp_path / "whole", tensors)
    head = {"head": tensors["head"]}
    rest = {name: tensors[name] for name in ("layer", "embedding")}
    assert whole is not None and whole == fingerprint_of(tmp_path / "split", head, rest, format="pt")


@pytest.mark.parametrize("name", ["embedding", "layer", "head"])
@pytest.mark.parametrize("place", [0, -1])
def test_a_changed_number_at_either_end_of_any_tensor_is_another_fingerprint(
    name: str, place: int, tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    before = fingerprint_of(tmp_path / "before", tensors)
    tensors[name].view(-1)[place] += 1e-3
    assert fingerprint_of(tmp_path / "after", tensors) != before


def test_the_same_bytes_under_another_name_type_or_shape_are_other_weights(
    tensors: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    found = {
        fingerprint_of(tmp_path / "as_they_are", tensors),
        fingerprint_of(tmp_path / "typed", {**tensors, "head": tensors["head"].view(torch.int32)}),
        fingerprint_of(tmp_path / "turned", {**tensors, "head": tensors["head"].view(40, 300)}),
        fingerprint_of(tmp_path / "named", {"tail": tensors.pop("head"), **tensors}),
    }
    assert len(found) == 4


@pytest.mark.parametrize("kept", [3, 40, -1])
def test_a_file_that_was_cut_short_is_told(kept: int, tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    content = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[:kept])
    with pytest.raises(UserError, match=r"model\.safetensors cannot be read as weights: it is cut short"):
        weights_fingerprint(tmp_path)
