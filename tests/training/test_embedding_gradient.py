"""A tied embedding whose gradient is kept sparse on the way learns what it would learn otherwise."""

import pytest
import torch
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.training import embedding_gradient as module
from rlvr_vocab.vocab.reasoning_rows import hold_differences


@pytest.mark.parametrize(("shape", "rows"), [("qwen3", "shared"), ("llama", "independent")])
def test_a_sparse_input_gradient_changes_no_step(shape, rows, expand_shape, make_trainer, tmp_path, monkeypatch):
    folder = expand_shape(shape, size=None, open_thinking="prefill", reasoning_rows=rows)
    weights, sparse = [], []
    for threshold in (0, 2**60):
        monkeypatch.setattr(module, "_SMALLEST_SPARED_TABLE", threshold)
        made = make_trainer(folder, tmp_path / str(threshold), gradient_accumulation_steps=2)
        made.train()
        embedding = made.model.get_input_embeddings()
        weights.append(torch.cat([each.detach().clone() for each in embedding.parameters()]))
        sparse.append(embedding.sparse)
    tied = made.model.config.tie_word_embeddings
    assert sparse == [tied, False]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-6)
    initial = create_model_from_path(str(folder), dtype="float32")
    hold_differences(initial, folder)
    before = torch.cat(list(initial.get_input_embeddings().parameters()))
    assert all((now != then).any() for now, then in zip(weights[0].chunk(2), before.chunk(2), strict=True))
