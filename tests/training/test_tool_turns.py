"""Completions of several turns in evaluation are those of the trainer's own loop."""

import random

import pytest
import trl.chat_template_utils as trl_templates
import trl.trainer.grpo_trainer as trl_grpo

from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions
from rlvr_vocab.record.completions import sampled_flags
from rlvr_vocab.runs.held_out import _checkpoint
from rlvr_vocab.tools.functions import guarded_tools
from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE

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
    ends = [trainer.tokenizer.eos_token_id, *range(5, trainer.policy.layout.rows, 23)]  # turns of different lengths
    for config in (trainer.generation_config, trainer.model.generation_config):
        config.eos_token_id = ends
    trainer.eos_token_ids = ends
    settings = SamplingSettings(max_new_tokens=limit, temperature=0.0)
    own = sample_completions(_checkpoint(trainer), PROMPTS, settings)

    trainer._sync_tool_dicts = [guarded_tools({"length": length})] * 8
    trainer._async_tool_dicts = [guarded_tools({"later": later})] * 8
    trainer.generation_config.do_sample = False
    trainer.sample = lambda prompt_ids, generate: generate()  # else it draws, as it records log-probabilities
    prompt_ids, completion_ids, mask, completions, *_ = trainer._generate(PROMPTS)
    for each, *of_trainer in zip(own, prompt_ids, completion_ids, mask, completions, strict=True):
        flags = [int(flag) for flag in sampled_flags(each.segments, len(each.completion_ids))]
        assert [each.prompt_ids, each.completion_ids, flags, each.messages] == of_trainer
    assert max(len(each.turns_ids) for each in own) == (3 if rounds is None else 2)
