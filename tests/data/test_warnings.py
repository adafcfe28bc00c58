"""What would not reach the model as it is meant is named, and nothing is said of sets that are as they should be."""

import json

import pytest

from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split

CHOICES = ["oxygen", "helium", "neon", "argon"]
TURNS = (
    "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
    "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "[INST] <<SYS>>\nAdd.\n<</SYS>>\n\n{} [/INST]",
    "<｜begin▁of▁sentence｜><｜User｜>{}<｜Assistant｜>",
    "### Instruction:\n{}\n\n### Response:\n",
    "\n\nHuman: {}\n\nAssistant:",
    "USER: {} ASSISTANT:",
)
MESSAGES = (
    '[{{"role": "user", "content": "{}"}}]',
    "[{{'content': '{}', 'role': 'user'}}]",
    "array([{{'content': '{}', 'role': 'user'}}], dtype=object)",
    '{{"messages": [{{"role": "user", "content": "{}"}}]}}',
    '{{"role": "user", "content": "{}"}}',
)


def divided(write_jsonl, *rows):
    source = ProblemSource(str(write_jsonl(*rows)), Columns("problem", "answer"))
    return read_problems(source, Split(eval_fraction=0))


def row(number, problem="", **more):
    return {"problem": problem or f"Which gas has number {number}?", "answer": more.pop("answer", str(number)), **more}


@pytest.mark.parametrize(
    ("form", "what"), [(form, "rendered") for form in TURNS] + [(form, "written as text") for form in MESSAGES]
)
def test_turns_and_messages_in_the_text_of_a_problem_are_named_by_row(write_jsonl, form, what):
    rows = [row(1), *(row(n, form.format(f"{n}+1=")) for n in (2, 3))]
    [line] = divided(write_jsonl, *rows).warnings()
    assert line.startswith("2 problems are ") and what in line and "(rows 2 and 3)" in line


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"choices": CHOICES}, "choices"),
        ({"options": {"text": CHOICES, "label": list("ABCD")}}, "options"),
        (dict(zip("ABCD", CHOICES, strict=True)), "A, B, C, D"),
        ({f"option_{n}": text for n, text in enumerate(CHOICES)}, "option_0, option_1, option_2, option_3"),
        ({"Body": "Ada has 3 gases."}, "Body"),
        ({"image": {"path": "gas.png"}}, "image"),
    ],
)
def test_a_column_that_the_question_needs_and_the_prompt_lacks_is_named(write_jsonl, more, named):
    [line] = divided(write_jsonl, *(row(n, answer="neon", **more) for n in range(8))).warnings()
    assert f" {named}: not in the prompt" in line


@pytest.mark.parametrize(
    "more",
    [
        {"problem": "What does the token <|im_end|> do?"},
        {"problem": "Assistant: a job. Which word is it?"},
        {"problem": "[{1, 2}, {3}] has how many elements?"},
        {"problem": [{"role": "user", "content": "1+1="}]},
        {"problem": "Which of oxygen, helium, neon and  argon?", "choices": CHOICES, "A": "oxygen", "B": "neon"},
        {"problem": "Which of oxygen, helium, neon and argon?", "choices": json.dumps(CHOICES)},
        {"problem": "Neon glows.\nWhy?", "context": "Neon  glows."},
        {"context": None, "image": None, "choices": []},
        {"solution": "Neon.", "rationale": "It glows.", "source": "exam", "type": "gas", "a": "4", "level": 3},
        {
            "problem": [{"role": "system", "content": "Neon glows."}, {"role": "user", "content": "Why?"}],
            "context": "Neon glows.",
        },
    ],
)
def test_other_problems_and_columns_that_the_prompt_has_or_no_question_needs_are_not_named(write_jsonl, more):
    assert divided(write_jsonl, *({**row(n), **more} for n in range(1, 9))).warnings() == []


def test_a_column_that_few_questions_lack_is_not(write_jsonl):
    rows = [row(n, f"{n}. {'Neon glows. ' * (n > 2)}Why?", context="Neon glows.") for n in range(8)]
    assert divided(write_jsonl, *rows).warnings() == []


@pytest.mark.parametrize(
    ("golds", "choices", "are_indices"),
    [([0, 3, 1], CHOICES, True), (["1", "4", "2"], CHOICES, True), ([3, 5, 2], ["2", "3", "5"], False)],
)
def test_gold_answers_that_are_indices_of_choices_are_named(write_jsonl, golds, choices, are_indices):
    problem = f"Which of {' or '.join(choices)}?"  # in the prompt or not
    rows = [row(n, f"{n}. {problem}", answer=gold, choices=choices) for n, gold in enumerate(golds)]
    assert any("are their indices" in line for line in divided(write_jsonl, *rows).warnings()) is are_indices


def test_a_system_prompt_that_no_row_takes_is_said(write_jsonl):
    own = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1="}]
    style = PromptStyle("Box it.")
    assert "system_prompt is not used" in divided(write_jsonl, row(1, own)).account(style)[-1]
    for rows, other in (([row(1, own), row(2)], style), ([row(1, own)], PromptStyle(None)), ([row(1, own[1:])], style)):
        assert "system_prompt is not used" not in divided(write_jsonl, *rows).account(other)[-1]
