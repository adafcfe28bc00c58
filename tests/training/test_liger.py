"""training.use_liger_kernel beside the region head: the layers' kernels go in, the head that scores stays."""

import sys
from types import MethodType, ModuleType

import pytest
import torch
import transformers.integrations.liger


@pytest.fixture
def liger_calls(monkeypatch):
    """Stands in for liger-kernel 0.8, whose kernels need a GPU: it replaces what the real one replaces."""
    calls = []

    def apply(model, fused_linear_cross_entropy=True, **kwargs):
        calls.append({"fused_linear_cross_entropy": fused_linear_cross_entropy, **kwargs})
        for layer in model.model.layers:
            layer.mlp.forward = MethodType(swiglu, layer.mlp)
        if fused_linear_cross_entropy:
            model.forward = None

    def swiglu(self, hidden):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden))

    stand_in = ModuleType("liger_kernel.transformers")
    stand_in._apply_liger_kernel_to_instance = apply
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", stand_in)
    monkeypatch.setattr(transformers.integrations.liger, "is_liger_kernel_available", lambda: True)
    return calls


def losses_of(trainer):
    trainer.train()
    return [(row["loss"], row["entropy"]) for row in trainer.state.log_history if "loss" in row]


@pytest.mark.filterwarnings("ignore:.use_liger_kernel:FutureWarning")  # TRL 2 takes kernels from the hub instead
def test_tokens_are_scored_by_the_region_head_all_the_same(liger_calls, expand_shape, make_trainer, tmp_path):
    folder = expand_shape("llama", size=None, open_thinking="prefill")
    plain = losses_of(make_trainer(folder, tmp_path / "plain"))
    trainer = make_trainer(folder, tmp_path / "liger", use_liger_kernel=True)
    forward = trainer.model.forward
    assert losses_of(trainer) == [pytest.approx(row, abs=1e-5) for row in plain]
    assert liger_calls == [{"fused_linear_cross_entropy": False}]
    assert trainer.model.forward is forward
    assert trainer.model.model.layers[0].mlp.forward.__name__ == "swiglu"
