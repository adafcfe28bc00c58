"""The page of one run: what it came to, its curves, what is wrong with it, what it wrote, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markupsafe import Markup

from rlvr_vocab.analysis.doctor.diagnose import not_watched, slowest_phase
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
from rlvr_vocab.analysis.report.samples import choose_samples, held_out_answers, held_out_section, training_section
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
    """How a run was configured.

    Attributes:
        changed: (key, its value, the default) of what differs from the defaults.
        text: all of it, as YAML that `rlvr-vocab train config=` takes.
        taken_up: (time, key, from, to) of what was changed when the run was taken up again.
        again: the command that trains it again.
    """

    changed: Sequence[tuple[str, str, str]]
    text: str
    again: str
    taken_up: Sequence[tuple[str, str, str, str]] = ()


@dataclass(frozen=True)
class RunReport:
    """All that the page is made of.

    Attributes:
        marker: None where the run has no model folder to read its vocabulary from: tokens then have no colour.
        vocabulary: what became of it; None where no model of the run says what it is.
        problems: what preparation read and left out (problems.json); None in a run that did not write it down.
        environment: environment.json.
        probe: what it says; None where nobody has asked.
        unreadable: why the marker or the vocabulary is not there, where a file of theirs is damaged.
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
    unreadable: Sequence[str] = ()
    probe: Mapping[str, Any] | None = None


def run_page(report: RunReport) -> Page:
    parts = (
        ("Outcome", "outcome", _outcome),
        ("Curves", "curves", _curves),
        ("Findings", "findings", _findings),
        ("Samples", "samples", _samples),
        ("Vocabulary", "vocabulary", _vocabulary),
        ("Problems", "problems", _problems),
        ("Configuration", "configuration", _configuration),
        ("Reproduce", "reproduce", _reproduce),
    )
    sections = [Section(title, write(report), name) for title, name, write in parts]
    return Page(report.record.facts.exp_name, outcome_sentence(report.record, report.held_out), sections)


def _outcome(report: RunReport) -> Markup:
    record, run = report.record, report.record.facts
    pairs = [
        ("model", run.model),
        ("problems", run.dataset),
        ("reasoning tokens", f"{run.reasoning_vocab_size:,}" if run.reasoning_vocab_size else "none (baseline)"),
        ("rewards", ", ".join(f"{each.name} × {each.weight:g}" for each in run.rewards) or "none"),
        ("logged up to step", f"{last_step(record):,}" + ("" if run.max_steps is None else f" of {run.max_steps:,}")),
        *([("stages", ", ".join(stage.name for stage in stages))] if (stages := stages_of(record)) else []),
        ("group size", f"{run.num_generations:,}"),
        ("seed", str(run.seed)),
        *_of_summary(record),
        *([] if report.probe is None else [("what the copies mean", report.probe["sentence"])]),
    ]
    lines = [paragraph(f"Damaged: {line}.", "missing") for line in record.damage]
    return Markup().join([*lines, facts(pairs), *_by_task(report.held_out), *_of_forecast(record)])


def _of_forecast(record: RunRecord) -> Iterator[Markup]:
    """What `plan` would have said of the run, beside what it took; nothing for a run without a forecast."""
    graded = (record.summary or {}).get("forecast")
    if not graded:
        return
    rows = [
        (
            each["name"],
            f"{each['forecast']:.3g}",
            f"{each['measured']:.3g}",
            f"{each['forecast'] / each['measured']:.2f}",
        )
        for each in graded
        if each["measured"]
    ]
    note = "Memory in GiB at the peak of each phase, and seconds of a step as data sheets have them, not this machine."
    yield folded(
        "Forecast and outcome",
        paragraph(note, "note") + table(["", "forecast", "measured", "ratio"], rows, range(1, 4)),
    )


def _by_task(held_out: HeldOutAnswers) -> Iterator[Markup]:
    """What became of each task; nothing for problems without tasks."""
    changes = changes_by_kind(held_out)
    if not changes:
        return
    measure = held_out.measure
    yield heading("Held-out problems by task")
    yield table(
        ["task", "difficulty", "problems", "before", "after", "change", "95 % interval"],
        [
            (
                task if not difficulty else "",
                difficulty or "all",
                f"{each.problems:,}",
                measure.value(each.before),
                measure.value(each.after),
                measure.difference(each.after - each.before),
                " to ".join(measure.difference(end).removesuffix(" points") for end in (each.low, each.high)),
            )
            for task, difficulty, each in changes
        ],
        range(2, 7),
    )


def _of_summary(record: RunRecord) -> Iterator[tuple[str, str]]:
    summary = record.summary or {}
    if summary.get("train_problems") is not None:
        yield "to train on", pluralize(summary["train_problems"], "problem")
    if summary.get("held_out_problems") is not None:
        yield "held out", pluralize(summary["held_out_problems"], "problem")
    grader = (summary.get("grader") or {}).get("name")
    if grader is not None:
        yield "held-out answers graded by", grader
    if "seconds" in summary and "grpo_seconds" in summary:
        yield "time", f"{clock(summary['grpo_seconds'])} of GRPO, {clock(summary['seconds'])} in all"


def _curves(report: RunReport) -> Markup:
    if not report.record.rows:
        return paragraph("metrics.jsonl holds no step yet.", "missing")
    return curves(report.record, held_out_line(report.record, report.held_out), report.held_out.measure)


def _findings(report: RunReport) -> Markup:
    if not report.record.rows:
        return paragraph("Without a logged step there is nothing to examine.", "missing")
    found = map(finding, report.findings) if report.findings else [paragraph("The doctor found nothing.")]
    notes = (*not_watched(report.record), *slowest_phase(report.record))
    return Markup().join([*found, *(paragraph(f"{line[0].upper()}{line[1:]}.", "note") for line in notes)])


def _samples(report: RunReport) -> Markup:
    parts = []
    answers = held_out_answers(report.held_out)[: max(report.max_samples // 6, 1)]
    if answers:
        parts.append(held_out_section(report.held_out, answers, report.marker))
    choice = choose_samples(report.completions, max(report.max_samples - 2 * len(answers), 1))
    reader = SampleReader(report.record.facts.rewards, None, report.marker)
    parts.append(training_section(choice, reader))
    if not report.completions.steps:
        parts.append(paragraph("No completions are recorded (completions/ is empty).", "missing"))
    elif report.marker is None:
        why = "; ".join(report.unreadable) or "The run's initial_model/ is not there"
        parts.append(paragraph(f"{why}: reasoning tokens are not marked.", "missing"))
    return Markup().join(parts)


def _vocabulary(report: RunReport) -> Markup:
    if report.vocabulary is None:
        why = "; ".join(report.unreadable) or "This run has no reasoning tokens, or no initial_model/ that names them"
        return paragraph(f"{why}.", "missing")
    parts = [paragraph(note, "note") for note in report.vocabulary.notes]
    parts.append(chart_grid(vocabulary_charts(report.vocabulary)))
    header, *rows = copy_rows(report.vocabulary)
    sampled = sorted((row for row in rows if row[_TOTAL]), key=lambda row: -row[_TOTAL])[:_MOST_USED]
    if sampled:
        note = (
            "Counts are those of tokens sampled while thinking; early and late: the first and the last fifth of the "
            f"steps. The distances are 1 − cosine at the end. {VOCABULARY} lists further copies."
        )
        cells = [[f"{value:.3g}" if isinstance(value, float) else value for value in row] for row in sampled]
        shown = paragraph(note, "note") + table(header, cells, {0, 1, 2, *range(4, len(header))})
        parts.append(folded("The most used copies", shown))
    return Markup().join(parts)


def _problems(report: RunReport) -> Markup:
    if report.problems is None:
        return paragraph("This run did not write down what became of its problems (no problems.json).", "missing")
    return preformatted(yaml.safe_dump(dict(report.problems), sort_keys=False, allow_unicode=True))


def _configuration(report: RunReport) -> Markup:
    configuration = report.configuration
    parts = [paragraph("Every key has its default, as this version has it.")]
    if configuration.changed:
        differ = pluralize(len(configuration.changed), "key differs", "keys differ")
        parts = [
            paragraph(f"{differ} from the defaults of this version:", "note"),
            table(["key", "this run", "default"], configuration.changed),
        ]
    if configuration.taken_up:
        parts.append(heading("Changed while it was trained"))
        parts.append(table(["when", "key", "from", "to"], configuration.taken_up))
    parts.append(folded("All keys, as config.yaml", preformatted(configuration.text)))
    return Markup().join(parts)


def _reproduce(report: RunReport) -> Markup:
    environment = report.environment
    parts = [paragraph("Where the run's folder lies:"), preformatted(report.configuration.again)]
    if environment is None:
        return Markup().join([*parts, paragraph("environment.json is not there: versions are not known.", "missing")])
    parts.append(paragraph("As it was started:"))
    parts.append(preformatted(shlex.join(map(str, environment.get("command", ())))))
    known = ("started", "commit", "python", "platform", "processor_cores", "threads")
    pairs = [(name.replace("_", " "), environment.get(name)) for name in known]
    pairs += [("gpus", "; ".join(map(str, environment.get("gpus", [])))), ("seed", report.record.facts.seed)]
    versions = environment.get("versions", {})
    return Markup().join([*parts, facts(pairs), heading("Versions"), facts(versions.items())])
