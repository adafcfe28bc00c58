"""`rlvr-vocab check`: the distribution of answers, and of the kinds of problems."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.commands.check.distribution import distribution, distribution_lines
from rlvr_vocab.data.rows import Problem
from rlvr_vocab.data.source import Columns


def test_the_distribution_of_answers_and_kinds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answers = ["7"] * 50 + ["1,000"] * 25 + [str(number) for number in range(11, 25)] + ["none"] * 11
    kinds = {"level": [1, 2, 2, 3, None], "source": ["[red]x", "y", "y", "y", "y"], "tags": [["a"]], "one": ["same"]}
    rows = [
        {"question": f"Problem {number}?", "result": answer, "id": f"p{number}"}
        | {name: values[number % len(values)] for name, values in kinds.items()}
        for number, answer in enumerate(answers)
    ]
    out = tmp_path / "check.json"
    problems = tmp_path / "kinds.jsonl"
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = ["dataset.columns.problem=question", "dataset.columns.answer=result"]
    assert main(["check", "dataset=local", *columns, f"dataset.name={problems}", f"out={out}"]) == 0
    shown = capsys.readouterr().out.split("\nDistribution\n")[1].split("\n\n")[0]
    assert " ".join(shown.split()).startswith(
        "100 answers, 17 different: 7 (50, 50.0%), 1,000 (25, 25.0%), none (11, 11.0%), 11 (1, 1.0%), 12 (1, 1.0%), … "
        "the same answer to every problem would be right for 50.0% "
        "89% are numbers: smallest 7, quartiles 7, 7 and 1,000, largest 1,000 "
        "level: 2 (40, 40.0%), 1 (20, 20.0%), 3 (20, 20.0%), (missing) (20, 20.0%) "
        "source: y (80, 80.0%), [red]x (20, 20.0%)"
    )
    facts = json.loads(out.read_text())["distribution"]
    assert facts["quartiles"] == [7, 7, 7, 1000, 1000] and facts["kinds"]["source"] == {"y": 80, "[red]x": 20}
    assert facts["most_frequent"][0] == ["7", 50] and (facts["different"], facts["numbers"]) == (17, 89)


def test_answers_that_are_no_text_or_not_there_have_a_distribution_too() -> None:
    columns = Columns(problem="q", answer="a", reasoning=None)
    golds: list[Any] = [{"x": 1}, {"x": 1}, [1, 2], 3.5, None, " "]
    problems = [Problem("?", gold, {"q": "?", "a": gold}, row) for row, gold in enumerate(golds, start=1)]
    found = distribution(problems, columns)
    assert found.most_frequent == (('{"x": 1}', 2), ("[1, 2]", 1), ("3.5", 1)) and found.num_answers == 4
    assert list(distribution_lines(distribution(problems[4:], columns))) == ["no problem has an answer"]
