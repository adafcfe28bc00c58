"""A run whose prompts, template and rewards keep its model from thinking is warned, and no other."""

from pathlib import Path

import pytest
from datasets import Dataset

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.runs.model import expansion_plan
from rlvr_vocab.runs.problems import asks_to_think, thinking_warnings

THINKS_AT_ONCE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}A:{END}{% endif %}"
COPIES = "model.reasoning_vocab_size=5"
REASONING = "model.think_tags=[<reasoning>,</reasoning>]"
XML = "dataset.system_prompt=Write <reasoning> and <answer>."
WARMUP = ("warmup.max_steps=3", "dataset.columns.reasoning=working")
OWN = r"""
import re
from rlvr_vocab.rewards import reward
FORM = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
@reward(is_format=True)
def strict_format(completions, answer, **kwargs):
    return [1.0 if re.match("^" + FORM, turn[0]["content"], re.DOTALL) else -0.5 for turn in completions]
@reward(is_format=True)
def soft_format(completions, **kwargs):
    return [1.0 if re.search(FORM, turn[0]["content"], re.DOTALL) else 0.0 for turn in completions]
@reward(is_format=True)
def unknown_form(completions, **kwargs):
    return [float("ANSWER:" in turn[0]["content"]) for turn in completions]
@reward(is_format=True)
def prefers_plain(completions, **kwargs):
    return [0.5 if '<think>' in turn[0]['content'] else 1.0 for turn in completions]
@reward(is_format=True)
def my_think_format(completions, **kwargs):
    return [float('<think>' in turn[0]['content']) for turn in completions]
"""


@pytest.fixture(autouse=True)
def in_a_folder_with_rewards():
    Path("mine.py").write_text(OWN)


def warnings(folder, *words):
    given = [f"model.name={folder}", "dataset=local", "dataset.name=x.jsonl", "dataset.system_prompt=Solve it."]
    settings = read_settings("train", [*given, *words])
    plan = expansion_plan(settings.model, settings.seed, settings.dataset)
    roles = (("system", settings.dataset.system_prompt), ("user", "6*7?"))
    prompt = [{"role": role, "content": content} for role, content in roles if content]
    rows = Dataset.from_list([{"prompt": prompt, "solution": "42", "answer": "42"}] * 2)
    return list(thinking_warnings(settings, rows, plan))


@pytest.fixture
def new_to_the_tags(make_shape):
    return make_shape("qwen2").folder


def test_a_tag_that_the_model_does_not_know_and_nobody_writes_never_opens(new_to_the_tags):
    words = [COPIES, "dataset.open_thinking=model"]
    [line] = warnings(new_to_the_tags, *words)
    assert "<think> is new to this model" in line and "open_thinking=prefill" in line
    assert warnings(new_to_the_tags, *words, *WARMUP) == []  # which makes it a token first
    assert warnings(new_to_the_tags, COPIES) == []  # auto: the template writes it
    assert warnings(new_to_the_tags, "dataset.open_thinking=model") == []  # nothing is to be open


def test_a_model_that_knows_the_tag_has_to_be_told_of_it_somewhere(make_shape, tmp_path):
    folder, template = make_shape("qwen3").folder, tmp_path / "chat.jinja"
    [line] = warnings(folder, COPIES)
    assert "no template mentions <think>" in line
    for words in (["dataset.system_prompt=<think>!"], ["dataset.open_thinking=prefill"], WARMUP):
        assert warnings(folder, COPIES, *words) == []
    assert warnings(folder) == []
    template.write_text(THINKS_AT_ONCE.replace("{END}", "<think>\n\n</think>"))
    [line] = warnings(folder, COPIES, f"model.chat_template={template}")
    assert "closes the thinking at once" in line


@pytest.mark.parametrize(
    ("reward", "words", "named"),
    [
        ("xml", [], "xml_format"),
        ("xml", [REASONING, XML], None),
        ("[{name:xml_format,weight:0},accuracy]", [], None),
        ("[mine.py:strict_format]", [], "strict_format"),
        ("[mine.py:strict_format]", [REASONING, XML], None),
        ("[mine.py:soft_format]", [], None),
        ("[mine.py:prefers_plain]", [], None),
        ("[mine.py:unknown_form]", [], None),
    ],
)
def test_a_format_that_no_thinking_turn_can_have_is_named(reward, words, named, new_to_the_tags):
    found = warnings(new_to_the_tags, COPIES, f"rewards={reward}", *words)
    assert [line.split()[1] for line in found] == ([named] if named else [])
    assert not named or "model.think_tags" in found[0]


@pytest.mark.parametrize(
    ("prompt", "words", "opens"),
    [
        ("Solve it.", ["rewards=xml"], False),
        ("Solve it in <think> and </think>.", [], True),
        ("Solve it.", ["rewards=format"], True),
        ("Solve it.", ["rewards=[accuracy,mine.py:my_think_format]"], True),
        ("Solve it.", ["rewards=[accuracy,mine.py:soft_format]"], False),
        ("Solve it.", [COPIES], True),
        ("Solve it in <think>.", ["dataset.open_thinking=model"], False),
    ],
)
def test_a_template_is_changed_only_for_a_run_that_is_to_think(new_to_the_tags, prompt, words, opens):
    given = [f"model.name={new_to_the_tags}", "dataset=local", "dataset.name=x.jsonl", *words]
    settings = read_settings("train", given)
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": "6*7?"}]
    tags = settings.model.think_tags
    thinks = asks_to_think([messages], tags, settings.rewards, {"prompt": messages, "solution": "42"})
    plan = expansion_plan(settings.model, settings.seed, settings.dataset, thinks=thinks)
    text = plan.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.endswith(f"{tags[0]}\n") is opens
