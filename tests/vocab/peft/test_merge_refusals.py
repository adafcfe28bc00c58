"""A merged folder that is not the model that trained never appears, and the refusal says by how much it differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.peft import merge
from rlvr_vocab.vocab.peft.merge import merge_adapter, probe_ids

pytestmark = pytest.mark.slow


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "merged" / "model"


def refusal(adapter: Path, base: Path, out: Path, dtype: torch.dtype = torch.float32) -> str:
    with pytest.raises(UserError) as caught:
        merge_adapter(adapter, out, base, dtype)
    assert list(out.parent.iterdir() if out.parent.exists() else []) == []
    return str(caught.value)


def edit_written_file(monkeypatch: pytest.MonkeyPatch, edit: Callable[[Path], object]) -> None:
    """Something goes wrong between the writing of the weights and their reading."""

    def faulty(model: Any, base: Path, folder: Path) -> None:
        write(model, base, folder)
        edit(folder / "model.safetensors")

    write = merge.write_stock_folder
    monkeypatch.setattr(merge, "write_stock_folder", faulty)


def test_one_wrong_row_in_the_written_file_is_refused(
    expand_shape: Callable[..., Path],
    make_adapter: Callable[..., Path],
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = expand_shape("llama", size=None)

    def edit(path: Path) -> None:
        tensors = load_file(path)
        tensors["model.embed_tokens.weight"][probe_ids(base)[3], 3] += 1e-2
        save_file(tensors, path, metadata={"format": "pt"})

    edit_written_file(monkeypatch, edit)
    assert refusal(make_adapter(base, "reasoning"), base, out).startswith("merging changes the model: logits differ by")


def test_an_adapter_on_one_side_of_a_tied_table_is_refused(
    expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape("qwen3", size=20)
    said = refusal(make_adapter(base, target_modules=["lm_head"]), base, out)
    assert said.startswith("merging changes the model: logits differ by")


def test_a_head_that_is_saved_whole_is_untied(
    expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape("qwen3", size=20)
    adapter = make_adapter(base, target_modules=["q_proj"], modules_to_save=["lm_head"])
    merge_adapter(adapter, out, base)
    merged, ids = AutoModelForCausalLM.from_pretrained(out), torch.arange(20)[None]
    on_its_base = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    torch.testing.assert_close(merged(ids).logits, on_its_base(ids).logits, rtol=0, atol=1e-4)
    assert not merged.config.tie_word_embeddings


def test_weights_that_half_precision_cannot_hold_are_refused(
    expand_shape: Callable[..., Path], make_adapter: Callable[..., Path], out: Path
) -> None:
    base = expand_shape("llama", size=20)
    adapter = make_adapter(base, "reasoning")
    path = adapter / "adapter_model.safetensors"
    tensors = load_file(path)
    tensors["base_model.model.model.embed_tokens.lora_rows"][-1, 0] = 70_000.0  # the largest float16 is 65,504
    save_file(tensors, path, metadata={"format": "pt"})
    assert "cannot hold the merged weights" in refusal(adapter, base, out, torch.float16)
    assert merge_adapter(adapter, out, base, torch.bfloat16).merging < 1e-4


def test_what_stock_classes_cannot_load_is_refused(
    expand_shape: Callable[..., Path],
    make_adapter: Callable[..., Path],
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = expand_shape("qwen3", size=20)
    edit_written_file(monkeypatch, lambda path: path.write_bytes(path.read_bytes()[:-1]))
    message = refusal(make_adapter(base, "none"), base, out)
    assert "cannot be read" in message and "\n" not in message


def test_an_adapter_that_has_no_weights_to_fold_is_refused_by_its_kind(
    expand_shape: Callable[..., Path], tmp_path: Path, out: Path
) -> None:
    base, adapter = expand_shape("qwen3", size=20), tmp_path / "prompt_tuning"
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(str(adapter))
    assert "of the kind PROMPT_TUNING" in refusal(adapter, base, out)
