"""GRPO with rollouts from a vLLM in this process, in either model runner: updated weights arrive."""

import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: docs/vllm.md says how")

import trl.generation.vllm_generation as trl_vllm
from vllm import envs
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.layers import utils as vllm_layers

from tests.vllm.conftest import in_this_process, make_trainer

__all__ = ["in_this_process", "make_trainer"]  # fixtures, the second in place of the one of conftest.py

RUNNERS = {"V1": "0", "V2": "1"}


@pytest.fixture(params=RUNNERS)
def runner(request, device, monkeypatch):
    if device.type == "cpu" and request.param == "V2":
        pytest.skip("Model Runner V2 needs a CUDA GPU, and there is none here")
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", RUNNERS[request.param])
    if device.type == "cpu":  # the CPU build packs linear layers and drops their weights; unpacked it takes new ones
        keep, linear = "dispatch_cpu_unquantized_gemm", torch.nn.functional.linear
        monkeypatch.setattr(vllm_layers, keep, lambda layer, remove_weight: setattr(layer, "cpu_linear", linear))
    yield request.param
    cleanup_dist_env_and_memory()


@pytest.fixture
def train_by(runner, device, make_trainer, monkeypatch, tmp_path):
    """A trainer on a folder, its engine in a type of that name."""

    def make(folder, dtype):
        own = trl_vllm.LLM
        monkeypatch.setattr(
            trl_vllm, "LLM", lambda **settings: own(**{**settings, "dtype": dtype, "enforce_eager": True})
        )
        given = {"use_cpu": device.type == "cpu", "bf16": False, "max_completion_length": 32, "learning_rate": 1e-3}
        return make_trainer(folder, tmp_path, **given)

    return make


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rank", [16, None])
def test_each_step_samples_from_the_policy_that_the_update_before_made(
    rank, dtype, expanded, train_by, runner, device, report
):
    trainer = train_by(expanded(reasoning_rank=rank), dtype)
    engine = trainer.vllm_generation.llm.llm_engine
    assert engine.vllm_config.use_v2_model_runner == (runner == "V2") == envs.VLLM_USE_V2_MODEL_RUNNER
    trainer.train()
    rows = trainer.state.log_history[:3]
    means = [row["sampling/sampling_logp_difference/mean"] for row in rows]
    report(f"vLLM, runner {runner}, {dtype}, {rank}: " + ", ".join(f"{each:.1e}" for each in means) + " nats a step")
    assert trainer.state.global_step == 3 and all(row["grad_norm"] > 0 for row in rows)
    in_float32 = 1e-4 if device.type == "cpu" else 1e-2  # Triton's attention multiplies in TF32
    assert max(means) < (in_float32 if dtype == "float32" else 0.1)
