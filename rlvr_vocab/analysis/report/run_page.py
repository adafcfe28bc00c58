"""The page of one run: outcome, curves, findings, samples, vocabulary, problems, configuration, how to repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markupsafe import Markup

from rlvr_vocab.analysis.doctor.diagnose import not_watched
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.report.curves import curves, stages_of
from rlvr_vocab.analysis.report.outcome import (
    HeldOutAnswers,
    changes_by_kind,
    held_out_line,
    last_step,
    outcome_sentence,
)
from rlvr_vocab.analysis.report.page import (
    Page,
    Section,
    chart_grid,
    facts,
    finding,
    folded,
    heading,
    paragraph,
    preformatted,
    table,
)
from rlvr_vocab.analysis.report.samples import choose_samples, held_out_section, training_section
from rlvr_vocab.analysis.samples import SampleReader
from rlvr_vocab.analysis.vocabulary import VOCABULARY, VocabularyAnalysis, copy_rows, vocabulary_charts
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.metrics import RunRecord
from rlvr_vocab.terminal import clock
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.marking import Marker

_MOST_USED = 10
_TOTAL = 6  # column of `copy_rows`


@dataclass(frozen=True)
class Configuration:
    """The configuration of a run.

    Attributes:
        changed: (key, value, default) of the keys that differ from the defaults.
        text: all of it, as YAML that `rlvr-vocab train config=` takes.
        again: the command that repeats the run.
        taken_up: (time, key, from, to) of the changes when the run was resumed.
    """

    changed: Sequence[tuple[str, str, str]]
    text: str
    again: str
    taken_up: Sequence[tuple[str, str, str, str]] = ()


@dataclass(frozen=True)
class RunReport:
    """Everything on the page.

    Attributes:
        marker: None without a model folder to read the vocabulary from: tokens then have no colour.
        vocabulary: None for a baseline, or without an initial model.
        problems, environment, probe: the JSON files of these names; None without the file.
    """

    record: RunRecord
    held_out: HeldOutAnswers
    findings: Sequence[Finding]
    completions: CompletionFiles
    marker: Marker | None
    vocabulary: VocabularyAnalysis | None
    problems: Mapping[str, Any] | None
    environment: Mapping[str, Any] | None
    configuration: Configuration
    max_samples: int
    probe: Mapping[str, Any] | None = None


def run_page(report: RunReport) -> Page:
    record, held_out = report.record, report.held_out
    nothing = paragraph("metrics.jsonl holds no step yet.", "missing")
    drawn = curves(record, held_out_line(record, held_out), held_out.metric) if record.rows else nothing
    problems = paragraph("This run has no problems.json.", "missing")
    if report.problems is not None:
        problems = preformatted(yaml.safe_dump(dict(report.problems), sort_keys=False, allow_unicode=True))
    sections = (
        Section("Outcome", Markup().join(_outcome(report)), "outcome"),
        Section("Curves", drawn, "curves"),
        Section("Findings", Markup().join(_findings(report)) if record.rows else nothing, "findings"),
        Section("Samples", Markup().join(_samples(report)), "samples"),
        Section("Vocabulary", Markup().join(_vocabulary(report)), "vocabulary"),
        Section("Problems", problems, "problems"),
        Section("Configuration", Markup().join(_configuration(report.configuration)), "configuration"),
        Section("Reproduce", Markup().join(_reproduce(report)), "reproduce"),
    )
    return Page(record.facts.exp_name, outcome_sentence(record, held_out), sections)


def _outcome(report: RunReport) -> Iterator[Markup]:
    record, metric = report.record, report.held_out.metric
    for line in record.damage:
        yield paragraph(f"Damaged: {line}.", "missing")
    yield facts(_facts(report))
    changes = changes_by_kind(report.held_out)
    if changes:
        yield heading("Held-out problems by task")
        by_kind = [
            (
                *("" if difficulty else task, difficulty or "all", f"{each.problems:,}"),
                *(metric.value(each.before), metric.value(each.after)),
                *(metric.difference(each.after - each.before), metric.interval(each.low, each.high)),
            )
            for task, difficulty, each in changes
        ]
        columns = ("task", "difficulty", "problems", "before", "after", "change", "95 % interval")
        yield table(columns, by_kind, range(2, 7))
    graded = [each for each in (record.summary or {}).get("forecast", ()) if each["measured"]]
    if graded:
        figures = [(each["name"], each["forecast"], each["measured"]) for each in graded]
        rows = [(name, f"{one:.3g}", f"{other:.3g}", f"{one / other:.2f}") for name, one, other in figures]
        note = "Memory in GiB at the peak of each phase, and seconds of a step by data sheets, not by this machine."
        forecast = table(("", "forecast", "measured", "ratio"), rows, range(1, 4))
        yield folded("Forecast and outcome", paragraph(note, "note") + forecast)


def _facts(report: RunReport) -> Iterator[tuple[str, str]]:
    record, run, summary = report.record, report.record.facts, report.record.summary or {}
    yield "model", run.model
    yield "problems", run.dataset
    yield "reasoning tokens", f"{run.reasoning_vocab_size:,}" if run.reasoning_vocab_size else "none (baseline)"
    yield "rewards", ", ".join(f"{each.name} × {each.weight:g}" for each in run.rewards) or "none"
    yield "logged up to step", f"{last_step(record):,}" + ("" if run.max_steps is None else f" of {run.max_steps:,}")
    stages = stages_of(record)
    if stages:
        yield "stages", ", ".join(stage.name for stage in stages)
    yield "group size", f"{run.num_generations:,}"
    yield "seed", str(run.seed)
    for name, key in (("to train on", "train_problems"), ("held out", "held_out_problems")):
        if summary.get(key) is not None:
            yield name, pluralize(summary[key], "problem")
    if summary.get("grader"):
        yield "held-out answers graded by", summary["grader"]["name"]
    if "seconds" in summary and "grpo_seconds" in summary:
        yield "time", f"{clock(summary['grpo_seconds'])} of GRPO, {clock(summary['seconds'])} in all"
    if report.probe is not None:
        yield "what the copies mean", report.probe["sentence"]


def _findings(report: RunReport) -> Iterator[Markup]:
    yield from map(finding, report.findings)
    if not report.findings:
        yield paragraph("The doctor found nothing.")
    for line in not_watched(report.record):
        yield paragraph(f"{line[0].upper()}{line[1:]}.", "note")


def _samples(report: RunReport) -> Iterator[Markup]:
    held_out, shown = held_out_section(report.held_out, max(report.max_samples // 6, 1), report.marker)
    yield held_out
    chosen, unreadable = choose_samples(report.completions, max(report.max_samples - shown, 1))
    yield training_section(chosen, unreadable, SampleReader(report.record.facts.rewards, None, report.marker))
    if not report.completions.steps:
        yield paragraph("No completions are recorded (completions/ is empty).", "missing")
    elif report.marker is None:
        why = "The run's initial_model/ is not there"
        yield paragraph(f"{why}: reasoning tokens are not marked.", "missing")


def _vocabulary(report: RunReport) -> Iterator[Markup]:
    if report.vocabulary is None:
        why = "This run has no reasoning tokens, or no initial_model/ that names them"
        yield paragraph(f"{why}.", "missing")
        return
    for note in report.vocabulary.notes:
        yield paragraph(note, "note")
    yield chart_grid(vocabulary_charts(report.vocabulary))
    header, *rows = copy_rows(report.vocabulary)
    sampled = sorted((row for row in rows if row[_TOTAL]), key=lambda row: -row[_TOTAL])[:_MOST_USED]
    if sampled:
        note = (
            "Counts of tokens sampled while thinking; early and late: the first and the last fifth of the steps. "
            f"Distances are 1 − cosine at the end. {VOCABULARY} lists further copies."
        )
        cells = [[f"{value:.3g}" if isinstance(value, float) else value for value in row] for row in sampled]
        shown = paragraph(note, "note") + table(header, cells, {0, 1, 2, *range(4, len(header))})
        yield folded("The most used copies", shown)


def _configuration(configuration: Configuration) -> Iterator[Markup]:
    if configuration.changed:
        differ = pluralize(len(configuration.changed), "key differs", "keys differ")
        yield paragraph(f"{differ} from the defaults of this version:", "note")
        yield table(("key", "this run", "default"), configuration.changed)
    else:
        yield paragraph("Every key has its default, as this version has it.")
    if configuration.taken_up:
        yield heading("Changed while it was trained")
        yield table(("when", "key", "from", "to"), configuration.taken_up)
    yield folded("All keys, as config.yaml", preformatted(configuration.text))


def _reproduce(report: RunReport) -> Iterator[Markup]:
    environment = report.environment
    yield paragraph("Where the run's folder lies:")
    yield preformatted(report.configuration.again)
    if environment is None:
        yield paragraph("environment.json is not there: versions are not known.", "missing")
        return
    yield paragraph("As it was started:")
    yield preformatted(shlex.join(map(str, environment.get("command", ()))))
    known = ("started", "commit", "python", "platform", "processor_cores", "threads")
    pairs = [(name.replace("_", " "), environment.get(name)) for name in known]
    yield facts([*pairs, ("gpus", "; ".join(environment.get("gpus", ()))), ("seed", report.record.facts.seed)])
    yield heading("Versions")
    yield facts(environment.get("versions", {}).items())
