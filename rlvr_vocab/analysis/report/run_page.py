"""The page of one run: outcome, curves, findings, samples, vocabulary, configuration, how to repeat it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup

from rlvr_vocab.analysis.charts import Chart, Line, line_chart
from rlvr_vocab.analysis.doctor.diagnose import too_short
from rlvr_vocab.analysis.doctor.history import Finding, Window
from rlvr_vocab.analysis.report.outcome import HeldOutAnswers, held_out_line, outcome_sentence
from rlvr_vocab.analysis.report.page import Page, chart_grid, facts, macro, paragraph, samples, table
from rlvr_vocab.analysis.samples import Sample, is_given, shown_sample
from rlvr_vocab.analysis.vocabulary import VocabularyAnalysis, evenly_spread
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.record.metrics import PHASES, RunRecord
from rlvr_vocab.terminal import clock
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.marking import Marker, marked_html

MOST_MOMENTS = 5
_SEED = 0
_HOW_CHOSEN = (
    "At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one "
    "drawn with a fixed seed."
)


@dataclass(frozen=True)
class RunReport:
    """Everything on the page; environment, probe: the JSON files of these names; None without the file.

    marker: None without a model folder to read the vocabulary from: tokens then have no colour.
    vocabulary: None for a baseline, or without an initial model. configuration: as YAML.
    changed_keys: key, value and default of those that differ from the defaults.
    changed_on_resume: time, key, old and new value. command_to_repeat: trains the run again.
    """

    record: RunRecord
    held_out: HeldOutAnswers
    findings: Sequence[Finding]
    completions: CompletionFiles
    marker: Marker | None
    vocabulary: VocabularyAnalysis | None
    environment: Mapping[str, Any] | None
    probe: Mapping[str, Any] | None
    configuration: str
    changed_keys: Sequence[tuple[str, str, str]]
    changed_on_resume: Sequence[tuple[str, str, str, str]]
    command_to_repeat: str
    max_samples: int

    @property
    def without_findings(self) -> str:
        return f"The doctor found nothing{': ' * bool(short := too_short(self.record))}{short}."


def run_page(report: RunReport, charts: Sequence[Chart]) -> Page:
    """The page as it can be rendered; `charts` are its `curves`."""
    record = report.record
    findings, vocabulary, configuration, reproduce = (
        macro("run.html.j2", name) for name in ("findings", "vocabulary", "configuration", "reproduce")
    )
    thoughts = [(each["name"], each["declared"] or "not declared", each["sentence"]) for each in record.thoughts]
    nothing = paragraph("metrics.jsonl holds no step yet.", "missing")
    sections = {
        "Outcome": facts(_facts(report)),
        "Curves": chart_grid(charts) if record.rows else nothing,
        "Findings": findings(report) if record.rows else nothing,
        "Rewards and the thought": table(("reward", "declared to read", "measured"), thoughts)
        if thoughts
        else paragraph("Not measured in this run.", "missing"),
        "Samples": Markup().join(_samples(report)),
        "Vocabulary": vocabulary(report),
        "Configuration": configuration(report),
        "Reproduce": reproduce(report),
    }
    return Page(record.facts.exp_name, outcome_sentence(record, report.held_out), sections)


def _facts(report: RunReport) -> Iterator[tuple[str, str]]:
    record, run, summary = report.record, report.record.facts, report.record.summary or {}
    yield "model", run.model
    yield "problems", run.dataset
    yield "reasoning tokens", f"{run.reasoning_vocab_size:,}" if run.reasoning_vocab_size else "none (baseline)"
    if run.tools:
        yield "tools", ", ".join(run.tools)
    yield "rewards", ", ".join(f"{each.name} × {each.weight:g}" for each in run.rewards) or "none"
    yield "logged up to step", f"{record.last_step:,}" + ("" if run.max_steps is None else f" of {run.max_steps:,}")
    if stages := dict.fromkeys(str(row["stage"]) for row in record.rows if row.get("stage")):
        yield "stages", ", ".join(stages)
    yield "group size", f"{run.num_generations:,}"
    for name, key in (("to train on", "train_problems"), ("held out", "held_out_problems")):
        if summary.get(key) is not None:
            yield name, pluralize(summary[key], "problem")
    if "seconds" in summary and "grpo_seconds" in summary:
        yield "time", f"{clock(summary['grpo_seconds'])} of GRPO, {clock(summary['seconds'])} in all"
    if summary.get("warmup_steps"):
        yield "warm-up", f"{pluralize(summary['warmup_steps'], 'step')}; its time counts only where this run made it"
    if report.probe is not None:
        yield "what the copies mean", report.probe["sentence"]


# --- curves ---

# Title, label of the axis, metrics, and a note. A label that begins with "share" is in per cent.
_CURVES: tuple[tuple[str, str, Sequence[str], str], ...] = (
    ("Reward", "reward", ("reward", "groups/reward_std"), "Without a spread within groups nothing is learned."),
    (
        "Completions",
        "share",
        ("frac_reward_zero_std", "completions/clipped_ratio", "thinking/closed", "completions/duplicates"),
        "frac_reward_zero_std: in groups of equal rewards, which teach nothing.",
    ),
    (
        "Length of completions",
        "tokens",
        ("completions/mean_length", "thinking/mean_length", "answering/mean_length", "completions/max_length"),
        "",
    ),
    ("Calls of tools", "calls per completion", ("tools/call_frequency",), ""),
    ("Failed or last calls", "share", ("tools/failure_frequency", "tools/ended_in_call"), "Of calls; of answers."),
    ("Reasoning tokens", "share while thinking", ("thinking/reasoning_share",), ""),
    (
        "Entropy per token",
        "nats",
        ("entropy/thinking", "entropy/answering", "entropy/copies"),
        "Of the text; copies: of the choice between a token and its copies while thinking.",
    ),
    (
        "Hidden channel",
        "bits per thinking token",
        ("hidden/bound", "hidden/capacity"),
        "The most that a choice between a token and its copies can tell about the problem; 0 at chance.",
    ),
    ("KL to the initial model", "nats per token", ("kl", "kl/ids"), "kl: of the text; kl/ids: of the copies too."),
    ("Gradient norm", "norm before clipping", ("grad_norm",), ""),
    ("Learning rate", "learning rate", ("learning_rate",), ""),
    ("Seconds of a step", "seconds", PHASES[:-2], ""),
)


def curves(report: RunReport) -> Iterator[Chart]:
    """All charts that there is data for."""
    if not report.record.rows:
        return
    record, metric = report.record, report.held_out.metric
    held_out = held_out_line(record, report.held_out)
    if held_out is not None:
        title = "Accuracy" if metric.is_share else "Held-out reward"
        in_training = _lines(record, {f"rewards/{metric.grader}/mean" if metric.is_share else "reward": "in training"})
        if metric.is_share and Window(record.rows).accuracy(metric.grader) is None:
            in_training = []  # partial credit
        note = f"One sample a problem{metric.by and f', graded{metric.by}'}; bars are 95 % intervals."
        lines = [held_out, *in_training]
        yield line_chart(lines, title=title, y_label=metric.name, percent=metric.is_share, note=note)
    logged = sorted({name for row in record.rows for name in row})
    of_functions = [name for name in logged if re.fullmatch(r"rewards/.+/(mean|weight)", name)]
    each = [("Each reward by itself", "mean score, or adaptive weight", of_functions, "")] * (len(of_functions) > 1)
    for title, label, metrics, note in (*_CURVES[:1], *each, *_CURVES[1:]):
        lines = _lines(record, dict(zip(metrics, metrics, strict=True)))
        if lines:
            yield line_chart(lines, title=title, y_label=label, percent=label.startswith("share"), note=note)


def _lines(record: RunRecord, names: Mapping[str, str]) -> list[Line]:
    lines = [Line(name, *record.series(metric)) for metric, name in names.items()]
    return [line for line in lines if line.steps]


# --- samples ---


def _samples(report: RunReport) -> Iterator[Markup]:
    chosen, unreadable = choose_samples(report.completions, report.max_samples)
    for line in unreadable:
        yield paragraph(f"Not shown: {line}", "missing")
    if chosen:
        yield paragraph(_HOW_CHOSEN, "note")
    for step, of_step in groupby(chosen, key=lambda each: each[1].step):
        shown = [(why, shown_sample(completion, report.marker)) for why, completion in of_step]
        rows = [(why, visible_text(each.completion.prompt), _body(each), each.facts) for why, each in shown]
        yield samples(f"Step {step:,}", rows)
    if not report.completions.steps:
        yield paragraph("No completions are recorded (completions/ is empty).", "missing")
    elif report.marker is None:
        yield paragraph("The run's initial_model/ is not there: reasoning tokens are not marked.", "missing")


def _body(sample: Sample) -> Markup:
    """The text of a completion; with tools each part under the name of its author."""
    if not sample.completion.messages:
        return marked_html(sample.parts[0][1])
    block = Markup('<span class="part{}"><b>{}</b>\n{}</span>')
    return Markup().join(
        block.format(" given" * is_given(author), author, marked_html(spans)) for author, spans in sample.parts
    )


def choose_samples(files: CompletionFiles, most: int) -> tuple[list[tuple[str, SampledCompletion]], list[str]]:
    """At most `most` completions by step, each with the reason for its choice; and a line for each unreadable file."""
    chosen, unreadable = list[tuple[str, SampledCompletion]](), list[str]()
    moments = min(MOST_MOMENTS, most // 3)
    for step in evenly_spread(files.steps, moments) if moments > 1 else files.steps[-1:]:
        try:
            completions = files.read(step)
        except UserError as error:
            unreadable.append(str(error))
            continue
        scored = [each for each in completions if each.reward == each.reward]
        left = sorted(scored or completions, key=lambda each: each.reward)
        chosen += [("highest reward", left.pop())] if left else []
        chosen += [("lowest reward", left.pop(0))] if left else []
        left = sorted(left, key=lambda each: each.row)
        chosen += [("drawn at random", random.Random(_SEED).choice(left))] if left else []
    return chosen[:most], unreadable
