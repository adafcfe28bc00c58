"""What `rlvr-vocab compare` warns of: runs that differ in more than the key, in their seeds, or not at all."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .compared_runs import ASKED, ENVIRONMENT, SUMMARY, Maker, compare, evaluated, maker, three, warnings

pytestmark = pytest.mark.slow


@pytest.fixture
def made(tmp_path: Path) -> Maker:
    return maker(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens": 2000}, "tokens trained on"),
        ({"summary": SUMMARY | {"steps": 3}}, "differ in steps"),
        ({"summary": SUMMARY | {"finished": False}}, "is not finished"),
        ({"summary": SUMMARY | {"accuracy_before": 0.6}}, "did not begin alike"),
        ({"environment": ENVIRONMENT | {"commit": "def"}}, "different versions of the code"),
        ({"environment": ENVIRONMENT | {"versions": {"trl": "1.17.0"}}}, "versions of trl (1.16.0 and 1.17.0)"),
        ({"environment": ENVIRONMENT | {"gpus": ["H200"]}}, "different hardware"),
        ({"training__save_strategy": "best"}, "best checkpoint"),
        ({"problems": 190}, "were not measured on the same problems: 10"),
    ],
)
def test_what_differs_besides_the_key_is_warned_about(made: Maker, given: dict[str, Any], words: str) -> None:
    _, found = compare([*three(made, "b"), *three(made, "r", n=100, **given)])
    assert warnings(found, words) >= 1


def completions(run: str, step: int, prompts: list[str]) -> None:
    (Path(run) / "completions").mkdir(exist_ok=True)
    pq.write_table(pa.table({"prompt": prompts}), Path(run) / f"completions/step_{step:05}.parquet")


def test_the_order_of_the_problems_is_looked_at_in_steps_that_both_kept(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for step in (1, 2, 3):
        completions(runs[0], step, ["x", "y"])
    completions(runs[1], 4, ["x", "y"])
    assert warnings(compare(runs)[1], "completions of no step that is the same") == 1
    completions(runs[1], 1, ["x", "y"])
    completions(runs[1], 3, ["x", "y"])
    assert warnings(compare(runs)[1], "or in another order") == 0
    completions(runs[1], 3, ["y", "x"])
    assert warnings(compare(runs)[1], "or in another order") == 1


def test_damaged_completions_are_warned_about(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for run in runs:
        completions(run, 1, ["x"])
    (Path(runs[1]) / "completions/step_00001.parquet").write_bytes(b"PAR1")
    code, found = compare(runs)
    assert code == 0
    assert warnings(found, "half-written or damaged") == 1


def test_answers_that_were_sampled_otherwise_are_warned_about(made: Maker) -> None:
    _, found = compare(evaluated(made, ASKED, {**ASKED, "weights": "two", "temperature": 0.0}), "evaluation=test")
    assert warnings(found, "sampled with different") == 1
    assert warnings(found, "different temperature (1.0 and 0.0)") == 1


def test_seeds_without_a_partner_are_warned_about(made: Maker) -> None:
    runs = [*three(made, "b", own=True), *three(made, "r", n=100, own=True)[:2]]
    _, found = compare(runs)
    assert warnings(found, "has no run with seed 2") == 1
    assert warnings(found, "1 of 5 runs without a partner") == 1
    assert found["comparisons"][0]["seeds"] == [0, 1]


def test_data_seeds_make_other_seeds(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100, training__data_seed=5)]
    _, found = compare(runs)
    assert not found["comparisons"][0]["paired"]
    assert warnings(found, "which another arm has") == 2


def test_copies_of_a_run_are_warned_about_beside_the_verdict(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    """With another seed in its configuration, a copy passes for another run."""
    runs = [*three(made, "b"), *three(made, "r", n=100)]
    assert warnings(compare(runs)[1], "copies of one run") == 0
    for copied in runs[4:]:
        shutil.copy(f"{runs[3]}/evaluation/after.jsonl", f"{copied}/evaluation/after.jsonl")
    capsys.readouterr()
    _, found = compare(runs)
    warning = next(each for each in found["warnings"] if "copies of one run" in each)
    assert warning.startswith(f"{runs[3]}, {runs[4]} and {runs[5]} have the same answers")
    assert found["comparisons"][0]["warnings"][0] == warning
    assert capsys.readouterr().out.splitlines()[1] == f"warning: {warning}"
    page = Path("compared/comparison.html").read_text()
    assert page.index('class="lede"') < page.index("copies of one run") < page.index("<nav")
