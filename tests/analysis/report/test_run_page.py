"""The report of a run: what it says of runs that went well, badly or not at all, and what it never lets through."""

import re
import shlex
from pathlib import Path

import pytest
from markupsafe import Markup
from rich.console import Console
from scipy import stats

from rlvr_vocab.analysis.report.outcome import held_out_line, outcome_sentence
from rlvr_vocab.cli import main
from rlvr_vocab.config.command_table import ReportSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import differences
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.runs.record import run_record
from rlvr_vocab.runs.report import held_out_of, report_at_the_end, write_report

from ...read_text import faults_in
from .report_run import (
    HOSTILE,
    Row,
    Tags,
    answer,
    completion,
    metrics,
    report,
    rewrite,
    summary,
    words,
    write_completions,
    write_json,
    write_rows,
    write_run,
)

# All that a page of ours is made of; none of it runs or loads anything.
ELEMENTS = {
    *("html", "head", "meta", "link", "title", "style", "body", "header", "nav", "main", "section", "article"),
    *("h1", "h2", "h3", "h4", "p", "ol", "ul", "li", "a", "dl", "div", "dt", "dd", "details", "summary", "pre", "code"),
    *("table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "span", "b"),
    *("svg", "g", "path", "use", "defs", "clippath", "rect", "text"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the run in `runs/run`, for tests that only read it."""
    return report(write_run(tmp_path_factory.mktemp("runs") / "run"))


def lede(run: Path) -> str:
    """The sentence below the title, without the rest of the page."""
    record = run_record(run)
    return outcome_sentence(record, held_out_of(record))


def test_the_outcome_is_a_paired_difference_with_its_interval(run: Path) -> None:
    # 10 of 40 right before, the other 30 after: 30 problems gained, 10 lost.
    found = stats.ttest_1samp([1.0] * 30 + [-1.0] * 10, 0).confidence_interval(0.95)
    low, high = (f"{100 * end:+.1f}" for end in found)
    assert lede(run) == (
        "Held-out accuracy rose from 25.0 % to 75.0 % on 40 problems in 6 steps: +50.0 points, "
        f"95 % interval {low} to {high}, paired by problem."
    )


def test_only_problems_that_both_times_can_be_judged_are_compared(run: Path) -> None:
    rows = [answer(problem, right=True) for problem in range(40)]
    for row in rows[10:]:
        row["score"] = None
    write_rows(run / "evaluation" / "after.jsonl", rows)
    assert "stayed at 100.0 % on 10 problems" in lede(run)


def test_problems_with_tasks_are_told_by_task_and_difficulty(run: Path, page: str) -> None:
    def answers(right: range) -> list[Row]:
        kinds = [("lcm", "value 1-9"), ("sum", "terms 2"), ("sum", "terms 3"), ("sum", "terms 3")]
        tasks = (dict(zip(("task", "difficulty"), kinds[problem // 10], strict=True)) for problem in range(40))
        return [{**answer(problem, right=problem in right), **kind} for problem, kind in enumerate(tasks)]

    assert "by task" not in page
    write_rows(run / "evaluation" / "before.jsonl", answers(range(15)))
    write_rows(run / "evaluation" / "after.jsonl", answers(range(0, 40, 2)))
    shown = words(report(run))
    # Of lcm 10 and 5 of 10, of sums of two terms 5 and 5 of 10, of those of three 0 and 10 of 20.
    for row in (
        "lcm all 10 100.0% 50.0% −50.0 points",
        "sum all 30 16.7% 50.0% +33.3 points",
        "terms 2 10 50.0% 50.0% +0.0 points",
        "terms 3 20 0.0% 50.0% +50.0 points",
    ):
        assert row in shown, row


def test_samples_of_one_problem_are_averaged_before_problems_are_compared(run: Path) -> None:
    rows = [answer(problem, right=problem < 10 and sample < 3) for sample in range(4) for problem in range(40)]
    write_rows(run / "evaluation" / "after.jsonl", rows)
    found = stats.ttest_1samp([-0.25] * 10 + [0.0] * 30, 0).confidence_interval(0.95)
    low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in found)
    assert f"fell from 25.0 % to 18.8 % on 40 problems in 6 steps: −6.2 points, 95 % interval {low} to {high}" in lede(
        run
    )
    record = run_record(run)
    line = held_out_line(record, held_out_of(record))
    assert line is not None and list(line.values) == [0.25, 0.1875]


def test_held_out_problems_without_a_measurement_are_not_told_as_none(run: Path) -> None:
    after = run / "evaluation" / "after.jsonl"
    whole = after.read_bytes()
    none = [{**answer(problem, right=True), "score": None} for problem in range(40)]
    write_rows(after, none)
    assert "no held-out problem was graded both before and after" in lede(run)
    for damaged in (whole[:-9], b"\n".join(whole.split(b"\n")[:21]) + b"\n", b'{"no": "result"}\n' + whole):
        after.write_bytes(damaged)
        said = lede(run)
        assert "evaluation/after.jsonl" in said and ": the file is damaged and left out." in said
        assert "its summary has a held-out accuracy of 25.0 % before and 75.0 % after on 40 problems" in said
        assert "points" not in said
    assert said in words(report(run))
    (run / "summary.json").unlink()
    after.write_bytes(whole[:-9])
    assert "line 40: no result" in lede(run) and "was 25.0 % before GRPO, on 40 problems" in lede(run)


def test_what_became_of_the_problems_is_shown_as_it_was_written_down(run: Path) -> None:
    """As a run of two stages writes it, with one of everything that can be one."""
    stage = {"dataset": "arithmetic", "rows_read": 5000, "left_out": {}, "usable": 1, "noted": None, "kept": True}
    other = {**stage, "stage": "hard", "left_out": {"no_answer": 3}}
    write_json(run / "problems.json", {"held_out": {"measured_on": 1}, "training": [{**stage, "stage": "easy"}, other]})
    write_json(run / "environment.json", {"command": ["rlvr-vocab"], "versions": {"torch": "2.13.0", "vllm": None}})
    write_rows(run / "metrics.jsonl", [metrics(1, 1)])
    rewrite(run, "summary.json", steps=1, held_out_problems=1, train_problems=1)
    for name in ("before", "after"):
        write_rows(run / "evaluation" / f"{name}.jsonl", [answer(0, right=name == "after")])
    said = words(report(run))
    assert "rows_read: 5000 left_out: no_answer: 3 usable: 1" in said and "stage: hard" in said
    assert "vllm none" in said
    assert faults_in(said.partition(" Problems held_out:")[0]) == []


def test_a_run_without_held_out_problems_tells_its_reward(run: Path) -> None:
    for when in ("before", "after"):
        (run / "evaluation" / f"{when}.jsonl").unlink()
    assert "its summary has a held-out accuracy of 25.0 % before and 75.0 % after on 40 problems" in lede(run)
    rewrite(run, "summary.json", held_out_problems=0, accuracy_before=None, accuracy_after=None)
    said = lede(run)
    assert said.startswith("Trained 6 steps; nothing was held out, so accuracy was not measured. Mean reward went from")
    # 0.3 + 0.4 · step / 6 at steps 1 to 3, and 4 to 6.
    assert "from 0.433 over the first 3 logged steps to 0.633 over the last 3" in said


def test_an_unfinished_run_is_told_as_far_as_it_is(run: Path) -> None:
    (run / "summary.json").unlink()
    (run / "evaluation" / "after.jsonl").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "eval/accuracy": 0.5, "eval/problems": 40.0}\n{"step": 7, "loss"')
    said = lede(run)
    assert said.startswith("This run is unfinished: it has logged 6 of 200 steps.")
    assert "was 25.0 % before GRPO, on 40 problems, and 50.0 % after step 3." in said
    record = run_record(run)
    line = held_out_line(record, held_out_of(record))
    assert line is not None and list(line.steps) == [0, 3] and list(line.values) == [0.25, 0.5]


def test_a_run_that_has_logged_nothing_is_a_page_all_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    whole = write_run(tmp_path / "whole")
    (run / "config.yaml").write_text((whole / "config.yaml").read_text())
    page = report(run)
    said = words(page)
    assert "This run is unfinished. It has logged no step yet." in said
    for file in ("metrics.jsonl holds no step", "completions/ is empty", "no problems.json", "environment.json is not"):
        assert file in said
    assert "<svg" not in page and "The doctor found nothing" not in said


def test_findings_stand_with_their_remedy(run: Path) -> None:
    write_rows(
        run / "metrics.jsonl",
        [{**metrics(step, 60), "kl": 5.0 * step, "completions/clipped_ratio": 0.9} for step in range(1, 61)],
    )
    page = report(run)
    assert 'class="finding' in page and "Probable cause." in page and "training." in page
    assert "The doctor found nothing" not in page


def test_the_seconds_of_a_step_are_drawn_by_phase(run: Path) -> None:
    assert "Where the seconds of a step go" not in report(run)
    seconds = {"time/rewards": 0.0005, "time/backward": 0.2}
    rows = [{**metrics(step, 60), **seconds, "time/generation": 0.3 + step / 600} for step in range(1, 61)]
    write_rows(run / "metrics.jsonl", rows)
    svg = re.search(r'<svg[^>]*aria-label="Where the seconds of a step go\..*?</svg>', report(run), re.DOTALL)
    assert svg is not None
    shown = [name.removeprefix("time/") for name in PHASES]
    assert [word for word in re.findall(r">([^<>]+)</text>", svg[0]) if word in shown] == ["generation", "backward"]


def test_a_page_of_hostile_words_holds_nothing_that_runs_or_loads(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", reward="my.py:<script>$x_1$")
    config = (run / "config.yaml").read_text().replace("Think, then box the sum.", "<img src=x onerror=alert(3)>")
    (run / "config.yaml").write_text(config)
    rows = [{**completion(6, row), "prompt": HOSTILE, "completion": HOSTILE, "solution": HOSTILE} for row in range(8)]
    write_completions(run, 6, [{**row, "reason/accuracy": HOSTILE} for row in rows])
    hostile = f"{HOSTILE}\ud800"
    for when in ("before", "after"):
        write_rows(run / "evaluation" / f"{when}.jsonl", [answer(0, right=False, text=hostile), answer(1, right=True)])
    rewrite(run, "summary.json", held_out_problems=2)
    write_json(run / "problems.json", {"<script>": 1, "dropped": {HOSTILE: 3}, "notes": [HOSTILE]})
    rewrite(run, "environment.json", command=["rlvr-vocab", HOSTILE], commit=HOSTILE, versions={"<b>": "<i>"})
    page = report(run)
    found = Tags(page)
    assert found.elements <= ELEMENTS
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "action")]
    links = {value for name, value in found.attributes if name in ("href", "xlink:href")}
    assert {link for link in links if not link.startswith("#")} == {"data:,"}
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    assert not [sign for sign in page if ord(sign) < 32 and sign not in "\n\t\r"]
    assert "\u202e" not in page and page.count("�") >= 6
    assert "http-equiv" in page and "default-src 'none'" in page
    assert "my.py:&lt;script&gt;$x_1$" in page


def test_numbers_of_a_secret_form_are_masked(run: Path) -> None:
    token = "hf_" + "a1B2" * 8
    config = (run / "config.yaml").read_text().replace("Think, then box the sum.", f"say {token}")
    (run / "config.yaml").write_text(config)
    assert token not in report(run)


def test_a_page_that_cannot_be_written_leaves_the_one_before(run: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with pytest.raises(UserError, match=r"out=.*report.html cannot be written"):
        write_report(ReportSettings(run, blocked / "report.html", 3))
    page = report(run)
    (run / "environment.json").write_text("{half")
    with pytest.raises(UserError, match=r"environment\.json"):
        report(run)
    assert (run / "report.html").read_text() == page
    assert not list(run.glob(".*"))


def test_the_command_writes_where_it_is_told(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", f"run={run}", f"out={tmp_path}/new/page.html", "max_samples=2"]) == 0
    assert f"{tmp_path}/new/page.html" in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / "new" / "page.html").is_file() and not (run / "report.html").exists()
    assert not (run / "vocabulary.csv").exists()


def test_the_shown_command_trains_the_same_run_beside_it(run: Path) -> None:
    page = report(run)
    command = page.partition(">Reproduce</h2>")[2].partition('<pre class="command">')[2].partition("</pre>")[0]
    program, name, *argv = shlex.split(str(Markup(command).unescape()))
    assert (program, name) == ("rlvr-vocab", "train")
    again, first = read_settings("train", argv), read_settings("train", [f"config={run}"])
    assert [key for key, *_ in differences(first.resolved, again.resolved)] == ["exp_name"]
    assert again.output_dir == run.with_name("run_again")


def test_only_keys_that_differ_from_the_defaults_stand_unfolded(page: str) -> None:
    table = words(page.partition(">Configuration</h2>")[2].partition("<details>")[0])
    assert "training.num_generations 8 4" in table and "seed 3 42" in table
    assert "rewards.functions" not in table and "training.beta" not in table


def test_stages_and_every_reward_function_are_drawn(run: Path) -> None:
    rows = [
        {**metrics(step, 6), "stage": "easy" if step < 4 else "hard", "rewards/boxed/mean": step / 9}
        for step in range(1, 7)
    ]
    write_rows(run / "metrics.jsonl", rows)
    page = report(run)
    assert "stages easy, hard" in words(page)
    assert ">easy</text>" in page and ">hard</text>" in page
    assert "<figcaption>Each reward by itself" in page and ">boxed</text>" in page


def test_the_end_of_a_run_writes_a_report_once_and_again_where_it_is_old(run: Path) -> None:
    console = Console(file=(run / "said").open("w"), width=200)
    report_at_the_end(run, console)
    written = (run / "report.html").stat().st_mtime_ns
    report_at_the_end(run, console)
    assert (run / "report.html").stat().st_mtime_ns == written
    write_json(run / "summary.json", summary(6, seconds=3600.0))
    report_at_the_end(run, console)
    assert "1:00:00 in all" in (run / "report.html").read_text()


def test_a_report_that_fails_is_a_warning_and_no_more(run: Path) -> None:
    (run / "environment.json").write_text("{half")
    with (run / "said").open("w") as said:
        report_at_the_end(run, Console(file=said, width=500))
    assert "warning: the run is whole, but has no report:" in (run / "said").read_text()
    assert not (run / "report.html").exists()


def test_what_a_probe_found_stands_with_the_outcome(run):
    assert "what the copies mean" not in report(run)
    (run / "probe").mkdir()
    said = {"verdict": "no sign of meaning", "sentence": "No sign of meaning: <b>as good</b>."}
    write_json(run / "probe" / "probe.json", said)
    shown = report(run)
    assert "what the copies mean" in shown and "No sign of meaning: &lt;b&gt;as good&lt;/b&gt;." in shown
