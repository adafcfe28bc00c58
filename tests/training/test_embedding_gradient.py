"""A tied embedding whose gradient is kept sparse on the way learns what it would learn otherwise."""

import pytest
import torch
from accelerate import Accelerator
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import create_model_from_path

from rlvr_vocab.training.models import load as module
from rlvr_vocab.vocab.copied_rows import attach_low_rank_rows


@pytest.mark.parametrize(("shape", "rank"), [("qwen3", 16), ("llama", None)])
def test_a_sparse_input_gradient_changes_no_step(shape, rank, expand_shape, make_trainer, tmp_path, monkeypatch):
    folder = expand_shape(shape, size=None, open_thinking="prefill", reasoning_rank=rank)
    weights, sparse = [], []
    for threshold in (0, 2**60):
        monkeypatch.setattr(module, "_SMALLEST_SPARED_TABLE", threshold)
        made = make_trainer(folder, tmp_path / str(threshold), gradient_accumulation_steps=2)
        made.train()
        embedding = made.model.get_input_embeddings()
        weights.append([each.detach().clone() for each in embedding.parameters()])
        sparse.append(embedding.sparse)
    tied = made.model.config.tie_word_embeddings
    assert sparse == [tied, False]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-6)
    initial = create_model_from_path(str(folder), dtype="float32")
    attach_low_rank_rows(initial, folder)
    before = initial.get_input_embeddings().parameters()
    assert all((now != then).any() for now, then in zip(weights[0], before, strict=True))


def test_the_gradient_of_a_tied_table_is_made_with_no_other_of_its_size_beside_it(bytes_beyond):
    config = Qwen3Config(vocab_size=2**17, hidden_size=128, num_hidden_layers=0, tie_word_embeddings=True)
    spared, sparse, dense = (Qwen3ForCausalLM(config) for _ in range(3))
    for each in (sparse, dense):
        each.load_state_dict(spared.state_dict())
    module.accumulate_tied_gradient(spared, Accelerator(cpu=True))
    sparse.get_input_embeddings().sparse = True
    ids = torch.tensor([[5, 7, 5, 9]])

    def backward(model):
        model(ids).logits.logsumexp(-1).square().sum().backward()
        return model.get_input_embeddings().weight.grad

    largest = bytes_beyond(lambda: backward(spared))
    assert largest < 1.25 * spared.get_input_embeddings().weight.nbytes
    assert torch.equal(backward(spared), [backward(sparse), backward(sparse)][1])  # upon one that is there, too
    torch.testing.assert_close(spared.lm_head.weight.grad, [backward(dense), backward(dense)][1])
    assert isinstance(spared.lm_head.weight, torch.nn.Parameter) and spared.lm_head.weight.grad is not None
