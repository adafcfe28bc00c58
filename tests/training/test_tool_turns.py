"""Completions of several turns in evaluation are those of the trainer's own loop."""

import json
import random
from pathlib import Path

import pytest
import trl.chat_template_utils as trl_templates
import trl.trainer.grpo_trainer as trl_grpo

from rlvr_vocab.cli import main
from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions
from rlvr_vocab.record.completions import sampled_flags
from rlvr_vocab.record.results import ProblemResult, read_lines
from rlvr_vocab.runs.held_out import _checkpoint
from rlvr_vocab.tools.functions import guarded_tools
from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE
from rlvr_vocab.vocab.layout import VocabLayout

PROMPTS = [[{"role": "user", "content": f"What is {number} + {number}?"}] for number in range(8)]


def length(text: str) -> str:
    """Count the characters of a text.

    Args:
        text: of any length.
    """
    if len(text) % 3 == 0:
        raise ValueError("three <think>" + "?" * len(text))
    return "</think> is " + str(len(text))


async def later(text: str) -> str:
    """Answer later.

    Args:
        text: of any length.
    """
    return text[::-1]


def parsed(tokenizer, ids, prefix=None, tools=None):
    """Any turn calls, by its ids, nothing, one tool or three of which one is unknown."""
    chance, text = random.Random(f"{ids} {len(prefix)}"), "a" * (len(ids) % 5)
    names = chance.choice([[], ["length"], ["later", "gone", "length"]])
    calls = [{"type": "function", "function": {"name": name, "arguments": {"text": text}}} for name in names]
    return {"role": "assistant", "content": "", **({"tool_calls": calls} if calls else {})}


@pytest.mark.parametrize(
    ("size", "prefill", "rounds", "limit"),
    [
        (0, "model", None, 150),
        pytest.param(None, "prefill", None, 200, marks=pytest.mark.slow),
        pytest.param(None, "model", 1, 200, marks=pytest.mark.slow),
    ],
)
def test_greedy_completions_are_those_of_the_trainer(
    size, prefill, rounds, limit, expand_shape, make_trainer, tmp_path, monkeypatch
):
    folder = expand_shape("llama", size=size, open_thinking=prefill, chat_template=CHAT_TEMPLATE)
    keys = {"max_completion_length": limit, "max_tool_calling_iterations": rounds, "per_device_train_batch_size": 8}
    trainer = make_trainer(folder, tmp_path, tools=[length, later], **keys)
    monkeypatch.setattr(trl_grpo, "parse_response", parsed)
    monkeypatch.setattr(trl_templates, "parse_response", parsed)
    # Turns of different lengths.
    ends = [trainer.processing_class.eos_token_id, *range(5, trainer.policy.layout.rows, 23)]
    for config in (trainer.generation_config, trainer.model.generation_config):
        config.eos_token_id = ends
    trainer.eos_token_ids = ends
    settings = SamplingSettings(max_new_tokens=limit, temperature=0.0)
    own = sample_completions(_checkpoint(trainer), [{"prompt": prompt} for prompt in PROMPTS], settings)

    trainer._sync_tool_dicts = [guarded_tools({"length": length})] * 8
    trainer._async_tool_dicts = [guarded_tools({"later": later})] * 8
    trainer.generation_config.do_sample = False
    trainer.sample = lambda prompt_ids, generate: generate()  # else it draws, as it records log-probabilities
    prompt_ids, completion_ids, mask, completions, *_ = trainer._generate(PROMPTS)
    for each, *of_trainer in zip(own, prompt_ids, completion_ids, mask, completions, strict=True):
        flags = [int(flag) for flag in sampled_flags(each.segments, len(each.completion_ids))]
        assert [each.prompt_ids, each.completion_ids, flags, each.messages] == of_trainer
    assert max(len(each.turns_ids) for each in own) == (3 if rounds is None else 2)


TOOL = '''
def ask(letter: str) -> str:
    """Ask for a letter.

    Args:
        letter: one
    """
    if letter.isupper():
        raise ValueError("small letters alone")
    return "\\\\boxed{3}" + letter
'''


@pytest.mark.slow
def test_evaluate_and_generate_carry_out_calls_and_record_how(calling_shape, capsys):
    Path("own.py").write_text(TOOL)
    rows = [{"problem": f"What is {number}?", "answer": "3"} for number in range(12)]
    Path("problems.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    folder = calling_shape("llama", size=None, open_thinking="prefill")
    words = [f"checkpoint={folder}", "tools=[own.py:ask]", "max_new_tokens=150", "seed=2"]
    evaluate = ["evaluate", *words, "dataset=problems.jsonl", "batch_size=4"]
    assert main([*evaluate, "out=keep"]) == 0
    results = read_lines(Path("keep/results.jsonl"), ProblemResult)
    summary = json.loads(Path("keep/summary.json").read_text())
    calls = [len(message.get("tool_calls", ())) for each in results for message in each.messages]
    given = [message["content"] for each in results for message in each.messages if message["role"] == "tool"]
    assert summary["figures"]["calls"]["estimate"] == sum(calls) / 12 and len(given) > 8
    errors = sum("small letters alone" in text for text in given)
    assert summary["figures"]["failed_calls"]["estimate"] == pytest.approx(errors / sum(calls))
    assert summary["past_thinking"] == "keep" and summary["tools"][0]["name"] == "ask"
    layout = VocabLayout.load(folder)
    for each in results:  # a tool's box is no answer, and its words are nobody's tokens
        assert each.tokens == sum(each.segments[::2]) <= len(each.completion_ids) <= 150
        assert each.answer is None and not each.right
        copies = sum(token >= layout.standard_size for token in each.completion_ids)
        assert each.reasoning_tokens == copies
    Path("keep/results.jsonl").write_bytes(b"".join(Path("keep/results.jsonl").read_bytes().splitlines(True)[:5]))
    assert main([*evaluate, "out=keep"]) == 0 and read_lines(Path("keep/results.jsonl"), ProblemResult) == results
    assert main([*evaluate, "out=keep", "past_thinking=reencode"]) == 2
    assert "past_thinking=keep (now reencode)" in capsys.readouterr().err
    # Copies that are still exact carry nothing: the same with their sources in their place.
    assert main([*evaluate, "out=reencode", "past_thinking=reencode"]) == 0
    assert read_lines(Path("reencode/results.jsonl"), ProblemResult) == results
    assert sum(each.reasoning_tokens for each in results)
    capsys.readouterr()
    assert main(["generate", *words, "prompt=What is 3?", "format=json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert len(row["messages"]) == len(row["segments"])
    assert main(["generate", *words, "prompt=What is 3?"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("tool ask") == sum(message["role"] == "tool" for message in row["messages"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["past_thinking=strip"], "past_thinking: there is nothing to call"),
        (["tools=[calculator]"], "the chat template shows no tool calls"),
    ],
)
def test_tools_that_cannot_be_used_are_refused_in_a_line(words, message, expand_shape, error_of):
    assert message in error_of("generate", f"checkpoint={expand_shape('llama', size=None)}", "prompt=a", *words)
