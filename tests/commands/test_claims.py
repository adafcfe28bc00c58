"""The lines in which a comparison ends: each recomputed from the raw files, flagged, or not measured."""

import json
import re
import shlex
from html import unescape
from pathlib import Path
from statistics import mean

import pytest
import yaml

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.results import write_results
from tests.compared_runs import ENVIRONMENT, SUMMARY, answer, compare, flagged, three

LEAKED = "−1: 7 + 1 ="  # the held-out `-1: 7+1=` in another spelling
READING = {"name": "mine", "declared": None, "reads": True, "agrees": True, "sentence": "mine reads it"}


def claims(found):
    return {claim["name"]: claim for claim in found["claims"]}


def raw(run, name):
    return json.loads(Path(run, name).read_text())


def write(run, name, content):
    path = Path(run, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def red(page="compared/comparison.html"):
    """The flags at the top of a page."""
    header = Path(page).read_text().partition("</header>")[0]
    return [unescape(each) for each in re.findall(r'<li class="flag">(.*?)</li>', header)]


def test_each_line_holds_what_the_raw_files_hold(made):
    arms = {"0": three(made, "b", tokens=700), "100": three(made, "r", n=100, chance=0.8, trained=[LEAKED])}
    made("searched", seed=9, training__learning_rate=3e-5, summary=SUMMARY | {"finished": False})
    made("of_another_set", dataset__name="products")
    runs = [*arms["0"], *arms["100"]]
    lines = claims(compare(runs)[1])
    assert lines["arms"]["figures"]["seeds"] == {f"reasoning_vocab_size={value}": [0, 1, 2] for value in arms}
    for name, of_run in {
        "tokens sampled": lambda run: json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[-1])["num_tokens"],
        "steps": lambda run: raw(run, "summary.json")["steps"],
        "wall time of GRPO": lambda run: raw(run, "summary.json")["grpo_seconds"],
    }.items():
        by_hand = {f"reasoning_vocab_size={value}": list(map(of_run, arms[value])) for value in arms}
        assert lines[name]["figures"] == {"runs": by_hand, "mean": {arm: mean(by_hand[arm]) for arm in by_hand}}
    searched = {"reasoning_vocab_size=0": {"1e-05": 3, "3e-05": 1}, "reasoning_vocab_size=100": {"1e-05": 3}}
    assert lines["learning rates tried"]["figures"] == {"runs_by_rate": searched}
    answers = {run: list(map(json.loads, Path(run, "evaluation/after.jsonl").read_text().splitlines())) for run in runs}
    problems = lines["held-out problems"]["figures"]
    assert problems["different"] == len({each["prompt"] for of_run in answers.values() for each in of_run}) == 200
    assert problems["trained_on"] == {run: int(run in arms["100"]) for run in runs}
    assert "'-1: 7+1='" in lines["held-out problems"]["flags"][0]
    errors = {"rejected": {"answers": 0, "of": 200}, "accepted": {"answers": 0, "of": 200}}
    assert lines["grader"]["figures"] == errors and "accuracy" in lines["grader"]["text"]
    share = {value: mean(mean(each["score"] for each in answers[run]) for run in arms[value]) for value in arms}
    [effect] = lines["effect"]["figures"]["comparisons"]
    assert effect["difference"] == pytest.approx(share["100"] - share["0"])
    assert f"{100 * (share['100'] - share['0']):+.1f} points" in lines["effect"]["text"]
    tried = lines["tried and not reported"]
    assert tried["figures"]["unfinished"] == len(tried["figures"]["runs"]) == 1 and tried["flags"] == []
    assert "searched (no result)" in tried["text"]
    again = lines["to do it again"]["commands"]
    assert again[:-1] == ["rlvr-vocab train experiment=quickstart"] and "compare" in again[-1]
    assert main(shlex.split(again[-1])[1:]) == 0


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("arms", {"summary": SUMMARY | {"finished": False}}),
        ("tokens sampled", {"tokens": 1060}),
        ("steps", {"summary": SUMMARY | {"steps": 3}}),
        ("wall time of GRPO", {"summary": SUMMARY | {"grpo_seconds": 80.0}}),
        ("held-out problems", {"trained": [LEAKED]}),
        ("held-out problems", {"problems": 190}),
        ("effect", {"training__save_strategy": "best"}),
        ("to do it again", {"environment": ENVIRONMENT | {"commit": "def"}}),
        ("to do it again", {"environment": ENVIRONMENT | {"versions": {"trl": "1.17.0"}}}),
    ],
)
def test_a_weakness_is_a_flag_and_stands_in_red_at_the_top(made, name, other):
    _, found = compare([*three(made, "b"), *three(made, "r", n=100, **other)])
    assert set(flagged(found)) == {name, "learning rates tried"}
    assert red() == [flag for line in found["claims"] for flag in line["flags"]]
    assert all(f"**{flag[:9]}" in Path("compared/comparison.md").read_text() for flag in red())


def test_one_seed_is_flagged_and_no_effect_of_the_arm_is_claimed(made):
    _, found = compare([made("b"), made("r", n=100)])
    assert flagged(found) == ["arms", "learning rates tried", "effect"]
    assert sum("has one seed:" in each for each in red()) == 2
    assert "smallest effect" not in claims(found)["effect"]["text"]


def test_an_equal_search_is_no_flag_and_an_unequal_one_is(made, tmp_path):
    runs = [*three(made, "b"), *three(made, "r", n=100)]
    made("search_b", training__learning_rate=1e-4, results=None)
    made("search_r", n=100, training__learning_rate=3e-4, results=None)
    assert flagged(compare(runs)[1]) == []
    made("search_r2", n=100, training__learning_rate=1e-3, results=None)
    assert claims(compare(runs)[1])["learning rates tried"]["flags"][0].endswith("one arm had more chances.")
    line = claims(compare(runs, f"tried=[{tmp_path}/search_?]")[1])["learning rates tried"]
    assert line["status"] == "ok" and str(tmp_path / "search_?") not in line["text"]  # the runs that it means
    assert compare(runs, f"tried=[{tmp_path}/none*]")[0] == 2


def test_runs_of_a_compared_configuration_that_are_left_out_are_named(made, tmp_path):
    runs = [*three(made, "b"), *three(made, "r", n=100)]
    for seed in range(5, 17):
        made(f"unlucky{seed}", n=100, seed=seed, summary=SUMMARY | {"accuracy_after": 0.1})
    Path(tmp_path, "notes").mkdir()
    Path(tmp_path, "notes/config.yaml").write_text("theme: dark\n")
    tried = claims(compare(runs)[1])["tried and not reported"]
    assert tried["status"] == "flag" and "12 runs of a compared configuration" in tried["flags"][0]
    assert tried["flags"][0].count("unlucky") == 10 and "and 2 more" in tried["flags"][0]
    assert "unlucky10 (10.0%)" in tried["text"] and "notes cannot be read" in tried["text"]


def test_the_tokens_of_all_stages_count_and_those_thrown_away_were_not_trained_on(made):
    runs = [made("b"), made("r", n=100)]
    # Each stage counts its own tokens; a row has the mean of two steps.
    rows = [
        {"step": step, "stage": f"{step}", "num_tokens": 900, "dynamic/tokens_thrown_away": 100.0} for step in (2, 4)
    ]
    Path(runs[1], "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    lines = claims(compare(runs)[1])
    sampled, trained = (lines[f"tokens {what}"]["figures"]["mean"].values() for what in ("sampled", "trained on"))
    assert ([*sampled], [*trained]) == ([4000, 1800], [4000, 1800 - 4 * 100])


@pytest.mark.parametrize(
    ("file", "name", "command"),
    [
        ("metrics.jsonl", "tokens sampled", "train"),
        ("summary.json", "wall time of GRPO", "train"),
        ("environment.json", "to do it again", "train"),
        ("problems.json", "held-out problems", "check"),
        ("probe/probe.json", "meaning of the copies", "probe"),
        ("thought_reading.json", "rewards and the thought", "score"),
    ],
)
def test_a_line_without_its_file_is_not_measured_and_names_the_whole_command(made, file, name, command):
    runs = [made("b"), made("r", n=100)]
    for run in runs:
        path = Path(run, "config.yaml")
        rewards = {"functions": [{"name": "accuracy"}, {"name": "mine.py:mine"}]}
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"rewards": rewards}))
        write(run, "thought_reading.json", {"completions": 1, "problems": 1, "rewards": [READING]})
        write(run, "probe/probe.json", {"verdict": "no sign of meaning", "sentence": "No sign."})
        for folder in ("completions", "final_model"):
            Path(run, folder).mkdir()
    assert "Not measured" not in claims(compare(runs)[1])[name]["text"]
    Path(runs[1], file).unlink()
    line = claims(compare(runs)[1])[name]
    typed = line["commands"][0]
    assert line["text"].endswith(f"{runs[1]}. This would measure it:") and shlex.split(typed)[:2] == [
        "rlvr-vocab",
        command,
    ]
    read_settings(command, shlex.split(typed)[2:])  # it can be typed as it stands


def test_the_report_of_a_comparison_is_computed_anew(made, tmp_path, monkeypatch, error_of):
    runs = [made("b0"), made("r0", n=100)]
    before = claims(compare([Path(run).name for run in runs])[1])
    assert before["meaning of the copies"]["status"] == "not measured"
    for run in runs[1:]:
        write(run, "probe/probe.json", {"verdict": "no sign of meaning", "sentence": "No sign of <b>meaning</b>."})
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["report", "../compared"]) == 0
    after = claims(raw(tmp_path, "compared/report.json"))
    assert after.pop("meaning of the copies")["status"] == "ok"
    assert after == {name: before[name] for name in before if "copies" not in name}
    page = Path(tmp_path, "compared/report.html").read_text()
    assert "&lt;b&gt;meaning" in page and "<svg" not in page and red(Path(tmp_path, "compared/report.html"))
    assert r"No sign of \<b\>meaning" in Path(tmp_path, "compared/report.md").read_text()
    assert main(["report", "../compared", "figures=drawn"]) == 0 and Path("drawn/reward_in_training.svg").is_file()
    write(tmp_path / "compared", "comparison.json", {"key": "x"})
    assert "run rlvr-vocab compare" in error_of("report", "../compared")


@pytest.mark.parametrize(
    ("changed", "is_flag"),
    [
        ({}, True),
        ({"declared": "words"}, True),
        ({"declared": "nothing", "agrees": False}, True),
        ({"declared": "length", "agrees": False}, True),
        ({"declared": "length"}, False),
        ({"reads": False}, False),
    ],
)
def test_a_reward_that_reads_the_thought_is_a_flag_unless_it_is_declared_to(made, changed, is_flag):
    runs = [Path(run).name for run in (made("b0"), made("r0", n=100))]
    write(runs[1], "thought_reading.json", {"completions": 1, "problems": 1, "rewards": [READING | changed]})
    line = claims(compare(runs)[1])["rewards and the thought"]
    assert "mine reads it (1 run)." in line["text"]
    assert line["flags"] == ["Reward mine reads the thought, so training shapes it (r0: mine reads it)."] * is_flag


@pytest.mark.parametrize(
    ("reward", "declaration"),
    [
        ({"name": "mine.py:accuracy"}, "accuracy declares nothing; not measured"),
        ({"name": "llm_judge", "params": {"rubric": "x"}}, "llm_judge declares that it reads nothing of the thought"),
        ({"name": "llm_judge", "params": {"sees": "turn"}}, "llm_judge declares that it reads words of the thought"),
    ],
    ids=str,
)
def test_without_a_measurement_a_reward_is_what_it_declares_with_its_parameters(made, reward, declaration):
    runs = [made("b"), made("r", n=100)]
    for run in runs:
        path = Path(run, "config.yaml")
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"rewards": {"functions": [reward]}}))
    assert declaration in claims(compare(runs)[1])["rewards and the thought"]["text"]


def test_errors_of_the_grader_are_measured_on_gold_answers_and_shown(made):
    runs = [made("b"), made("r", n=100)]
    golds = ["1/2", "0.5", "3", "3.0", "]["]
    for run in runs:
        answers = [answer(number, -1, number % 2, "x") for number in range(len(golds))]
        rows = [vars(each) | {"solution": gold} for each, gold in zip(answers, golds, strict=True)]
        write_results([type(answers[0])(**row) for row in rows], Path(run, "evaluation/after.jsonl"))
    grader = claims(compare(runs)[1])["grader"]
    # 0.5 for 1/2 and 3.0 for 3; 3 for 0.5, ][ for 3.0 and 1/2 for ][ are wrong.
    assert grader["figures"]["accepted"] == {"answers": 2, "of": 5}
    assert any("0.5 for 1/2 and 3.0 for 3" in flag for flag in grader["flags"])


def test_a_grader_of_ones_own_is_not_imported_and_not_measured(made):
    recorded = {
        "name": "mine",
        "functions": [{"name": "mine", "file": "mine.py", "sha256": "0", "params": {}, "weight": 1.0}],
    }
    Path("mine.py").write_text("raise SystemExit('imported')\n")
    runs = [
        made(name, n=n, summary=SUMMARY | {"grader": recorded | {"threshold": 1.0}}) for name, n in (("b", 0), ("r", 9))
    ]
    line = claims(compare(runs)[1])["grader"]
    assert line["status"] == "not measured" and line["commands"][0].startswith("rlvr-vocab score config=")
    assert line["figures"] == {}
