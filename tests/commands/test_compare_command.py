"""`rlvr-vocab compare` on made-up folders of runs, for which nothing was trained: arms, flags, files, refusals."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest
import yaml

from rlvr_vocab.cli import main
from rlvr_vocab.record.results import ProblemResult, read_lines, write_results
from tests.compared_runs import ENVIRONMENT, compare, flagged, flags, three

ASKED = {"problems": 200, "samples": 1, "temperature": 1.0, "weights": "one", "checkpoint": "x"}


def evaluated(made, *asked):
    runs = []
    for number, each in enumerate(asked):
        runs.append(made(f"e{number}", n=100 * number, results="final_model/evaluation/test/results.jsonl"))
        Path(runs[-1], "final_model/evaluation/test/settings.json").write_text(json.dumps(each))
    return runs


@pytest.mark.parametrize("own", [True, False])
def test_arms_are_found_and_the_difference_is_told(made, own, capsys):
    reasoning, plain = three(made, "r", n=100, chance=0.85, own=own), three(made, "b", chance=0.4, own=own)
    code, found = compare([*reasoning, *plain])
    out = capsys.readouterr().out
    assert code == 0 and Path("compared/comparison.html").read_text().count("<svg") == 2  # difference, reward
    assert out.startswith("reasoning_vocab_size=100 is higher than reasoning_vocab_size=0 (difference +")
    assert [arm["name"] for arm in found["arms"]] == ["reasoning_vocab_size=0", "reasoning_vocab_size=100"]
    [result] = found["comparisons"]
    assert result["verdict"] == "higher" and result["paired"]
    assert result["problems"] == (600 if own else 200)
    assert result["difference"] == pytest.approx(mean(result["other_scores"]) - mean(result["baseline_scores"]))
    assert flagged(found) == ["learning rates tried"]


def test_other_keys_that_differ_are_listed_and_warned_about(made, error_of):
    runs = [*three(made, "b"), *three(made, "r", n=100, training__learning_rate=1e-4)]
    assert error_of("compare", *runs).endswith(" as in arms=model.reasoning_vocab_size\n")
    _, found = compare(runs, "key=model.reasoning_vocab_size")
    assert found["differences"] == {"training.learning_rate": ["1e-05"] * 3 + ["0.0001"] * 3}
    assert flags(found, "training.learning_rate (1e-05 and 0.0001)") == 1
    # Copies are like nothing in a run that has none.
    ranks = [*three(made, "p", model__reasoning_rank=16), *three(made, "q", n=100, model__reasoning_rank=None)]
    assert compare(ranks)[1]["differences"] == {}
    # So are the figures of an adapter in one without it.
    adapters = three(made, "a", model__lora={"enabled": True, "r": 4})
    assert compare([*three(made, "w"), *adapters])[1]["differences"] == {}


def test_two_contents_of_a_file_are_two_arms(made):
    one, two, plain = ([made(f"{name}{seed}", seed=seed) for seed in range(2)] for name in "abp")
    for runs, code in ((one, "0a"), (two, "1b")):
        for path in (Path(run, "config.yaml") for run in runs):
            config = yaml.safe_load(path.read_text())
            config["training"]["trainer"], config["code"] = "/x/my.py:Mine", {"/x/my.py": code}
            path.write_text(yaml.safe_dump(config))
    assert {arm["name"] for arm in compare([*one, *two])[1]["arms"]} == {"my.py=0a", "my.py=1b"}
    _, found = compare([*one, *plain])
    assert [arm["name"] for arm in found["arms"]] == ["trainer=my.py:Mine", "trainer=null"]
    assert found["key"] == "training.trainer" and found["differences"] == {}


def test_an_evaluation_that_is_not_finished_is_refused(made, error_of):
    runs = evaluated(made, ASKED, {**ASKED, "samples": 4})
    error = error_of("compare", f"runs=[{','.join(runs)}]", "evaluation=test")
    assert "holds 200 of 800 answers: rlvr-vocab evaluate checkpoint=" in error and "samples=4" in error


def test_neither_secrets_nor_what_a_terminal_obeys_is_shown(made, capsys):
    secret = f"hf_{'abcDEF123' * 4}"
    runs = [
        made("b", dataset__name=f"x{chr(27)}[2J", environment={**ENVIRONMENT, "commit": "\x1b]0;"}),
        made("r", dataset__name="y [bold]z<script>", training__hub_token=secret),
    ]
    assert compare(runs, "key=dataset.name")[0] == 0
    page = Path("compared/comparison.html").read_text() + Path("compared/comparison.json").read_text()
    shown = capsys.readouterr().out
    assert secret not in page + shown
    assert "\x1b" not in page + shown and "name=y [bold]z" in shown
    assert "<script" not in Path("compared/comparison.html").read_text() and "z&lt;script&gt;" in page


def test_values_of_the_baseline_are_compared_as_numbers(made):
    runs = [made("r", training__beta=0.04), made("b", training__beta=0.0), made("c", seed=1, training__beta=0)]
    assert compare(runs)[1]["comparisons"][0]["baseline"] == "beta=0.0"
    assert compare(runs, "baseline=0")[0] == 0


@pytest.mark.parametrize(
    ("key", "value"), [("tools", ["calculator"]), ("environment", {"name": "e.py:E", "params": {}})]
)
def test_runs_without_tools_are_the_baseline_of_runs_with_tools(made, key, value):
    runs = [made("t"), made("b")]
    path = Path(runs[0], "config.yaml")
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {key: value}))
    _, found = compare(runs)
    assert found["key"] == key and found["arms"][0]["value"] in ("[]", "null")


def test_answers_without_a_grade_are_left_out_and_counted(made):
    runs = [made("b"), made("r", n=100)]
    path = Path(runs[0], "evaluation", "after.jsonl")
    first, *others = read_lines(path, ProblemResult)
    write_results([replace(first, score=None), *others], path)
    _, found = compare(runs)
    assert found["comparisons"][0]["problems"] == 199
    assert flags(found, "1 answer without a grade") == 1


def test_several_arms_are_compared_with_the_baseline(made):
    runs = [*three(made, "s", n=10), *three(made, "b"), *three(made, "f", n="full", chance=0.95)]
    _, found = compare(runs)
    assert [each["other"] for each in found["comparisons"]] == ["reasoning_vocab_size=10", "reasoning_vocab_size=full"]
    assert found["comparisons"][1]["adjusted_p"] > found["comparisons"][1]["p"]
    _, other = compare(runs, "baseline=full")
    assert {each["baseline"] for each in other["comparisons"]} == {"reasoning_vocab_size=full"}
    assert other["comparisons"][1]["difference"] == pytest.approx(-found["comparisons"][1]["difference"])


def test_arms_that_have_names_are_compared_tabled_and_drawn(made, tmp_path):
    three(made, "b", chance=0.4)
    three(made, "r", n=100, chance=0.85, training__beta=0.04)
    arms = f"arms={{no_copies: {tmp_path}/b*, '50% | copies': [{tmp_path}/r?]}}"
    for ending in ("csv", "tex", "md"):
        assert main(["compare", arms, "out=compared", f"table=t/results.{ending}", "figures=drawn"]) == 0
    found = json.loads(Path("compared/comparison.json").read_text())
    [result] = found["comparisons"]
    assert result["baseline"] == "no_copies" and result["verdict"] == "higher"
    assert flags(found, "differ in training.beta") == 1 == flags(found, "differ in model.reasoning_vocab_size")
    plain, copies = csv.DictReader(Path("t/results.csv").read_text().splitlines())
    assert plain["difference"] == "" and float(copies["difference"]) == result["difference"]
    assert float(copies["mean"]) == pytest.approx(mean(result["other_scores"])) and copies["grpo_seconds"] == "61.0"
    assert r"no\_copies & 3 & " in Path("t/results.tex").read_text()
    assert r"50\% $|$ copies & 3 & " in Path("t/results.tex").read_text()
    assert [line.count(" | ") for line in Path("t/results.md").read_text().splitlines()] == [8] * 4
    drawn = [
        f"{name}.{kind}" for name in ("difference_from_the_baseline", "reward_in_training") for kind in ("pdf", "svg")
    ]
    assert sorted(path.name for path in Path("drawn").iterdir()) == drawn
    assert main(["compare", arms, "baseline=50% | copies", "out=compared"]) == 0
    assert json.loads(Path("compared/comparison.json").read_text())["comparisons"][0]["other"] == "no_copies"


def test_one_key_that_sets_named_arms_apart_is_the_one_under_test(made, tmp_path):
    for name, n in (("b", 0), ("r", 100)):
        three(made, name, n=n)
    assert main(["compare", f"arms={{copies: {tmp_path}/r*, plain: {tmp_path}/b*}}", "out=compared"]) == 0
    found = json.loads(Path("compared/comparison.json").read_text())
    assert found["key"] == "model.reasoning_vocab_size" and flagged(found) == ["learning rates tried"]
    assert [(arm["name"], arm["value"]) for arm in found["arms"]] == [("copies", "100"), ("plain", "0")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs=[b,b]"], "is given twice"),
        (["runs=b"], "two runs at least"),
        (["runs=[b,c]"], "only one arm"),
        (["runs=[b,r]", "key=model.nme"], "they differ in model.reasoning_vocab_size"),
        (["runs=[b,r]", "arms=model.nme"], "arms=model.nme: not a key that divides"),
        (["runs=[b,r]", "baseline=7"], "there are 0, 9"),
        (["runs=[b,r]", "table=a.xlsx"], "a name that ends in .csv, .tex, .md"),
        (["runs=[b,r]", "arms={a: b, c: r}"], "arms: names all runs"),
        (["runs=[b,r]", "evaluation=test"], "checkpoint="),
        (["runs=[b,unmeasured]"], "rlvr-vocab evaluate checkpoint="),
        (["arms={a: b, c: [b, r]}"], "b is given twice"),
        (["arms={a: b*}"], "two arms at least"),
        (["arms={a: b*, c: x*}"], "arms.c=x*: no folder of a run matches x*"),
        (["arms={a: b, c: r}", "baseline=d"], "no such arm; there are a, c"),
    ],
)
def test_bad_input_is_refused_in_one_line(made, words, message, error_of):
    for name, given in (("b", {}), ("c", {"seed": 1}), ("r", {"n": 9}), ("unmeasured", {"n": 9, "results": None})):
        made(name, **given)
    assert message in error_of("compare", *words)


def test_other_training_problems_are_warned_about(made, capsys):
    runs = [made("b"), made("r", n=100)]
    for run, fingerprint in zip(runs, "xy", strict=True):
        (Path(run) / "problems.json").write_text(json.dumps({"training": [{"sha256": fingerprint}]}))
    assert flags(compare(runs)[1], "trained on other problems") == 1
    with (Path(runs[0]) / "evaluation/after.jsonl").open("ab") as lines:
        lines.write('{"problem": "é'.encode()[:-1])
    assert compare(runs)[0] == 2  # no claim is made of a broken file
    assert "after.jsonl, line 201: no result of an evaluation" in capsys.readouterr().err


def test_answers_of_evaluate_that_were_sampled_otherwise_are_warned_about(made):
    of_its_own = {"weights": "two", "format": {"name": "think_format"}}
    _, found = compare(evaluated(made, ASKED, {**ASKED, **of_its_own, "temperature": 0.0}), "evaluation=test")
    assert found["measured"] == "results named test"
    assert flags(found, "sampled with different") == 1 == flags(found, "different temperature (1.0 and 0.0)")


def test_two_seeds_and_repeated_problems_are_warned_about(made):
    runs = [*three(made, "b")[:2], *three(made, "r", n=100)[:2]]
    assert flags(compare(runs)[1], "Fewer than three seeds (reasoning_vocab_size=0 and") == 1
    for run in runs:
        results = Path(run, "evaluation/after.jsonl")
        [first, *_] = lines = results.read_text().splitlines()
        results.write_text("\n".join([*lines, json.dumps({**json.loads(first), "problem": len(lines)})]) + "\n")
    assert flags(found := compare(runs)[1], "201 held-out rows hold 200 different problems") == 1
    assert found["comparisons"][0]["problems"] == 200


def test_seeds_without_a_partner_are_warned_about(made):
    _, found = compare([*three(made, "b", own=True), *three(made, "r", n=100, own=True)[:2]])
    assert flags(found, "has no run with seed 2") == 1
    _, found = compare([made("p"), made("q", n=100, seed=5)])
    assert not found["comparisons"][0]["paired"] and flags(found, "which another arm has") == 2
