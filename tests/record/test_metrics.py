"""The rows of a run as they are read, whoever has written them."""

import json

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import is_number, is_step_row, read_metrics, read_rows

ROWS = [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.6}]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + LINES,
        LINES.replace(b"\n", b"\r\n"),
        LINES.replace(b"\n", b"\n\n  \n"),
        LINES + b'{"step": 3, "rew',
        LINES + b'{"step": 3, "text": "\xc3',
    ],
)
def test_marks_blank_lines_and_a_half_written_last_line_lose_no_row(content, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert read_metrics(tmp_path / "metrics.jsonl") == ROWS


@pytest.mark.parametrize("line", ["3", "[]", '{"step": 3, "rew'])
def test_a_line_that_is_no_object_is_named(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(LINES + line.encode() + b"\n" + LINES)
    with pytest.raises(UserError, match="line 3"):
        read_rows(path)


@pytest.mark.parametrize("step", [{}, {"step": None}, {"step": "7"}, {"step": float("nan")}])
def test_a_row_without_a_step_is_named(step, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(LINES + json.dumps({"reward": 0.5, **step}).encode())
    with pytest.raises(UserError, match="row 3 has no number as its step"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_rows_of_measurements_are_apart_from_those_of_steps(tmp_path):
    measured = {"step": 2, "eval/accuracy": 0.3, "eval/problems": 50, "epoch": 0.5}
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*ROWS, measured]))
    *rows, last = read_metrics(tmp_path / "metrics.jsonl")
    assert rows == ROWS and last == measured and all(map(is_step_row, rows)) and not is_step_row(last)


@pytest.mark.parametrize("value", [1e308, -1e200, 10**400, float("inf"), float("nan"), True, "1", None])
def test_what_cannot_be_reckoned_with_is_no_number(value):
    assert not is_number(value)
    assert is_number(1e100) and is_number(-3)
