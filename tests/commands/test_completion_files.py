"""Completions come out of files of any kind as training would hand them over, or are refused with row and reason."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlvr_vocab.commands.score.rows import ScoredRows
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.completion_files import CompletionSource, check_completions, read_completions

ROWS = [
    {"prompt": "6*7?", "completion": "\\boxed{42}", "solution": "42", "level": "easy"},
    {"prompt": "1+1?", "completion": "\\boxed{3}", "solution": "2", "level": "hard"},
]
FORMATS = {
    "rows.jsonl": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "rows.json": lambda path: path.write_text(json.dumps(ROWS)),
    "rows.csv": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False),
    "rows.tsv": lambda path: pd.DataFrame(ROWS).to_csv(path, index=False, sep="\t"),
    "rows.parquet": lambda path: pd.DataFrame(ROWS).to_parquet(path),
}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, most: int | None = None, keep_ids: bool = True, **columns: Any) -> tuple[ScoredRows, list[str]]:
    return read_completions(CompletionSource(path, **columns), most, keep_ids)


def turn(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def refusal(path: Path, **columns: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(path, **columns)
    return str(caught.value)


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_file_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    rows, notes = read(tmp_path / name)
    assert rows.completions == [turn("\\boxed{42}"), turn("\\boxed{3}")]
    assert rows.prompts == [[{"role": "user", "content": "6*7?"}], [{"role": "user", "content": "1+1?"}]]
    assert rows.columns == {"solution": ["42", "2"], "level": ["easy", "hard"], "answer": ["42", "2"]}
    assert rows.places == [{"row": 1}, {"row": 2}] and notes == []


def test_columns_go_by_the_names_that_are_given(tmp_path: Path) -> None:
    path = written(
        tmp_path / "r.jsonl", {"question": "q", "response": "r", "expert_answer": "#### 1,000", "answer": "a"}
    )
    columns = {"completion": "response", "prompt": "question", "solution": "expert_answer", "answer_format": "hash"}
    rows, _ = read(path, **columns)
    assert rows.completions == [turn("r")] and rows.prompts == [[{"role": "user", "content": "q"}]]
    assert rows.columns == {"expert_answer": ["#### 1,000"], "answer": ["a"], "solution": ["1000"]}


def test_without_a_solution_the_answer_is_the_gold_answer_and_without_both_there_is_none(tmp_path: Path) -> None:
    rows, _ = read(written(tmp_path / "a.jsonl", {"completion": "c", "answer": 0.5}))
    assert rows.columns == {"answer": [0.5], "solution": ["0.5"]}
    rows, _ = read(written(tmp_path / "b.jsonl", {"completion": "c"}))
    assert rows.columns == {} and rows.prompts is None


def test_messages_stay_messages(tmp_path: Path) -> None:
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}, {"role": "tool", "content": None}]
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    rows, _ = read(written(tmp_path / "m.jsonl", {"completion": parts, "prompt": prompt}, {"completion": []}))
    assert rows.completions == [parts, []] and rows.prompts == [prompt, None]


def test_what_is_missing_is_counted_and_scored_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("completion,solution\n\\boxed{1},1\n,2\n\\boxed{3}\n")
    rows, notes = read(path)
    assert rows.completions == [turn("\\boxed{1}"), turn(""), turn("\\boxed{3}")]
    assert rows.columns["solution"] == ["1", "2", None]
    assert notes == ["rows without a gold answer in the column solution: 1"]
    rows, notes = read(written(tmp_path / "null.jsonl", {"completion": None}, {"completion": 42}))
    assert rows.completions == [turn(""), turn("42")]
    assert notes == ["rows without a completion, scored as empty ones: 1"]


def test_worked_solutions_are_noticed_where_a_bare_answer_is_expected(tmp_path: Path) -> None:
    path = written(tmp_path / "w.jsonl", {"completion": "c", "solution": "So it is #### 72"})
    assert read(path)[1] == [
        "the gold answers in the column solution seem to be worked solutions: try solution_format=hash"
    ]
    assert read(path, answer_format="hash")[1] == []


def test_columns_called_like_what_a_trainer_passes_are_renamed(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", {"completion": "c", "completions": 1, "trainer_state": 2, "completion_ids": [3]}
    )
    assert read(path)[0].columns == {"raw_completions": [1], "raw_trainer_state": [2], "completion_ids": [[3]]}
    assert "completion_ids" not in read(path, keep_ids=False)[0].columns


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (17, "row 2 is 17, not an object"),
        ({"completion": {"text": "c"}}, "row 2: its completion is {'text': 'c'}, neither text nor messages"),
        ({"completion": ["c"]}, "row 2: its completion holds c, which is no message"),
        ({"completion": [{"role": "assistant", "content": 3}]}, "row 2: its completion holds {'role'"),
        ({"completion": [{"role": "user", "content": "q"}]}, "row 2: its completion holds a message of the user"),
    ],
)
def test_a_row_that_holds_no_turn_is_refused_by_its_number(row: Any, said: str, tmp_path: Path) -> None:
    assert said in refusal(written(tmp_path / "r.jsonl", {"completion": "fine"}, row))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "has no column completion; its columns are question, response; name the one of its completions, as in "
             "completion_column=response"),
        ({"completion": "respons"}, "has no column respons; its columns are question, response; name the one of its "
                                    "completions, as in completion_column=response"),
        ({"completion": "response", "prompt": "p"}, "as in prompt_column=question"),
        ({"completion": "response", "solution": "s"}, "as in solution_column=…"),
    ],
)  # fmt: skip
def test_a_missing_column_is_named_with_those_there_are(columns: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in refusal(written(tmp_path / "r.jsonl", {"question": "q", "response": "r"}), **columns)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("[]")
    assert refusal(tmp_path / "none.json").endswith("none.json has no rows; it must hold at least one completion")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The completions of three steps of a run, as a trainer writes them, two rows each."""
    folder = tmp_path / "run" / "completions"
    folder.mkdir(parents=True)
    for step in (2, 20_000, 100_000):
        columns = {
            "step": step, "prompt": "<user>6*7?", "completion": [f"a{step}", f"b{step}"], "prompt_ids": [[1], [1]],
            "completion_ids": [[7, 8], [9]], "solution": "42", "advantage": 0.5, "reward": 1.0, "reward/accuracy": 1.0,
            "sampling_logps": [[-1.0, -1.0], [-1.0]],
        }  # fmt: skip
        pd.DataFrame(columns).to_parquet(folder / f"step_{step:05d}.parquet", index=False)
    return folder


def test_the_steps_of_a_run_come_in_their_order_without_what_training_hands_to_no_function(run: Path) -> None:
    rows, _ = read(run)
    assert [turn_[0]["content"] for turn_ in rows.completions] == ["a2", "b2", "a20000", "b20000", "a100000", "b100000"]
    assert rows.places[:3] == [{"step": 2, "row": 1}, {"step": 2, "row": 2}, {"step": 20_000, "row": 1}]
    assert rows.columns["completion_ids"][:2] == [[7, 8], [9]]
    assert set(rows.columns) == {"step", "completion_ids", "solution", "answer", "reward/accuracy"}
    rows, _ = read(run / "step_20000.parquet", keep_ids=False)
    assert (
        rows.places == [{"step": 20_000, "row": 1}, {"step": 20_000, "row": 2}] and "completion_ids" not in rows.columns
    )


@pytest.mark.parametrize(("most", "number"), [(1, 1), (3, 3), (99, 6)])
def test_no_more_rows_are_read_than_are_wanted(run: Path, most: int, number: int) -> None:
    assert len(read(run, most=most)[0]) == number


def test_what_holds_no_completions_is_refused_with_what_does(run: Path, tmp_path: Path) -> None:
    check_completions(run)
    check_completions(run / "step_20000.parquet")
    (tmp_path / "evaluation" / "gsm8k").mkdir(parents=True)
    (tmp_path / "evaluation" / "gsm8k" / "results.jsonl").touch()
    for path, said in [
        (run.parent, f"did you mean {run}?"),
        (tmp_path / "evaluation" / "gsm8k", "results.jsonl?"),
        (tmp_path / "evaluation", "a folder without step_"),
        (run / "step_20001.parquet", "does not exist; the nearest file there is step_20000.parquet"),
    ]:
        with pytest.raises(UserError) as caught:
            check_completions(path)
        assert said in str(caught.value)
