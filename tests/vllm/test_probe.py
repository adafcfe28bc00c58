"""`probe backend=vllm`: what an engine samples after a thought follows the policy, and the seed that it is given."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from benchmarks.probe_controls.planted_channel import train_planted
from rlvr_vocab.cli import main
from rlvr_vocab.evaluation.sampling import SamplingSettings
from rlvr_vocab.evaluation.vllm_sampling import vllm_continuations
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import ANSWERING, THINKING, scored_regions
from rlvr_vocab.vocab.tokenizer import chat_ids, load_tokenizer


@pytest.fixture(autouse=True)
def small_engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled, and what an engine leaves in its process is cleared: a command has a process of its own."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    monkeypatch.setattr("vllm.LLM", partial(LLM, enforce_eager=True))
    yield
    cleanup_dist_env_and_memory()


def test_what_follows_a_thought_keeps_the_policy_and_its_seed(chatty_smollm2: Callable[[str], Path]) -> None:
    folder = chatty_smollm2("expand")
    layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
    [asked] = chat_ids(tokenizer, [[{"role": "user", "content": "What is 3 + 4?"}]])
    unfinished = [*asked, layout.think_open_id, *tokenizer.encode("3 + 4", add_special_tokens=False)]
    finished = [*unfinished, layout.think_close_id]
    prompts = [unfinished, finished] * 60  # more tokens than vLLM takes in one step by itself
    assert sum(map(len, prompts)) > 2048
    uniforms = list(np.random.default_rng(0).random((len(prompts), 8, 2)))
    with vllm_continuations(folder, layout, len(finished), SamplingSettings(max_new_tokens=8)) as sample:
        found = sample(prompts, uniforms)
        assert sample(prompts[:4], uniforms[:4]) == found[:4]
    assert len({tuple(ids) for ids in found}) > 10
    reasoning = {THINKING: 0, ANSWERING: 0}
    for prompt, ids in zip(prompts, found, strict=True):
        regions = scored_regions(torch.tensor([[*prompt, *ids]]), layout)[0, len(prompt) :].tolist()
        for token, region in zip(ids, regions, strict=True):
            reasoning[region] += token >= layout.standard_size
    assert reasoning[THINKING] > 0 and reasoning[ANSWERING] == 0


@pytest.mark.slow
def test_a_planted_channel_is_found_whatever_samples(tmp_path: Path) -> None:
    run = tmp_path / "planted"
    assert train_planted(1, ["report=false", "dataset.max_eval_samples=60", f"output_dir={run}"], steps=400) == 0
    asked = ["probe", f"run={run}", "backend=vllm", "arms=[transplanted]", "draws=2"]
    assert main([*asked, "permutations=4"]) == 0
    found = json.loads((run / "probe" / "probe.json").read_text())
    assert found["verdict"] == "carries meaning" and found["contrasts"]["donor"]["low"] > 0
    assert json.loads((run / "probe" / "settings.json").read_text())["backend"] == "vllm"
    assert main([*asked, "permutations=8"]) == 0  # scored by the model alone
