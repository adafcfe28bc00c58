"""`rlvr-vocab compare` on made-up folders of runs: arms, warnings, files, refusals."""

import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rlvr_vocab.exp.cli import main

from ..read_text import faults_in

CONFIG: dict[str, Any] = {
    "exp_name": "made_up",
    "seed": 0,
    "output_dir": "./out/made_up",
    "model": {"name": "tiny", "reasoning_vocab_size": 0},
    "dataset": {"name": "arithmetic"},
    "training": {"learning_rate": 1e-5, "max_steps": 4, "save_steps": 100},
}
SUMMARY = {"finished": True, "accuracy_before": 0.3, "held_out_problems": 200, "steps": 4, "seconds": 10.0}
ENVIRONMENT = {"commit": "abc", "versions": {"trl": "1.16.0"}, "gpus": [], "processor_cores": 2}

Maker = Callable[..., str]


@pytest.fixture
def made(tmp_path: Path) -> Maker:
    """Makes the folder of a run: what is given replaces parts of its files, None leaves a file out."""

    def make(
        name: str,
        n: Any = 0,
        seed: int = 0,
        chance: float = 0.5,
        own: bool = False,
        problems: int = 200,
        results: str | None = "evaluation/after.jsonl",
        summary: dict[str, Any] | None = SUMMARY,
        environment: dict[str, Any] | None = ENVIRONMENT,
        tokens: int = 1000,
        **settings: Any,
    ) -> str:
        folder = tmp_path / name
        config = copy.deepcopy(CONFIG) | {"seed": seed, "exp_name": name, "output_dir": str(folder)}
        config["model"]["reasoning_vocab_size"] = n
        for key, value in settings.items():
            section, _, field = key.partition("__")
            config[section][field] = value
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        if results is not None:
            generator = random.Random(f"{name}{seed}")
            (folder / results).parent.mkdir(parents=True)
            lines = [answer(each, seed if own else -1, generator.random() < chance) for each in range(problems)]
            lines[0]["score"] = float(n != 0)  # so that it stands among those at which an arm is ahead
            (folder / results).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for file, content in (("summary.json", summary), ("environment.json", environment)):
            if content is not None:
                (folder / file).write_text(json.dumps(content))
        rows = [{"step": step, "loss": 0.0, "reward": step / 10, "num_tokens": tokens * step} for step in range(1, 5)]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(folder)

    return make


def answer(problem: int, of_set: int, right: bool) -> dict[str, Any]:
    prompt = "#<script>alert(1)</script>" if problem == 0 else f"{of_set}: {problem}+1="
    return {"problem": problem, "sample": 0, "prompt": prompt, "solution": str(problem + 1), "score": float(right)}


def compare(runs: list[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is in comparison.json."""
    code = main(["compare", f"runs=[{','.join(runs)}]", "out=compared", *words])
    return code, json.loads(Path("compared/comparison.json").read_text()) if code == 0 else {}


def three(made: Maker, name: str, **given: Any) -> list[str]:
    return [made(f"{name}{seed}", seed=seed, **given) for seed in range(3)]


def warnings(found: dict[str, Any], words: str) -> int:
    return sum(words in each for each in found["warnings"])


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
    assert result["problems"] == (599 - 1 if own else 200)  # the one with the script is the same in each set
    assert result["difference"] == pytest.approx(result["other_mean"] - result["baseline_mean"])
    assert found["warnings"] == []


def test_no_difference_is_not_claimed(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compare([*three(made, "b"), *three(made, "r", n=100)])
    assert found["comparisons"][0]["verdict"] == "not distinguishable"
    assert "smallest effect that could have been shown with 3 pairs of runs on 200 problems" in capsys.readouterr().out


def test_a_run_needs_no_more_than_its_configuration_and_its_results(made: Maker) -> None:
    bare = {"summary": None, "environment": None}
    runs = [*three(made, "b", **bare), *three(made, "r", n=100, **bare)]
    for run in runs:
        Path(run, "metrics.jsonl").unlink()
    code, found = compare(runs)
    assert code == 0
    assert warnings(found, "has no summary.json") == 6


def test_one_run_of_an_arm_says_nothing_about_the_arms(made: Maker) -> None:
    _, found = compare([made("b", chance=0.1), made("r", n=100, chance=0.9)])
    assert found["comparisons"][0]["verdict"] == "one run each"
    assert found["comparisons"][0]["sentence"].startswith("One run of an arm cannot tell the arms apart")


def test_other_keys_that_differ_are_listed_and_warned_about(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100, training__learning_rate=1e-4)]
    assert compare(runs)[0] == 2
    _, found = compare(runs, "key=model.reasoning_vocab_size")
    assert found["configuration_differences"] == [
        {"key": "training.learning_rate", "values": ["1e-05"] * 3 + ["0.0001"] * 3}
    ]
    assert warnings(found, "training.learning_rate (1e-05 and 0.0001)") == 1


def test_how_often_a_run_saves_makes_no_arm(made: Maker) -> None:
    runs = [*three(made, "b"), *three(made, "r", n=100, training__save_steps=7)]
    assert compare(runs)[1]["configuration_differences"] == []


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


def test_another_order_of_the_problems_is_warned_about(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for run, prompts in zip(runs, (["x", "y"], ["y", "x"]), strict=True):
        (Path(run) / "completions").mkdir()
        pq.write_table(pa.table({"prompt": prompts}), Path(run) / "completions/step_00001.parquet")
    assert warnings(compare(runs)[1], "or in another order") == 1
    pq.write_table(pa.table({"prompt": ["x", "y"]}), Path(runs[1]) / "completions/step_00001.parquet")
    assert warnings(compare(runs)[1], "or in another order") == 0


def completions(run: str, step: int, prompts: list[str]) -> None:
    (Path(run) / "completions").mkdir(exist_ok=True)
    pq.write_table(pa.table({"prompt": prompts}), Path(run) / f"completions/step_{step:05}.parquet")


def test_the_order_of_the_problems_is_looked_at_in_steps_that_both_kept(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for step in (1, 2, 3):
        completions(runs[0], step, ["x", "y"])
    completions(runs[1], 4, ["x", "y"])
    assert any("completions of no step that is the same" in each for each in compare(runs)[1]["unchecked"])
    completions(runs[1], 1, ["x", "y"])
    completions(runs[1], 3, ["y", "x"])
    assert warnings(compare(runs)[1], "or in another order") == 1


def test_damaged_completions_are_something_that_could_not_be_looked_at(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    for run in runs:
        completions(run, 1, ["x"])
    (Path(runs[1]) / "completions/step_00001.parquet").write_bytes(b"PAR1")
    code, found = compare(runs)
    assert code == 0
    assert any("half-written or damaged" in each for each in found["unchecked"])


def test_what_runs_have_not_recorded_is_said(made: Maker) -> None:
    unknown = {"environment": {**ENVIRONMENT, "commit": None}}
    runs = [made("b"), made("r", n=100, **unknown), made("c", seed=1, environment=None), made("s", n=100, seed=1)]
    Path(runs[3], "metrics.jsonl").unlink()
    _, found = compare(runs)
    said = " ".join(found["unchecked"])
    assert f"no commit in {runs[1]}" in said
    assert f"no environment.json in {runs[2]}" in said
    assert f"no metrics.jsonl in {runs[3]}" in said
    assert "differ in the key under test alone" not in Path("compared/comparison.html").read_text()


ASKED = {"problems": 200, "samples": 1, "temperature": 1.0, "weights": "one", "checkpoint": "x"}


def evaluated(made: Maker, *asked: dict[str, Any]) -> list[str]:
    runs = []
    for number, each in enumerate(asked):
        runs.append(made(f"e{number}", n=100 * number, results="final_model/evaluation/test/results.jsonl"))
        (Path(runs[-1]) / "final_model/evaluation/test/settings.json").write_text(json.dumps(each))
    return runs


def test_answers_that_were_sampled_otherwise_are_warned_about(made: Maker) -> None:
    _, found = compare(evaluated(made, ASKED, {**ASKED, "weights": "two", "temperature": 0.0}), "evaluation=test")
    assert warnings(found, "sampled with different") == 1
    assert warnings(found, "different temperature (1.0 and 0.0)") == 1


def test_an_evaluation_that_is_not_finished_is_refused(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    runs = evaluated(made, ASKED, {**ASKED, "samples": 4})
    assert compare(runs, "evaluation=test")[0] == 2
    error = capsys.readouterr().err
    assert "holds 200 of 800 answers: rlvr-vocab evaluate checkpoint=" in error and "samples=4" in error
    assert error.count("\n") == 1


def test_signs_that_break_lines_elsewhere_break_none_in_results(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    path = Path(runs[0]) / "evaluation/after.jsonl"
    lines = [{**json.loads(line), "completion": "a\u2028b\x85c\ud800"} for line in path.read_text().splitlines()]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    assert compare(runs)[0] == 0


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


def test_a_key_that_a_version_added_makes_no_difference_at_its_default(made: Maker) -> None:
    runs = [made("b"), made("r", n=100, dataset__examples=None, training__num_iterations=1)]
    assert compare(runs)[1]["configuration_differences"] == []


def test_the_folder_one_stands_in_is_a_run_like_others(made: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [made("b"), made("r", n=100)]
    monkeypatch.chdir(runs[0])
    assert compare([".", "../r"])[0] == 0
    assert "exp_name=b_again" in Path("compared/comparison.html").read_text()


def test_a_stream_without_the_signs_gets_their_escapes(made: Maker) -> None:
    runs = [made("b"), made("r", n=100)]
    words = [sys.executable, "-m", "rlvr_vocab.exp.cli", "compare", f"runs=[{','.join(runs)}]", "out=compared"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    said = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_three_runs_against_one_are_no_single_models(made: Maker) -> None:
    _, found = compare([*three(made, "b"), made("r", n=100)])
    assert "single models" not in found["comparisons"][0]["sentence"]
    assert found["comparisons"][0]["smallest_effect"] is None
    assert "smallest effect" not in Path("compared/comparison.html").read_text()


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
    for number, run in enumerate(runs):
        keep_answers(run, f"of run {number}")
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


def keep_answers(run: str, text: str) -> None:
    path = Path(run, "evaluation", "after.jsonl")
    rows = [{**json.loads(line), "completion": text} for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_one_of_everything_reads_as_one(made: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    """One run of an arm, one problem, one answer that cannot be graded."""
    arms = ((0, 0), (1, 0), (1, 1))
    runs = [made(f"a{n}{seed}", n=n, seed=seed, problems=2, environment=None) for n, seed in arms]
    path = Path(runs[0], "evaluation", "after.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["score"] = None
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert compare(runs)[0] == 0
    said = capsys.readouterr().out
    assert "1 answer without a grade" in said and "on 1 problem)" in said
    page = re.sub(r"<style>.*?</style>|<[^>]*>", " ", Path("compared/comparison.html").read_text(), flags=re.DOTALL)
    assert faults_in(said) == faults_in(page) == []


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
    compare([*three(made, "b", chance=0.2), *three(made, "r", n=100, chance=0.9)])
    page = Path("compared/comparison.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<svg") == 3  # the difference, the runs, the reward
    assert "rlvr-vocab compare" in page and "higher" in page


@pytest.mark.parametrize("cut", [b'{"problem": 3, "pro', '{"problem": "é'.encode()[:-1]])
def test_no_claim_is_made_of_a_broken_file(made: Maker, cut: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [made("b"), made("r", n=100)]
    with (Path(runs[0]) / "evaluation/after.jsonl").open("ab") as lines:
        lines.write(cut)
    assert compare(runs)[0] == 2
    assert "after.jsonl, line 201: not readable JSON" in capsys.readouterr().err


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
        (lambda made: [made("b"), made("r", n=9)], ("key=seed",), "does not make an arm"),
        (lambda made: [made("b"), made("r", n=9)], ("baseline=7",), "there is 0, 9"),
        (lambda made: [made("b"), made("r", n=9)], ("evaluation=test",), "checkpoint="),
        (lambda made: [made("b"), made("r", n=9, results=None)], (), "rlvr-vocab evaluate checkpoint="),
        (lambda made: [made("b"), made("c"), made("r", n=9)], (), "two runs with seed 0"),
        (lambda made: [made("b"), made("r", n=9)], ("confidence=95",), "must be above 0 and below 1"),
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
    code = "import sys, rlvr_vocab.exp.commands.compare; print('torch' in sys.modules, 'transformers' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
