"""The report of a run: what it says of runs that went well, badly or not at all, and what it never lets through."""

import json
import shlex
import shutil
from dataclasses import asdict
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from markupsafe import Markup
from rich.console import Console
from scipy import stats

from rlvr_vocab.analysis.report.outcome import held_out_line, outcome_sentence
from rlvr_vocab.analysis.report.run_page import choose_samples
from rlvr_vocab.cli import main
from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml, differences
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.results import ProblemResult
from rlvr_vocab.runs.folder import run_record
from rlvr_vocab.runs.report import held_out_of, report_at_the_end, write_report

SECRET = "hf_" + "a1B2" * 8
# All that a page of ours is made of; none of it runs or loads anything.
ELEMENTS = {
    *("html", "head", "meta", "link", "title", "style", "body", "header", "nav", "main", "section", "article"),
    *("h1", "h2", "h3", "h4", "p", "ol", "ul", "li", "a", "dl", "div", "dt", "dd", "details", "summary", "pre", "code"),
    *("table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "span", "b"),
    *("svg", "g", "path", "use", "defs", "clippath", "rect", "text"),
}
# Lone halves of a surrogate pair cannot stand in a Parquet file; they do in results.
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> $x_{1}$ \x00\x1b[31m\u202e & \u2028"


def write_run(folder, reward="accuracy"):
    """A finished run of six steps whose reward rises; 40 held-out problems, 10 right before and 30 after."""
    settings = read_settings("train", ["experiment=quickstart", "seed=3", f"output_dir={folder}"])
    (folder / "completions").mkdir(parents=True)
    (folder / "evaluation").mkdir()
    resolved = dict(settings.resolved)
    resolved["rewards"] = {"functions": [{**resolved["rewards"]["functions"][0], "name": reward}]}
    (folder / "config.yaml").write_text(config_yaml(resolved), encoding="utf-8")
    write_rows(folder / "metrics.jsonl", [metrics(step, 6, reward) for step in range(1, 7)])
    for step in range(1, 7):
        write_completions(folder, step, [completion(step, row, reward) for row in range(8)])
    write_rows(folder / "evaluation" / "before.jsonl", [answer(problem, right=problem < 10) for problem in range(40)])
    write_rows(folder / "evaluation" / "after.jsonl", [answer(problem, right=problem >= 10) for problem in range(40)])
    summary = {"accuracy_before": 0.25, "accuracy_after": 0.75, "held_out_problems": 40, "train_problems": 360}
    summary |= {"finished": True, "steps": 6, "grpo_seconds": 4.0, "seconds": 66.0, "warmup_steps": 400}
    write_json(folder / "summary.json", summary)
    write_json(folder / "environment.json", {"command": ["rlvr-vocab", "quickstart"], "versions": {"torch": "2.13.0"}})
    return folder


def metrics(step, steps, reward="accuracy"):
    value = 0.3 + 0.4 * step / steps
    return {
        "step": step,
        "loss": 0.01,
        "reward": value,
        "reward_std": 0.45,
        "groups/reward_std": 0.3,
        f"rewards/{reward}/mean": value,
        "frac_reward_zero_std": 0.1,
        "grad_norm": 1.0,
        "learning_rate": 2e-4 * (1 - step / steps),
        "completions/mean_length": 20,
        "completions/clipped_ratio": 0.0,
        "entropy/thinking": 0.9 - 0.01 * step,
        "step_time": 0.7,
    }


def completion(step, row, reward="accuracy"):
    text = f"<think>{step}+{row}</think>\\boxed{{{row}}}"
    return {
        "step": step,
        "prompt": f"system\nBox it.\nuser\n{step}0+{row // 4}=\nassistant\n",
        "completion": text,
        "solution": str(row),
        "advantage": row - 3.5,
        "reward": row / 7,
        f"reward/{reward}": row / 7,
    }


def answer(problem, *, right, text="\\boxed{1}"):
    score = 1.0 if right else 0.0
    return asdict(ProblemResult(problem, 0, f"{problem}+1=", "1", text, score, 9, 5, 2, True, True))


def write_completions(folder, step, rows):
    pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"step_{step:05}.parquet")


def write_rows(path, rows):
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def write_json(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")


class Tags(HTMLParser):
    """The elements and attributes of a page, and its words outside of the style sheet."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.attributes, self.words = set(), set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes.update((name, value or "") for name, value in attrs)

    def handle_data(self, data):
        self.words.append(data)


def report(run):
    write_report(ReportSettings(run, run / "report.html", None, 24))
    return (run / "report.html").read_text(encoding="utf-8")


def words(page):
    return " ".join(" ".join(Tags(page).words).split())


def rewrite(run, name, **changed):
    path = run / name
    write_json(path, {**json.loads(path.read_text()), **changed})


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def lede(run):
    """The sentence below the title, without the rest of the page."""
    record = run_record(run)
    return outcome_sentence(record, held_out_of(record))


def test_the_outcome_is_a_paired_difference_with_its_interval(run):
    # 10 of 40 right before, the other 30 after: 30 problems gained, 10 lost.
    found = stats.ttest_1samp([1.0] * 30 + [-1.0] * 10, 0).confidence_interval(0.95)
    low, high = (f"{100 * end:+.1f}" for end in found)
    assert lede(run) == (
        "Held-out accuracy rose from 25.0 % to 75.0 % on 40 problems in 6 steps: +50.0 points, "
        f"95 % interval {low} to {high}, paired by problem."
    )


def test_only_problems_that_both_times_can_be_judged_are_compared(run):
    rows = [answer(problem, right=True) for problem in range(40)]
    for row in rows[10:]:
        row["score"] = None
    write_rows(run / "evaluation" / "after.jsonl", rows)
    assert "stayed at 100.0 % on 10 problems" in lede(run)


def test_samples_of_one_problem_are_averaged_before_problems_are_compared(run):
    rows = [answer(problem, right=problem < 10 and sample < 3) for sample in range(4) for problem in range(40)]
    write_rows(run / "evaluation" / "after.jsonl", rows)
    found = stats.ttest_1samp([-0.25] * 10 + [0.0] * 30, 0).confidence_interval(0.95)
    low, high = (f"{100 * end:+.1f}".replace("-", "−") for end in found)
    assert f"fell from 25.0 % to 18.8 % on 40 problems in 6 steps: −6.2 points, 95 % interval {low} to {high}" in lede(
        run
    )


def test_held_out_problems_without_a_measurement_are_not_told_as_none(run):
    after = run / "evaluation" / "after.jsonl"
    whole = after.read_bytes()
    for damaged in (whole[:-9], b'{"no": "result"}\n' + whole):
        after.write_bytes(damaged)
        with pytest.raises(UserError, match=r"evaluation/after\.jsonl, line"):
            lede(run)


def test_an_unfinished_run_is_told_as_far_as_it_is(run):
    (run / "summary.json").unlink()
    (run / "evaluation" / "after.jsonl").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "eval/accuracy": 0.5, "eval/problems": 40.0}\n{"step": 7, "loss"')
    shown = lede(run)
    assert shown.startswith("This run is unfinished: it has logged 6 of 200 steps.")
    record = run_record(run)
    line = held_out_line(record, held_out_of(record))
    assert line is not None and list(line.steps) == [0, 3] and list(line.values) == [0.25, 0.5]


def test_a_run_that_has_logged_nothing_is_a_page_all_the_same(run):
    for path in [path for path in run.iterdir() if path.name != "config.yaml"]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = report(run)
    assert "This run is unfinished: it has logged no step yet." in words(page)
    assert "<svg" not in page and "The doctor found nothing" not in page


def test_findings_phases_stages_and_rewards_of_a_run_are_shown(run):
    sick = {"kl": 5.0, "completions/clipped_ratio": 0.9, "rewards/boxed/mean": 0.5, "time/backward": 0.2}
    rows = [{**metrics(step, 60), **sick, "stage": "ab"[step > 30]} for step in range(1, 61)]
    write_rows(run / "metrics.jsonl", rows)
    reading = {
        "name": "mine",
        "declared": None,
        "sentence": "mine reads <all>",
        "reads": False,
        "moved": {},
        "low": None,
    }
    write_json(run / "thought_reading.json", {"completions": 9, "problems": 3, "rewards": [reading]})
    page = report(run)
    assert "<td>mine</td>" in page and "<td>mine reads &lt;all&gt;</td>" in page
    assert 'class="finding' in page and "training.max_completion_length" in page
    assert "The doctor found nothing" not in page
    assert "stages a, b" in words(page) and ">rewards/boxed/mean</text>" in page
    assert 'aria-label="Seconds of a step. time/backward: 0.2 at step 1, 0.2 at step 60"' in page


def test_a_page_of_hostile_words_holds_nothing_that_runs_or_loads(tmp_path):
    run = write_run(tmp_path / "run", reward="my.py:<script>$x_1$")
    config = (run / "config.yaml").read_text().replace("Think, then box the sum.", f"<img src=x> {SECRET}")
    (run / "config.yaml").write_text(config)
    rows = [{**completion(6, row), "prompt": HOSTILE, "completion": HOSTILE, "solution": HOSTILE} for row in range(8)]
    write_completions(run, 6, [{**row, "reason/accuracy": HOSTILE} for row in rows])
    hostile = f"{HOSTILE}\ud800"
    for when in ("before", "after"):
        write_rows(run / "evaluation" / f"{when}.jsonl", [answer(0, right=False, text=hostile), answer(1, right=True)])
    write_json(run / "problems.json", {"<script>": 1, "dropped": {HOSTILE: 3}, "notes": [HOSTILE]})
    rewrite(run, "environment.json", commit=HOSTILE, versions={"<b>": "<i>"})
    page = report(run)
    found = Tags(page)
    assert found.elements <= ELEMENTS
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "action")]
    links = {value for name, value in found.attributes if name in ("href", "xlink:href")}
    assert {link for link in links if not link.startswith("#")} == {"data:,"}
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    assert not [sign for sign in page if ord(sign) < 32 and sign not in "\n\t\r"]
    assert "\u202e" not in page and page.count("�") >= 3
    assert SECRET not in page and "http-equiv" in page and "default-src 'none'" in page
    assert "my.py:&lt;script&gt;$x_1$" in page


def test_the_command_writes_where_it_is_told(run, tmp_path):
    assert main(["report", f"run={run}", f"out={tmp_path}/new/page.html", "max_samples=2"]) == 0
    assert (tmp_path / "new" / "page.html").is_file() and not (run / "report.html").exists()


def test_the_shown_command_trains_the_same_run_beside_it(run):
    page = report(run)
    command = page.partition(">Reproduce</h2>")[2].partition('<pre class="command">')[2].partition("</pre>")[0]
    program, name, *argv = shlex.split(str(Markup(command).unescape()))
    assert (program, name) == ("rlvr-vocab", "train")
    again, first = read_settings("train", argv), read_settings("train", [f"config={run}"])
    assert [key for key, *_ in differences(first.resolved, again.resolved)] == ["exp_name"]
    assert again.output_dir == run.with_name("run_again")


def test_the_end_of_a_run_writes_a_report_once_and_again_where_it_is_old(run):
    report_at_the_end(run, Console(quiet=True))
    written = (run / "report.html").stat().st_mtime_ns
    report_at_the_end(run, Console(quiet=True))
    assert (run / "report.html").stat().st_mtime_ns == written
    rewrite(run, "summary.json", seconds=3600.0)
    report_at_the_end(run, Console(quiet=True))
    page = (run / "report.html").read_text()
    assert "1:00:00 in all" in page and "400 steps; its time counts only where" in page


def test_a_report_that_fails_is_a_warning_and_leaves_the_one_before(run):
    page = report(run)
    (run / "environment.json").write_text("{half")
    rewrite(run, "summary.json", seconds=3600.0)
    with (run / "out").open("w") as out:
        report_at_the_end(run, Console(file=out, width=500))
    assert "warning: the run is complete, but has no report:" in (run / "out").read_text()
    assert (run / "report.html").read_text() == page and not list(run.glob(".*"))


def test_accuracy_in_training_is_drawn_beside_held_out_accuracy_where_scores_are_0_or_1(run):
    for part, is_shown in ((1.0, True), (0.6, False)):  # of the spread of scores of 0 and 1
        rows = [metrics(step, 6) for step in range(1, 7)]
        spreads = [{"rewards/accuracy/std": part * (row["reward"] * (1 - row["reward"])) ** 0.5} for row in rows]
        write_rows(run / "metrics.jsonl", [row | spread for row, spread in zip(rows, spreads, strict=True)])
        assert ("in training" in report(run)) == is_shown


# --- samples ---


def test_samples_are_chosen_by_rule(run):
    for step in range(7, 50):
        write_completions(run, step, [{**completion(step, row), "reward": -row / 7} for row in range(8)])
    chosen, unreadable = choose_samples(CompletionFiles(run / "completions"), 9)
    assert [each.step for _, each in chosen] == [1, 1, 1, 25, 25, 25, 49, 49, 49] and not unreadable
    highest, lowest, random = (each.row for _, each in chosen[3:6])
    assert (highest, lowest) == (1, 8) and random not in (1, 8)
    assert choose_samples(CompletionFiles(run / "completions"), 9)[0] == chosen
    assert len(choose_samples(CompletionFiles(run / "completions"), 1)[0]) == 1
