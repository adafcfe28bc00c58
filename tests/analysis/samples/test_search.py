"""Which completions are found, in which order; the run is the one of the conftest, so the answers are known by hand."""

import dataclasses
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from rlvr_vocab.analysis.samples.browser import Browser, View
from rlvr_vocab.analysis.samples.filter import CorrectnessReward, SampleFilter, read_filter, read_steps
from rlvr_vocab.analysis.samples.search import UNKNOWN, Search, search_all
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles

CORRECTNESS = CorrectnessReward("accuracy", 1.0)


def found(run, order="file", correctness=CORRECTNESS, **conditions):
    search = Search(CompletionFiles(run / "completions"), SampleFilter(**conditions), correctness, order)
    assert list(search_all(search))[-1:] in ([], [(search.number_of_steps, search.number_of_steps)])
    return search.found()


def sample_ids(matches):
    return [matches.sample_id(index) for index in range(len(matches))]


def test_everything_is_found_in_the_order_of_the_files(finished_run):
    assert sample_ids(found(finished_run)) == [(step, row) for step in range(1, 51) for row in range(1, 65)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"step": "49:"}, {(step, row) for step in (49, 50) for row in range(1, 65)}),
        # Steps 3, 13, … ask about 24 to 31; the problem 24 is the first group.
        ({"problem": "what is 24 +"}, {(step, row) for step in range(3, 51, 10) for row in range(1, 9)}),
        ({"contains": "AND ONE, STEP 50<"}, {(50, row) for row in range(1, 65)}),
        ({"step": "1", "verdict": "right"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"step": "1", "verdict": "wrong"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"min_reward": 1.5}, {(50, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"min_reward": 0.02, "max_reward": 0.02}, {(2, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"contains": "(.*) no pattern"}, set()),
    ],
)
def test_a_filter_lets_through_what_it_says(finished_run, conditions, expected):
    assert set(sample_ids(found(finished_run, **conditions))) == expected


def test_one_problem_over_time_is_all_completions_to_its_prompt(finished_run):
    files = CompletionFiles(finished_run / "completions")
    matches = found(finished_run, prompt=files.read_row(13, 9).prompt)
    assert sample_ids(matches) == [(step, row) for step in (3, 13, 23, 33, 43) for row in range(9, 17)]


def test_orders(finished_run):
    highest = found(finished_run, order="highest")
    assert highest.sample_id(0) == (50, 1) and highest.sample_id(31) == (50, 60) and highest.sample_id(32) == (49, 1)
    assert list(highest.rewards) == sorted(highest.rewards, reverse=True)
    assert found(finished_run, order="lowest").sample_id(0) == (1, 5)


def test_without_scores_of_the_correctness_reward_nothing_is_right_or_wrong(finished_run):
    assert set(found(finished_run, step="1", correctness=CorrectnessReward("absent", 1.0)).verdicts) == {UNKNOWN}


def test_a_half_written_file_is_passed_over_and_noted(finished_run, tmp_path):
    for step in (1, 2, 3):
        name = f"step_{step:05d}.parquet"
        (tmp_path / "completions").mkdir(exist_ok=True)
        shutil.copy(finished_run / "completions" / name, tmp_path / "completions" / name)
    path = tmp_path / "completions" / "step_00002.parquet"
    path.write_bytes(path.read_bytes()[:1000])
    search = Search(CompletionFiles(tmp_path / "completions"), SampleFilter(), CORRECTNESS, "file")
    list(search_all(search))
    assert set(search.found().steps) == {1, 3} and len(search.unreadable) == 1
    assert "step_00002" in search.unreadable[0]


@pytest.mark.parametrize(
    ("columns", "sample_filter"),
    [
        ({"reward": ["high"]}, SampleFilter()),
        ({"reward": [1.0]}, SampleFilter(contains="x")),
        ({"reward": [1.0], "completion": [7]}, SampleFilter(contains="x")),
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over_and_noted(columns, sample_filter, tmp_path):
    pd.DataFrame(columns).to_parquet(tmp_path / "step_00001.parquet")
    search = Search(CompletionFiles(tmp_path), sample_filter, CORRECTNESS, "file")
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
        read_filter(line)


def test_what_is_typed_is_read_back():
    sample_filter = SampleFilter(step="10:50", contains='it\'s "12 + 3"', verdict="wrong", min_reward=0.25)
    assert read_filter(sample_filter.as_typed) == sample_filter and read_filter("") == SampleFilter()
    assert str(dataclasses.replace(sample_filter, prompt="p")).endswith("min_reward=0.25 this problem")


def browser_of(run, view=None):
    browser = Browser(CompletionFiles(run / "completions"), view or View(SampleFilter(), "file"), CORRECTNESS)
    finish(browser)
    return browser


def finish(browser):
    list(search_all(browser.search))
    browser.take(browser.search.found())


def test_moving_stays_inside(finished_run):
    browser = browser_of(finished_run)
    browser.move(-1)
    assert browser.sample_id == (1, 1)
    browser.move_to(-1)
    browser.move(1)
    assert browser.sample_id == (50, 64)
    browser.move_step(1)
    assert browser.sample_id == (50, 64)
    browser.go_to_step(20)
    browser.move_step(-1)
    assert browser.sample_id == (19, 1)
    browser.go_to_step(10_000)
    assert browser.sample_id == (50, 1)


def test_comparing_a_problem_over_time_and_going_back_keep_the_place(finished_run):
    browser = browser_of(finished_run, View(SampleFilter(verdict="wrong"), "highest"))
    browser.move_to(100)
    before = browser.sample_id
    browser.toggle_compare()
    finish(browser)
    assert browser.sample_id == before and len(browser.matches) == 40 and browser.view.order == "file"
    browser.toggle_compare()
    finish(browser)
    assert browser.sample_id == before and browser.index == 100 and len(browser.matches) == 50 * 32


def test_whoever_has_moved_stays_where_they_are_while_more_is_found(finished_run):
    browser = Browser(CompletionFiles(finished_run / "completions"), View(SampleFilter(), "highest"), CORRECTNESS)
    browser.search.take_step()
    browser.take(browser.search.found())
    assert browser.sample_id == (1, 1)
    browser.search.take_step()
    browser.take(browser.search.found())
    assert browser.sample_id == (2, 1)  # who has not moved is at the best so far
    browser.move(1)
    assert browser.sample_id == (2, 2)
    finish(browser)
    assert browser.sample_id == (2, 2) and browser.index == 48 * 32 + 1


def test_nothing_found_is_no_place_and_no_error(finished_run):
    browser = browser_of(finished_run, View(SampleFilter(contains="nowhere"), "file"))
    for move in (lambda: browser.move(1), lambda: browser.move_to(-1), lambda: browser.go_to_step(3)):
        move()
        assert browser.sample_id is None and browser.index == 0
    browser.move_step(1)
    assert browser.toggle_compare() is None


def test_opening_a_run_imports_neither_torch_nor_pandas_nor_transformers(finished_run):
    """Each of them is a second or more."""
    code = (
        "import sys; from pathlib import Path; from rlvr_vocab.commands import samples;"
        "from rlvr_vocab.analysis.samples.app import SamplesApp;"
        "from rlvr_vocab.record.completions import CompletionFiles;"
        "from rlvr_vocab.analysis.samples.search import *; from rlvr_vocab.analysis.samples.filter import *;"
        f"files = CompletionFiles(Path({str(finished_run / 'completions')!r}));"
        "search = Search(files, SampleFilter(), CorrectnessReward('accuracy', 1.0), 'file'); list(search_all(search));"
        "files.read_row(1, 1); assert len(search.found()) == 3200;"
        "print({'torch', 'pandas', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
