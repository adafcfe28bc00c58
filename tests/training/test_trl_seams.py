"""The private functions and attributes that training replaces or reads are those of the pinned TRL and Transformers."""

import hashlib
import inspect

import pytest
import transformers
import trl
import trl.trainer.grpo_trainer as trl_grpo
from trl import GRPOTrainer
from trl.generation import vllm_generation

from rlvr_vocab.training import trl_seams

# The first digits of the SHA-256 of each source. After an upgrade read the changed function beside its override in
# trl_seams.py, then take the new digits from the message.
SOURCES = {
    "add_fused_lm_head": "422d009f04b6",
    "_get_output_dir": "97172085342a",
    "_generate": "2a27fdf8f5e6",
    "_generate_single_turn": "e0f02e4fc094",
    "_get_tool_suffix_ids": "e62362aef61a",
    "_tool_call_loop": "1c501f7f3b46",
    "_calculate_rewards": "736ae29b0838",
    "_generate_and_score_completions": "1fa48922792d",
    "_get_per_token_logps_and_entropies": "ea73c3909275",
    "_get_train_sampler": "36497afb4d31",
    "_save_checkpoint": "ec91bde12364",
    "_push_from_checkpoint": "2523da925347",
    "_save": "b136889e8792",
    "_load_from_checkpoint": "a2804e8d93a2",
    "_load_best_model": "0e183d55a9db",
    "_load_optimizer_and_scheduler": "5c1772becdfd",
}
PATCHED = {"add_fused_lm_head": trl_grpo.add_fused_lm_head}
OVERRIDDEN = {
    name: getattr(GRPOTrainer, name)
    for seams in (trl_seams.StagedCheckpoints, trl_seams.TRLSeams)
    for name in vars(seams)
    if hasattr(GRPOTrainer, name) and name.startswith("_") and not name.startswith("__")
}


@pytest.mark.parametrize("name", [*PATCHED, *OVERRIDDEN])
def test_a_function_that_is_replaced_is_the_one_that_was_read(name):
    source = inspect.getsource({**PATCHED, **OVERRIDDEN}[name])
    digits = hashlib.sha256(source.encode()).hexdigest()[:12]
    assert digits == SOURCES[name], f"{name} of trl {trl.__version__}, transformers {transformers.__version__}"


def test_vllm_s_weights_go_through_the_generator_that_is_replaced():
    assert "self._iter_named_params()" in inspect.getsource(vllm_generation.VLLMGeneration)
