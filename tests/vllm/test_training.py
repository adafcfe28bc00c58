"""GRPO with rollouts from a vLLM in the same process, and the canary that has to sing first."""

import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

import trl.generation.vllm_generation as trl_vllm
import vllm.engine.arg_utils
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.layers import utils as vllm_layers

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab import vllm_plugin
from tests.vllm.conftest import ask_in_tags

ENGINE = {"dtype": "float32", "enforce_eager": True}  # by itself TRL has vLLM take a checkpoint as bfloat16


@pytest.fixture(autouse=True)
def small_engine(monkeypatch):
    own = trl_vllm.LLM
    monkeypatch.setattr(trl_vllm, "LLM", lambda **settings: own(**{**settings, **ENGINE}))
    yield
    cleanup_dist_env_and_memory()


@pytest.fixture
def weights_kept(monkeypatch):
    """The CPU build packs linear layers and drops their weights; with them in place it takes new ones."""

    def keep(layer, remove_weight):
        layer.cpu_linear = torch.nn.functional.linear

    monkeypatch.setattr(vllm_layers, "dispatch_cpu_unquantized_gemm", keep)


@pytest.mark.usefixtures("weights_kept")
@pytest.mark.parametrize(("mode", "reasoning_rank"), [("expand", None), ("replace", 0), ("expand", 16)])
def test_three_steps_sample_from_the_policy_that_each_update_made(
    mode, reasoning_rank, chatty_smollm2, make_trainer, tmp_path
):
    trainer = make_trainer(chatty_smollm2(mode, reasoning_rank), tmp_path)
    trainer.train()
    rows = trainer.state.log_history[:3]
    assert trainer.state.global_step == 3 and all(row["grad_norm"] > 0 for row in rows)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3


@pytest.mark.usefixtures("weights_kept")
@pytest.mark.parametrize(
    ("size", "mode", "copies_of_each"), [(None, "expand", 2), (None, "replace", 1), (0, "expand", 1)]
)
def test_a_truncation_is_over_texts_and_scoring_replays_it(
    size, mode, copies_of_each, expand_shape, make_trainer, tmp_path
):
    given = {"multiplicity": copies_of_each} if size is None else {}
    truncation = {"top_k": 12, "top_p": 0.9, **({} if size == 0 else {"min_p": 0.01})}
    folder = expand_shape("llama_of_vllm", size=size, mode=mode, open_thinking="prefill", **given)
    trainer = make_trainer(folder, tmp_path, max_completion_length=60, **truncation)
    trainer.train()
    rows = trainer.state.log_history[:3]
    assert trainer.state.global_step == 3 and all(2 < row["sampling/kept_texts"] <= 12 for row in rows)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert max(row["sampling/logp_gap"] for row in rows) < 1e-4


@pytest.mark.usefixtures("weights_kept")
@pytest.mark.parametrize("mode", ["expand", "replace"])
def test_turns_after_a_call_are_sampled_from_the_policy_that_scores_them(mode, calling_shape, make_trainer, tmp_path):
    folder = calling_shape("llama_of_vllm", size=None, mode=mode, open_thinking="prefill")
    trainer = make_trainer(folder, tmp_path, tools=[ask_in_tags], max_completion_length=150)
    trainer.train()
    rows = trainer.state.log_history[:3]
    assert trainer.state.global_step == 3 and all(row["tools/call_frequency"] > 0 for row in rows)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert max(row["sampling/logp_gap"] for row in rows) < 1e-4


def test_without_the_plugin_a_run_ends_before_its_first_step(chatty_smollm2, make_trainer, tmp_path, monkeypatch):
    engine_args = vllm.engine.arg_utils.EngineArgs
    monkeypatch.setattr(engine_args, "create_engine_config", engine_args.create_engine_config.__wrapped__)
    monkeypatch.setattr(vllm_plugin, "reasoning_layout", lambda model_config: None)
    trainer = make_trainer(chatty_smollm2("expand"), tmp_path)
    with pytest.raises(UserError, match=r"vLLM does not follow the region policy.*install rlvr-vocab"):
        trainer.train()
    assert trainer.state.global_step == 0
