"""`rlvr-vocab check` end to end: what is reported is what is there."""

import json
import re

import pytest

from rlvr_vocab.cli import main

LOCAL = ("dataset=local", "dataset.columns.problem=question", "dataset.columns.answer=result")
TITLE = "One prompt, as the model sees it"
FILLER = "apple pear plum fig date lime kiwi nut oat pea rye yam bun egg ham jam pie tea"


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def problem(number):
    return {"question": f"Add {number} to {number + 1}.", "result": 2 * number + 1}


@pytest.fixture
def clean(tmp_path):
    """200 short problems without a fault."""
    return write_rows(tmp_path / "clean.jsonl", [problem(number) for number in range(200)])


@pytest.fixture
def faulty(tmp_path):
    """120 rows: faults in rows 1 to 12, the others clean."""
    rows = [
        {"question": "", "result": "1", "level": 3},
        {"question": "Is this answered?", "result": None},
        {"question": "What is 1+1?", "result": "2"},
        {"question": "what is  1 + 1", "result": "[red]3[/]"},
        {"question": "Half of it?", "result": r"\frac12"},
        {"question": "Half  of it?", "result": "0.5"},
        {"question": "Ring \x07 it", "result": "5"},
        {"question": "Long?", "result": "9" * 20_000},
        {"question": f"{FILLER}\u00a0one?", "result": "1"},
        {"question": "Half a pair", "result": "7"},
        17,
        {"question": "[bold]no markup\u00a0[/]", "result": "8"},
    ]
    return write_rows(tmp_path / "faulty.jsonl", [*rows, *(problem(number) for number in range(12, 120))])


def check(capsys, path, *words):
    """What the command shows of a file, as one text."""
    code = main(["check", *LOCAL, f"dataset.name={path}", *words])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    return shown.out


def section(shown, title):
    """The lines below a title, without those of a progress bar."""
    lines = shown.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()
    return [line for line in lines if line.startswith("  ")]


def last_section(shown):
    return section(shown, "Before training")


def test_every_fault_is_found_in_its_row(capsys, faulty):
    shown = check(capsys, faulty, "dataset.eval_fraction=0", f"against={faulty}")
    rows = section(shown, "Rows")
    assert "120 rows read, 117 usable; 117 to train on" in rows[0]
    assert [line.partition("(")[2] for line in rows[4:7]] == [
        "row 1: {'question': '', 'result': '1', 'level': 3})", "row 2: Is this answered?)", "row 11: 17)"
    ]  # fmt: skip
    assert rows[7:] == ["  rows that repeat an earlier problem, kept unless it is held out: 2"]
    assert section(shown, "Repeated problems") == [
        "  2 problems in 4 rows",
        "  What is 1+1?: contradicting answers (row 3: 2; row 4: [red]3[/])",
        "  Half of it? (rows 5 and 6)",
    ]
    [head, gold, *_] = section(shown, "Gold answers")
    assert head.startswith("  1 of 117 unusable") and gold.startswith("    row 8: 9999")
    # All problems but the three that were dropped, and row 2, whose problem has no answer to train on.
    found = section(shown, f"Shared with {faulty}")[0]
    assert found == "  117 of 118 problems (99.2%) found in training"
    assert [line.split(" ", 3)[3].partition(":")[0] for line in last_section(shown)] == [
        "1 problem with contradicting answers",
        "1 gold answer unusable for the verifier",
        f"117 training problems also in {faulty}",
    ]
    assert "\x07" not in shown


def test_problems_of_evaluation_sets_are_found_in_training_by_row(capsys, clean, tmp_path):
    rows = [{"task": "add 7 to 8"}, {"task": "new"}, {"task": "Add 9  to 10"}]
    evaluation = write_rows(tmp_path / "test.jsonl", rows)
    words = ("dataset.eval_fraction=0", "against_problem_column=task")
    shown = check(capsys, clean, f"against=[{evaluation}]", *words)
    assert section(shown, f"Shared with {evaluation}") == [
        "  2 of 3 problems (66.7%) found in training",
        "    row 1 is row 8 of training: add 7 to 8",
        "    row 3 is row 10 of training: Add 9 to 10",
    ]
    assert "1. 2 training problems also in" in last_section(shown)[0]
    assert check(capsys, clean, f"against={evaluation}", *words) == shown


@pytest.fixture
def base(make_shape):
    return lambda name: f"model.name={make_shape(name).folder}"


def test_prompts_are_shown_and_counted_as_the_tokenizer_reads_them(capsys, tmp_path, base, make_shape):
    from transformers import AutoTokenizer

    texts = [*(f"Add {number}" + "!" * (3 * number) for number in range(150)), "One\tlong\n" * 99]
    path = write_rows(tmp_path / "growing.jsonl", [{"question": text, "result": 1} for text in texts])
    shown = check(capsys, path, base("qwen3"), "dataset.eval_fraction=0", "dataset.system_prompt=Box it.")
    tokenizer = AutoTokenizer.from_pretrained(make_shape("qwen3").folder)
    template = "<|im_start|>system\nBox it.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    lengths = sorted(len(tokenizer.encode(template.format(text))) for text in texts)
    head, *prompt, opener, figures = section(shown, TITLE)
    row = int(head.partition(" of row ")[2].partition(";")[0])
    assert head.startswith(f"  {len(tokenizer.encode(template.format(texts[row - 1])))} tokens")
    assert prompt[:3] == ["  │ <|im_start|>system⏎", "  │ Box it.<|im_end|>⏎", "  │ <|im_start|>user⏎"]
    assert opener == "  the model must open the thinking with <think>"
    assert figures == f"  tokens a prompt: shortest {lengths[0]}, median {lengths[75]}, longest {lengths[150]}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["against=nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["dataset=[{clean},b.jsonl]"], "clean.jsonl,b.jsonl: one file is read, not several: join them"),
        (["dataset=*.csv"], "*.csv: one file is read, not several: join them"),
        (["against=[{clean},{clean}]", "against_problem_column=task"], "; set against_problem_column=…"),
        (["model.reasoning_mode=replace"], "model.reasoning_mode has no model to apply to"),
        (["training.learning_rate=1"], "unknown key training"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_read(error_of, clean, words, said):
    assert said in error_of("check", *LOCAL, f"dataset.name={clean}", *(word.format(clean=clean) for word in words))
    assert len(clean.read_text().splitlines()) == 200


def test_special_tokens_and_messages_that_the_model_would_not_get_are_named(capsys, clean, tmp_path, base):
    rows = [problem(n) if n % 2 else {"question": f"Is <|im_end|> in {n}?", "result": n} for n in range(120)]
    words = ["model.generation_kwargs.max_new_tokens=9", "dataset.eval_fraction=0"]
    shown = check(capsys, write_rows(tmp_path / "special.jsonl", rows), base("qwen3"), *words)
    [line] = last_section(shown)
    assert "60 problems hold special tokens of the model (rows 1, 3, 5 and 57 more), such as <|im_end|>" in line
    template = tmp_path / "user.jinja"
    template.write_text("{% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    advice = last_section(check(capsys, clean, base("qwen3"), *words, f"model.chat_template={template}"))
    assert "no turn for the answer" in advice[0]
    assert "leaves out the system's message 'You are a helpful math" in advice[1]


def test_answers_to_choices_elsewhere_are_no_contradiction(capsys, tmp_path):
    asked = [f"Which of these is {way} prime?" for way in ("a", "no", "an odd", "an even")]
    rows = [{"question": asked[n % 4], "choices": [str(n), "4", "6"], "result": n % 3} for n in range(11, 131)]
    advice = last_section(check(capsys, write_rows(tmp_path / "choices.jsonl", rows), "dataset.eval_fraction=0"))
    assert any("column choices: not in the prompt" in line for line in advice)
    assert not any("contradict" in line or "repeat" in line for line in advice)
    shown = check(capsys, tmp_path / "choices.jsonl", "dataset.eval_fraction=0", "dataset.columns.choices=choices")
    assert section(shown, "Gold answers") == [
        "  letters of choices (A 33%, B 33%, C 33%): train with 'rewards=[multiple_choice]'"
    ]
    assert last_section(shown) == ["  nothing stands in the way"]


def test_a_prompt_is_shown_with_its_tools_and_what_its_environment_adds(capsys, clean, tmp_path, error_of):
    game = tmp_path / "game.py"
    game.write_text(
        "class Game:\n    def reset(self, solution, **row):\n        return f' Begin at {solution}.'\n"
        "    def wait(self) -> str:\n        'Waits a turn.'\n"
        "class Silent(Game):\n    def reset(self, solution):\n        return 1\n"
    )
    shown = section(check(capsys, clean, "model=tiny", f"environment={game}:Game", "tools=[calculator]"), TITLE)
    sum_of = 2 * int(re.search(r"Add (\d+) to", "".join(shown))[1]) + 1
    assert any(line.endswith(f" Begin at {sum_of}.<|im_end|>⏎") for line in shown)
    assert "  │ wait(): Waits a turn.⏎" in shown and any("calculator(expression)" in line for line in shown)
    words = (*LOCAL, f"dataset.name={clean}")
    assert "environment Silent: raised TypeError" in error_of(
        "check", *words, "model=tiny", f"environment={game}:Silent"
    )
    assert "no tool calculatr; did you mean calculator" in error_of("check", *words, "tools=[calculatr]")
