"""Real vLLM engines, one at a time and in this process, so that a test can look inside them."""

import dataclasses
import os
from functools import wraps

import pytest

from tests.conftest import ask
from tests.training.conftest import accuracy, new_trainer


@pytest.fixture(scope="session", autouse=True)
def in_this_process():
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # nothing here runs long enough to earn back a compilation
    }
    os.environ.update(settings)


@pytest.fixture(scope="module")
def start_engine():
    """An `LLM` on a folder; the one before it is ended first."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    running = []

    def stop():
        while running:
            running.pop().llm_engine.engine_core.shutdown()
            cleanup_dist_env_and_memory()

    def start(folder, **settings):
        stop()
        defaults = {
            "dtype": "float32",
            "max_model_len": 512,
            "max_num_seqs": 64,
            "logprobs_mode": "processed_logprobs",
            "enforce_eager": True,
            "disable_log_stats": False,
        }
        running.append(LLM(str(folder), **{**defaults, **settings}))
        return running[-1]

    yield start
    stop()


@pytest.fixture
def asynchronous(monkeypatch):
    """Scheduling a step before the last one's tokens are known, which the CPU platform switches off."""
    from vllm.platforms.cpu import CpuPlatform

    own = CpuPlatform.check_and_update_config.__func__

    def keep_asynchronous(cls, vllm_config):
        own(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    monkeypatch.setattr(CpuPlatform, "check_and_update_config", classmethod(keep_asynchronous))


@pytest.fixture(scope="session")
def chatty_smollm2(smollm2, tmp_path_factory):
    """SmolLM2 with a full reasoning vocabulary that opens and closes thinking as often as it ends a sentence."""
    import torch
    from transformers import AutoModelForCausalLM

    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion
    from rlvr_vocab.vocab.layout import VocabLayout
    from rlvr_vocab.vocab.tokenizer import load_tokenizer

    root, made = tmp_path_factory.mktemp("chatty"), {}

    def write(mode, reasoning_rank=None):
        if (mode, reasoning_rank) not in made:
            folder = root / mode / str(reasoning_rank)
            expansion = Expansion(size=None, mode=mode, reasoning_rank=reasoning_rank)
            write_expansion(plan_expansion(str(smollm2), expansion), folder)
            layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            rows = model.get_input_embeddings().weight.data
            rows[layout.think_open_id] = rows[tokenizer.encode(".")[0]]
            rows[layout.think_close_id] = rows[tokenizer.encode(",")[0]]
            model.save_pretrained(folder)
            made[mode, reasoning_rank] = folder
        return made[mode, reasoning_rank]

    return write


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One request as vLLM answered it; logps of the tokens that it sampled."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logps: list[float]
    temperature: float


@pytest.fixture(scope="session")
def sample():
    def run(llm, prompts, temperatures, lengths):
        from vllm import SamplingParams

        params = [
            SamplingParams(temperature=temperature, max_tokens=length, logprobs=0, ignore_eos=True)
            for temperature, length in zip(temperatures, lengths, strict=True)
        ]
        answers = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return [
            Sampled(
                list(answer.prompt_token_ids),
                list(answer.outputs[0].token_ids),
                [next(iter(entry.values())).logprob for entry in answer.outputs[0].logprobs],
                temperature,
            )
            for answer, temperature in zip(answers, temperatures, strict=True)
        ]

    return run


@pytest.fixture(scope="session")
def make_trainer():
    """A trainer for three steps whose rollouts come from vLLM; keyword arguments as in tests/training."""
    prompts = [[{"role": "user", "content": f"What is 3 + {number}?"}] for number in range(12)]
    defaults = {
        "rows": [{"prompt": prompt, "solution": ""} for prompt in prompts],
        "reward": accuracy,
        "max_steps": 3,
        "learning_rate": 1e-4,
        "temperature": 0.9,
        "use_vllm": True,
        "vllm_max_model_length": 256,
        "vllm_gpu_memory_utilization": 0.3,
    }
    return lambda folder, out, **given: new_trainer(folder, out, **{**defaults, **given})


@wraps(ask)
def ask_in_tags(letter):
    return f"<think>{letter}</think>" * 3
