"""`rlvr-vocab compare` on made-up folders of runs: arms, warnings, files, refusals."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rlvr_vocab.record.results import read_results, write_results

from .compared_runs import ASKED, ENVIRONMENT, Maker, compare, evaluated, maker, three, warnings


@pytest.fixture
def made(tmp_path: Path) -> Maker:
    return maker(tmp_path)


@pytest.mark.parametrize("own", [True, False])
def test_arms_are_found_and_the_difference_is_told(made: Maker, own: bool, capsys: pytest.CaptureFixture[str]) -> None:
    reasoning, plain = three(made, "r", n=100, chance=0.85, own=own), three(made, "b", chance=0.4, own=own)
    code, found = compare([*reasoning, *plain])
    said = capsys.readouterr().out
    assert code == 0
    assert said.startswith("reasoning_vocab_size=100 is higher than reasoning_vocab_size=0 (difference +")
    assert found["key"] == "model.reasoning_vocab_size"
    assert [arm["name"] for arm in found["arms"]] == ["reasoning_vocab_size=0", "reasoning_vocab_size=100"]
    [result] = found["comparisons"]
    assert result["verdict"] == "higher" and result["paired"]
    assert result["problems"] == (600 if own else 200)
    assert result["difference"] == pytest.approx(result["other_mean"] - result["baseline_mean"])
    assert found["warnings"] == []


def test_a_run_needs_no_more_than_its_configuration_and_its_results(made: Maker) -> None:
    bare = {"summary": None, "environment": None}
    runs = [*three(made, "b", **bare), *three(made, "r", n=100, **bare)]
    for run in runs:
        Path(run, "metrics.jsonl").unlink()
    code, found = compare(runs)
    assert code == 0
    assert warnings(found, "has no summary.json") == 6


def test_other_keys_that_differ_are_listed_and_warned_about(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100, training__learning_rate=1e-4)]
    assert compare(runs)[0] == 2
    _, found = compare(runs, "key=model.reasoning_vocab_size")
    assert found["configuration_differences"] == [
        {"key": "training.learning_rate", "values": ["1e-05"] * 3 + ["0.0001"] * 3}
    ]
    assert warnings(found, "training.learning_rate (1e-05 and 0.0001)") == 1


def test_what_copies_are_like_makes_no_difference_in_a_run_that_has_none(made: Maker) -> None:
    ranks = {"b": 16, "r": None}
    runs = [run for name in "br" for run in three(made, name, n=100 * (name == "r"), model__reasoning_rank=ranks[name])]
    code, found = compare(runs)
    assert code == 0 and found["configuration_differences"] == []


def test_an_evaluation_that_is_not_finished_is_refused(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    runs = evaluated(made, ASKED, {**ASKED, "samples": 4})
    assert compare(runs, "evaluation=test")[0] == 2
    error = capsys.readouterr().err
    assert "holds 200 of 800 answers: rlvr-vocab evaluate checkpoint=" in error and "samples=4" in error
    assert error.count("\n") == 1


def test_long_values_of_the_key_are_numbered_and_listed_once(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    long = ["Think about it.\n" * 9, "Answer at once. " * 9]
    runs = [made("b", dataset__system_prompt=long[0]), made("r", dataset__system_prompt=long[1])]
    _, found = compare(runs)
    assert [arm["name"] for arm in found["arms"]] == ["system_prompt #1", "system_prompt #2"]
    assert capsys.readouterr().out.count(long[1]) == 1
    assert Path("compared/comparison.html").read_text().count(long[1]) == 1


def test_neither_secrets_nor_what_a_terminal_obeys_is_shown(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    secret = f"hf_{'abcDEF123' * 4}"
    runs = [
        made("b", dataset__name=f"x{chr(27)}[2J", environment={**ENVIRONMENT, "commit": "\x1b]0;"}),
        made("r", dataset__name="y [bold]z", training__hub_token=secret),
    ]
    assert compare(runs, "key=dataset.name")[0] == 0
    page = Path("compared/comparison.html").read_text() + Path("compared/comparison.json").read_text()
    shown = capsys.readouterr().out
    assert secret not in page + shown
    assert "\x1b" not in page + shown
    assert "[bold]" in shown.splitlines()[-1] or "name=y [bold]z" in shown


def test_values_of_the_baseline_are_compared_as_numbers(made: Maker) -> None:
    runs = [made("r", training__beta=0.04), made("b", training__beta=0.0), made("c", seed=1, training__beta=0)]
    assert compare(runs)[1]["comparisons"][0]["baseline"] == "beta=0.0"
    assert compare(runs, "baseline=0")[0] == 0


def test_answers_without_a_grade_are_left_out_and_counted(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    path = Path(runs[0], "evaluation", "after.jsonl")
    first, *others = read_results(path)
    write_results([replace(first, score=None), *others], path)
    _, found = compare(runs)
    assert found["comparisons"][0]["problems"] == 199
    assert warnings(found, "1 answer without a grade") == 1


def test_several_arms_are_compared_with_the_baseline(made: Maker) -> None:
    runs = [*three(made, "s", n=10), *three(made, "b"), *three(made, "f", n="full", chance=0.95)]
    _, found = compare(runs)
    assert [each["other"] for each in found["comparisons"]] == ["reasoning_vocab_size=10", "reasoning_vocab_size=full"]
    assert found["comparisons"][1]["adjusted_p"] > found["comparisons"][1]["p"]
    _, other = compare(runs, "baseline=full")
    assert {each["baseline"] for each in other["comparisons"]} == {"reasoning_vocab_size=full"}
    assert other["comparisons"][1]["difference"] == pytest.approx(-found["comparisons"][1]["difference"])


def test_results_of_evaluate_are_taken_by_name(made: Maker) -> None:
    place = "final_model/evaluation/gsm8k_test/results.jsonl"
    runs = [*three(made, "b", results=place), *three(made, "r", n=100, results=place)]
    assert compare(runs, "evaluation=gsm8k_test")[1]["measured"] == "results named gsm8k_test"


def test_the_page_is_whole_and_escaped(made: Maker) -> None:
    script = {"chance": 0.9, "dataset__system_prompt": "<script>alert(1)</script>"}
    compare([*three(made, "b", chance=0.2), *three(made, "r", n=100, **script)], "key=model.reasoning_vocab_size")
    page = Path("compared/comparison.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<svg") == 2  # the difference, the runs, the reward
    assert "rlvr-vocab compare" in page and "higher" in page


def test_the_verdict_of_a_probe_stands_beside_it(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100)]
    compare(runs)
    page = Path("compared/comparison.html")
    assert "what the copies mean" not in page.read_text()
    probe = Path(runs[-1]) / "probe"
    probe.mkdir()
    (probe / "probe.json").write_text(json.dumps({"verdict": "no sign of meaning", "sentence": "No."}))
    _, found = compare(runs)
    assert "no sign of meaning" in page.read_text() and "not probed" in page.read_text()
    told = [run["probe"] for arm in found["arms"] for run in arm["runs"]]
    assert told == [*[None] * (len(runs) - 1), "no sign of meaning"]


def test_no_claim_is_made_of_a_broken_file(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [made("b"), made("r", n=100)]
    with (Path(runs[0]) / "evaluation/after.jsonl").open("ab") as lines:
        lines.write('{"problem": "é'.encode()[:-1])
    assert compare(runs)[0] == 2
    assert "after.jsonl, line 201: no result of an evaluation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "words", "said"),
    [
        (lambda made: [made("b")] * 2, (), "is given twice"),
        (lambda made: [made("b")], (), "two runs at least"),
        (lambda made: [made("b"), made("c", seed=1)], (), "one arm only"),
        (
            lambda made: [made("b"), made("r", n=9, training__max_steps=9)],
            (),
            "reasoning_vocab_size, training.max_steps",
        ),
        (lambda made: [made("b"), made("r", n=9)], ("key=model.nme",), "did you mean model.name?"),
        (lambda made: [made("b"), made("r", n=9)], ("key=model.name",), "the same value in all runs"),
        (lambda made: [made("b"), made("r", n=9)], ("baseline=7",), "there is 0, 9"),
        (lambda made: [made("b"), made("r", n=9)], ("evaluation=test",), "checkpoint="),
        (lambda made: [made("b"), made("r", n=9, results=None)], (), "rlvr-vocab evaluate checkpoint="),
        (lambda made: [made("b"), made("c"), made("r", n=9)], (), "two runs with seed 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    made: Maker,
    make: Callable[[Maker], list[str]],
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert compare(make(made), *words)[0] == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_it_starts_without_torch() -> None:
    code = "import sys, rlvr_vocab.commands.compare; print('torch' in sys.modules, 'transformers' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
