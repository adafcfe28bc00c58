"""A run whose prompts, template and rewards keep its model from thinking is warned, and no other."""

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.runs.model import untrained_plan
from rlvr_vocab.runs.prompts import asks_to_think, thinking_warnings
from rlvr_vocab.runs.rewards import highest_reward_template, reward_context
from rlvr_vocab.vocab.chat import assistant_turn

THINKS_AT_ONCE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}A:{END}{% endif %}"
REASONING = "model.think_tags=[<reasoning>,</reasoning>]"
XML = "dataset.system_prompt=Write <reasoning> and <answer>."


def warnings(folder: Path, *words: str) -> list[str]:
    settings = read_settings(
        "train",
        [f"model.name={folder}", "dataset=local", "dataset.name=x.jsonl", "dataset.system_prompt=Solve it.", *words],
    )
    plan = untrained_plan(settings.model, settings.seed, settings.dataset)
    system = settings.dataset.system_prompt
    prompt = [{"role": "user", "content": "6*7?"}]
    if system:
        prompt = [{"role": "system", "content": system}, *prompt]
    rows = Dataset.from_list([{"prompt": prompt, "solution": "42", "answer": "42"}] * 2)
    return list(thinking_warnings(settings, rows, plan))


@pytest.fixture
def new_to_the_tags(make_shape: Any) -> Path:
    shape = make_shape("qwen2")
    assert not shape.knows_tags
    return shape.folder


@pytest.fixture
def knows_the_tags(make_shape: Any) -> Path:
    shape = make_shape("qwen3")
    assert shape.knows_tags
    return shape.folder


def test_a_tag_that_the_model_does_not_know_and_nobody_writes_never_opens(new_to_the_tags: Path) -> None:
    words = ["model.reasoning_vocab_size=5", "dataset.open_thinking=model"]
    [line] = warnings(new_to_the_tags, *words)
    assert "<think> is new to this model, which never meets it" in line and "open_thinking=prefill" in line
    [line] = warnings(new_to_the_tags, *words, "dataset.system_prompt=Open <think> first.")
    assert "has seen it in the prompt alone" in line
    warmup = ["warmup.max_steps=3", "dataset.columns.reasoning=working"]
    assert warnings(new_to_the_tags, *words, *warmup) == []  # which makes it a token first
    assert warnings(new_to_the_tags, "model.reasoning_vocab_size=5") == []  # auto: the template writes it
    assert warnings(new_to_the_tags, "dataset.open_thinking=model") == []  # nothing is to be open


def test_a_model_that_knows_the_tag_has_to_be_told_of_it_somewhere(knows_the_tags: Path) -> None:
    [line] = warnings(knows_the_tags, "model.reasoning_vocab_size=5")
    assert "do not mention <think>" in line
    assert warnings(knows_the_tags, "model.reasoning_vocab_size=5", "dataset.system_prompt=<think>!") == []
    assert warnings(knows_the_tags, "model.reasoning_vocab_size=5", "dataset.open_thinking=prefill") == []
    warmup = ["warmup.max_steps=3", "dataset.columns.reasoning=working"]
    assert warnings(knows_the_tags, "model.reasoning_vocab_size=5", *warmup) == []
    assert warnings(knows_the_tags) == []


@pytest.mark.parametrize(
    ("end", "part"), [("<think>\\n\\n</think>", "closes the thinking before"), ("<think>\\n", None)]
)
def test_a_template_that_closes_the_thinking_at_once_is_named(
    knows_the_tags: Path, tmp_path: Path, end: str, part: str | None
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(THINKS_AT_ONCE.replace("{END}", "{{ '" + end + "' }}"))
    found = warnings(knows_the_tags, "model.reasoning_vocab_size=5", f"model.chat_template={template}")
    assert found == [] if part is None else part in found[0]


@pytest.mark.parametrize("size", [0, 5])
def test_a_format_that_no_thinking_turn_can_have_is_named_with_the_tags_that_it_wants(
    new_to_the_tags: Path, size: int
) -> None:
    """With and without copies: the template writes the opening tag in both, where that is asked for."""
    opened = "dataset.open_thinking=prefill"
    [line] = warnings(new_to_the_tags, f"model.reasoning_vocab_size={size}", "rewards=xml", opened)
    assert line.startswith("reward xml_format gives 0 to any turn that thinks between <think> and </think>")
    assert ("model.think_tags=[<reasoning>,</reasoning>]" if size else "dataset.open_thinking=model") in line


@pytest.mark.parametrize(
    "words",
    [
        ["rewards=xml", REASONING, XML],
        ["rewards=[{name:xml_format,params:{strict_newlines:true}}]", REASONING, XML],
        ["rewards=[{name:xml_format,params:{search:true}}]"],
        ["rewards=format", REASONING],
        ["rewards=[{name:xml_format,weight:0},accuracy]"],
        ["rewards=[accuracy,json_format,boxed,overlong]"],
    ],
)
def test_formats_that_a_thinking_turn_can_have_are_not_named(new_to_the_tags: Path, words: list[str]) -> None:
    assert warnings(new_to_the_tags, "model.reasoning_vocab_size=5", *words) == []


@pytest.mark.parametrize(
    ("prompt", "words", "opens"),
    [
        ("Solve it.", [], False),
        ("Solve it.", ["rewards=xml"], False),
        ("Solve it in <think> and </think>.", [], True),
        ("Solve it.", ["rewards=format"], True),
        ("Solve it.", ["rewards=[accuracy,'{mine}:my_think_format']"], True),
        ("Solve it.", ["rewards=[accuracy,'{mine}:my_xml_format']"], False),
        ("Solve it in <reasoning>.", [REASONING], True),
        ("Solve it.", ["model.reasoning_vocab_size=5"], True),
        ("Solve it in <think>.", ["dataset.open_thinking=model"], False),
    ],
)
def test_a_template_is_changed_only_for_a_run_that_is_to_think(
    new_to_the_tags: Path, tmp_path: Path, prompt: str, words: list[str], opens: bool
) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlvr_vocab.rewards import reward\n@reward(is_format=True)\n"
        "def my_think_format(completions, **kwargs):\n"
        "    return [float('<think>' in turn[0]['content']) for turn in completions]\n"
        "@reward(is_format=True)\ndef my_xml_format(completions, **kwargs):\n"
        "    return [float('</answer>' in turn[0]['content']) for turn in completions]\n"
    )
    given = [word.replace("{mine}", f"{tmp_path}/mine.py") for word in words]
    settings = read_settings(
        "train", [f"model.name={new_to_the_tags}", "dataset=local", "dataset.name=x.jsonl", *given]
    )
    row = {"prompt": [{"role": "system", "content": prompt}, {"role": "user", "content": "6*7?"}], "solution": "42"}
    thinks = asks_to_think([row["prompt"]], settings.model.think_tags, settings.rewards, row)
    plan = untrained_plan(settings.model, settings.seed, settings.dataset, thinks)
    text = plan.tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    assert text.endswith(f"{settings.model.think_tags[0]}\n") is opens


@pytest.mark.parametrize(
    ("function", "named"),
    [("strict_format", True), ("soft_format", False), ("undeclared", False), ("unknown_form", False)],
)
def test_a_format_reward_of_ones_own_is_tried_alike(
    new_to_the_tags: Path, tmp_path: Path, function: str, named: bool
) -> None:
    (tmp_path / "mine.py").write_text(
        r"""
import re
from rlvr_vocab.rewards import reward
FORM = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
@reward(is_format=True)
def strict_format(completions, answer, **kwargs):
    return [1.0 if re.match("^" + FORM, turn[0]["content"], re.DOTALL) else -0.5 for turn in completions]
@reward(is_format=True)
def soft_format(completions, **kwargs):
    return [1.0 if re.search(FORM, turn[0]["content"], re.DOTALL) else 0.0 for turn in completions]
def undeclared(completions, answer, **kwargs):
    return strict_format(completions, answer)
@reward(is_format=True)
def unknown_form(completions, **kwargs):
    return [float("ANSWER:" in turn[0]["content"]) for turn in completions]
"""
    )
    reward = f"rewards=['{tmp_path}/mine.py:{function}']"
    found = warnings(new_to_the_tags, "model.reasoning_vocab_size=5", reward)
    assert [f"reward {function} gives" in line for line in found] == [True] * named
    assert warnings(new_to_the_tags, "model.reasoning_vocab_size=5", reward, REASONING, XML) == []


@pytest.mark.parametrize("recipe", ["gsm8k_xml", "gsm8k_xml_reasoning"])
def test_a_good_turn_has_full_marks_in_the_xml_recipes_and_thinks_where_there_are_copies(
    recipe: str, new_to_the_tags: Path
) -> None:
    copies = recipe == "gsm8k_xml_reasoning"
    words = [f"experiment={recipe}", f"model.name={new_to_the_tags}", *["model.reasoning_vocab_size=50"] * copies]
    settings = read_settings("train", words)
    plan = untrained_plan(settings.model, settings.seed, settings.dataset)
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "6*7?"}], "solution": "42"}])
    assert list(thinking_warnings(settings, rows, plan)) == []
    prompt = plan.tokenizer.apply_chat_template(rows[0]["prompt"], add_generation_prompt=True, return_dict=False)
    opened = "<reasoning>\n" * (not copies)  # else by the template
    said = plan.tokenizer.encode(f"{opened}6*7 is 42.\n</reasoning>\n<answer>\n42\n</answer>")
    assert (said.count(plan.layout.think_close_id) == 1) is copies  # else it is spelled, and no think tag
    turn = assistant_turn(plan.tokenizer, plan.layout, prompt, said)
    rewards = build_rewards(settings.rewards.functions, reward_context(settings))
    scores = {each.name: each(completions=[turn], solution=["42"]) for each in rewards}
    assert scores == {"xml_tags": [0.5], "xml_format": [1.0], "accuracy": [1.0]}


@pytest.mark.parametrize(
    ("words", "turn"),
    [
        (["rewards=xml"], "<reasoning>\n6*7\n</reasoning>\n<answer>\n42\n</answer>"),
        ([REASONING], "<reasoning>6*7</reasoning>\\boxed{42}"),
        ([], "<think>6*7</think>\\boxed{42}"),
    ],
)
def test_a_warm_up_shows_worked_answers_in_the_form_that_the_rewards_want(words: list[str], turn: str) -> None:
    settings = read_settings("train", ["model=tiny", "dataset=arithmetic", *words])
    rows = Dataset.from_list([{"prompt": [], "problem": "6 * 7", "solution": "42", "answer": "42"}])
    assert highest_reward_template(settings, rows).format(reasoning="6*7", answer="42") == turn
