"""Which completions are found, in which order; the run is the one of the conftest, so the answers are known by hand."""

import dataclasses
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from rlvr_vocab.analysis.samples.matches import RIGHT, UNKNOWN, WRONG, Search, search_all
from rlvr_vocab.analysis.samples.reading import Reading, View
from rlvr_vocab.analysis.samples.sieve import Judge, Sieve, read_sieve, read_steps
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles

JUDGE = Judge("accuracy", 1.0)


def found(run, order="file", judge=JUDGE, **conditions):
    search = Search(CompletionFiles(run / "completions"), Sieve(**conditions), judge, order)
    assert list(search_all(search))[-1:] in ([], [(search.number_of_steps, search.number_of_steps)])
    return search.found()


def places(matches):
    return [matches.place(index) for index in range(len(matches))]


def test_everything_is_found_in_the_order_of_the_files(finished_run):
    assert places(found(finished_run)) == [(step, row) for step in range(1, 51) for row in range(1, 65)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"step": "7"}, {(7, row) for row in range(1, 65)}),
        ({"step": "49:"}, {(step, row) for step in (49, 50) for row in range(1, 65)}),
        # Steps 3, 13, … ask about 24 to 31; the problem 24 is the first group.
        ({"problem": "what is 24 +"}, {(step, row) for step in range(3, 51, 10) for row in range(1, 9)}),
        ({"contains": "AND ONE, STEP 50<"}, {(50, row) for row in range(1, 65)}),
        ({"step": "1", "verdict": "right"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"step": "1", "verdict": "wrong"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"min_reward": 1.5}, {(50, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"max_reward": 0.01}, {(1, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"min_reward": 0.02, "max_reward": 0.02}, {(2, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"contains": "(.*) no pattern"}, set()),
    ],
)
def test_a_sieve_lets_through_what_it_says(finished_run, conditions, expected):
    assert set(places(found(finished_run, **conditions))) == expected


def test_one_problem_over_time_is_all_completions_to_its_prompt(finished_run):
    files = CompletionFiles(finished_run / "completions")
    matches = found(finished_run, prompt=files.read_row(13, 9).prompt)
    assert places(matches) == [(step, row) for step in (3, 13, 23, 33, 43) for row in range(9, 17)]


def test_orders(finished_run):
    highest = found(finished_run, order="highest")
    assert highest.place(0) == (50, 1) and highest.place(31) == (50, 60) and highest.place(32) == (49, 1)
    assert list(highest.rewards) == sorted(highest.rewards, reverse=True)
    assert found(finished_run, order="lowest").place(0) == (1, 5)
    problems = places(found(finished_run, order="problem"))
    assert problems[:9] == [*((1, row) for row in range(1, 9)), (11, 1)] and problems[40] == (1, 9)


def test_verdicts_are_the_judges(finished_run):
    verdicts = found(finished_run, step="1").verdicts
    assert list(verdicts[:8]) == [RIGHT] * 4 + [WRONG] * 4
    assert set(found(finished_run, step="1", judge=Judge("absent", 1.0)).verdicts) == {UNKNOWN}


def test_a_half_written_file_is_passed_over_and_noted(finished_run, tmp_path):
    for step in (1, 2, 3):
        name = f"step_{step:05d}.parquet"
        (tmp_path / "completions").mkdir(exist_ok=True)
        shutil.copy(finished_run / "completions" / name, tmp_path / "completions" / name)
    path = tmp_path / "completions" / "step_00002.parquet"
    path.write_bytes(path.read_bytes()[:1000])
    search = Search(CompletionFiles(tmp_path / "completions"), Sieve(), JUDGE, "file")
    list(search_all(search))
    assert set(search.found().steps) == {1, 3} and len(search.unreadable) == 1
    assert "step_00002" in search.unreadable[0]


@pytest.mark.parametrize(
    ("columns", "sieve"),
    [
        ({"reward": ["high"]}, Sieve()),
        ({"completion": ["no reward"]}, Sieve()),
        ({"reward": [1.0]}, Sieve(contains="x")),
        ({"reward": [1.0], "completion": [7]}, Sieve(contains="x")),
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over_and_noted(columns, sieve, tmp_path):
    pd.DataFrame(columns).to_parquet(tmp_path / "step_00001.parquet")
    search = Search(CompletionFiles(tmp_path), sieve, JUDGE, "file")
    list(search_all(search))
    assert len(search.found()) == 0 and len(search.unreadable) == 1


@pytest.mark.parametrize(
    ("text", "expected"), [("40", (40, 40)), ("10:50", (10, 50)), ("7:", (7, float("inf"))), (":9", (0, 9))]
)
def test_ranges_of_steps(text, expected):
    assert read_steps(text) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("step=x", "range of steps"),
        ("step=50:10", "after the last"),
        ("verdict=rihgt", "did you mean right"),
        ("min_rewrad=1", "did you mean min_reward"),
        ("min_reward=high", "expected a number"),
        ("min_reward=nan", "must be a number"),
        ("min_reward=1 max_reward=0", "nothing is both"),
        ("apples", "key=value"),
        ("contains=", "no value"),
        ("contains='open", "quotation"),
        ("prompt=x", "unknown key prompt"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_line(line, words):
    with pytest.raises(UserError, match=words):
        read_sieve(line)


def test_what_is_typed_is_read_back():
    sieve = Sieve(step="10:50", contains='it\'s "12 + 3"', verdict="wrong", min_reward=0.25)
    assert read_sieve(sieve.typed) == sieve and read_sieve("") == Sieve()
    assert str(dataclasses.replace(sieve, prompt="p")).endswith("min_reward=0.25 this problem")


def reading_of(run, view=None):
    reading = Reading(CompletionFiles(run / "completions"), view or View(Sieve(), "file"), JUDGE)
    finish(reading)
    return reading


def finish(reading):
    list(search_all(reading.search))
    reading.take(reading.search.found())


def test_moving_stays_inside(finished_run):
    reading = reading_of(finished_run)
    reading.move(-1)
    assert reading.place == (1, 1)
    reading.move_to(-1)
    reading.move(1)
    assert reading.place == (50, 64)
    reading.move_step(1)
    assert reading.place == (50, 64)
    reading.move_step(-1)
    assert reading.place == (49, 1)
    reading.move_step(1)
    assert reading.place == (50, 1)
    reading.go_to_step(20)
    assert reading.place == (20, 1)
    reading.go_to_step(10_000)
    assert reading.place == (50, 1)


def test_comparing_a_problem_over_time_and_going_back_keep_the_place(finished_run):
    reading = reading_of(finished_run, View(Sieve(verdict="wrong"), "highest"))
    reading.move_to(100)
    before = reading.place
    reading.toggle_compare()
    finish(reading)
    assert reading.place == before and len(reading.matches) == 40 and reading.view.order == "file"
    reading.toggle_compare()
    finish(reading)
    assert reading.place == before and reading.index == 100 and len(reading.matches) == 50 * 32


def test_whoever_has_moved_stays_where_they_are_while_more_is_found(finished_run):
    reading = Reading(CompletionFiles(finished_run / "completions"), View(Sieve(), "highest"), JUDGE)
    reading.search.take_step()
    reading.take(reading.search.found())
    assert reading.place == (1, 1)
    reading.search.take_step()
    reading.take(reading.search.found())
    assert reading.place == (2, 1)  # who has not moved is at the best so far
    reading.move(1)
    assert reading.place == (2, 2)
    finish(reading)
    assert reading.place == (2, 2) and reading.index == 48 * 32 + 1


def test_nothing_found_is_no_place_and_no_error(finished_run):
    reading = reading_of(finished_run, View(Sieve(contains="nowhere"), "file"))
    for move in (lambda: reading.move(1), lambda: reading.move_to(-1), lambda: reading.go_to_step(3)):
        move()
        assert reading.place is None and reading.index == 0
    reading.move_step(1)
    assert reading.toggle_compare() is None


def test_opening_a_run_imports_neither_torch_nor_pandas_nor_transformers(finished_run):
    """Each of them is a second or more."""
    code = (
        "import sys; from pathlib import Path; from rlvr_vocab.commands import samples;"
        "from rlvr_vocab.analysis.samples.app import SamplesApp;"
        "from rlvr_vocab.record.completions import CompletionFiles;"
        "from rlvr_vocab.analysis.samples.matches import *; from rlvr_vocab.analysis.samples.sieve import *;"
        f"files = CompletionFiles(Path({str(finished_run / 'completions')!r}));"
        "search = Search(files, Sieve(), Judge('accuracy', 1.0), 'file'); list(search_all(search));"
        "files.read_row(1, 1); assert len(search.found()) == 3200;"
        "print({'torch', 'pandas', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
