"""`rlvr-vocab check` on chat messages, on sets without answers, and on answers that are no text."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.cli import main


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def check(capsys: pytest.CaptureFixture[str], path: Path, *words: str) -> str:
    """What the command shows of a file, as one text."""
    assert main(["check", "dataset=local", f"dataset.name={path}", "dataset.eval_fraction=0", *words]) == 0
    return capsys.readouterr().out


def section(shown: str, title: str) -> list[str]:
    """The lines below a title."""
    return shown.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()


def chat(text: str, system: str = "Be brief.") -> dict[str, Any]:
    return {"prompt": [{"role": "system", "content": system}, {"role": "user", "content": text}]}


def test_chat_messages_without_answers_are_checked_against_chat_messages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [chat(f"Write a poem about {number}, please.") for number in range(150)]
    rows += [chat("write a poem about 7 please", "Be long."), {"prompt": [{"role": "assistant", "content": "Hi"}]}]
    file = write_rows(tmp_path / "chat.jsonl", rows)
    other = [chat("Write a poem about 3, please.", "Another."), {"prompt": "Other?"}]
    test = write_rows(tmp_path / "test.jsonl", other)
    words = ["dataset.columns.problem=prompt", "dataset.columns.answer=null"]
    shown = check(capsys, file, *words, f"against={test}", "model=tiny", f"out={tmp_path}/facts.json")
    assert section(shown, "Rows")[2:5] == [
        "  read as: problem = prompt; dataset.columns.answer=null: without gold answers",
        f"  {section(shown, 'Rows')[3].strip()}",
        "  dropped 1: the last message is not the user's (row 152: {'role': 'assistant', 'content': 'Hi'})",
    ]
    assert "-> " not in section(shown, "Rows")[3]
    assert section(shown, "Repeated problems")[:2] == [
        "  1 problem in 2 rows: 1 row more than one each",
        "  rows 8 and 151: Write a poem about 7, please.",
    ]
    assert "contradict" not in shown
    assert section(shown, "Gold answers")[0] == "  none: dataset.columns.answer=null; rewards that need one are refused"
    assert "1 of 2 problems (50.0%) found in training: 1 the same" in shown
    assert "Be brief." in shown and "Write a poem about" in shown.split("One prompt, as the model sees it")[1]
    assert json.loads((tmp_path / "facts.json").read_text())["golds"]["num_golds"] == 0


def test_gold_answers_that_are_no_text_are_of_no_use_to_accuracy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    golds: list[Any] = [[1, 2], {"a": 1}, True, 72.0, "5"]
    rows = [{"problem": f"Which, {gold}?", "answer": gold} for gold in golds]
    shown = check(capsys, write_rows(tmp_path / "golds.jsonl", rows))
    assert section(shown, "Gold answers") == [
        "  3 of 5 are of no use to the verifier; training with accuracy leaves them out:",
        "    3: a list, an object or a boolean, which cannot be compared as text "
        '(row 1: [1, 2]; row 2: {"a": 1}; row 3: true)',
    ]
    assert "3 gold answers of no use to the verifier: mend" in shown


def test_a_column_of_lists_leaves_accuracy_nothing_as_training_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [{"problem": f"Roots of x^2-{n}x?", "answer": [0, n]} for n in range(120)]
    shown = check(capsys, write_rows(tmp_path / "golds.jsonl", rows))
    assert "1. 120 gold answers of no use to the verifier, and accuracy has no other" in shown


def test_answers_to_choices_elsewhere_are_no_contradiction(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = [f"Which of these is {way} prime?" for way in ("a", "no", "an odd", "an even")]
    rows = [{"problem": asked[n % 4], "choices": [str(n), "4", "6"], "answer": n % 3} for n in range(11, 131)]
    path = write_rows(tmp_path / "choices.jsonl", rows)
    advice = section(check(capsys, path, "dataset.eval_fraction=0"), "Before training")
    assert any("column choices: not in the prompt" in line for line in advice)
    assert not any("contradict" in line or "repeat" in line for line in advice)
