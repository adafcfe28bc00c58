"""What `rlvr-vocab compare` warns of: runs that differ in more than the key, in their seeds, or not at all."""

import json
from pathlib import Path
from typing import Any

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


def test_other_training_problems_are_warned_about(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for run, fingerprint in zip(runs, "xx", strict=True):
        (Path(run) / "problems.json").write_text(json.dumps({"training": [{"sha256": fingerprint}]}))
    assert warnings(compare(runs)[1], "trained on other problems") == 0
    (Path(runs[1]) / "problems.json").write_text(json.dumps({"training": [{"sha256": "y"}]}))
    assert warnings(compare(runs)[1], "trained on other problems") == 1


def test_answers_that_were_sampled_otherwise_are_warned_about(made: Maker) -> None:
    _, found = compare(evaluated(made, ASKED, {**ASKED, "weights": "two", "temperature": 0.0}), "evaluation=test")
    assert warnings(found, "sampled with different") == 1
    assert warnings(found, "different temperature (1.0 and 0.0)") == 1


def test_seeds_without_a_partner_are_warned_about(made: Maker) -> None:
    runs = [*three(made, "b", own=True), *three(made, "r", n=100, own=True)[:2]]
    _, found = compare(runs)
    assert warnings(found, "has no run with seed 2") == 1
    assert warnings(found, "1 of 5 runs without a partner") == 1


def test_data_seeds_make_other_seeds(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100, training__data_seed=5)]
    _, found = compare(runs)
    assert not found["comparisons"][0]["paired"]
    assert warnings(found, "which another arm has") == 2
