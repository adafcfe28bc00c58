"""`rlvr-vocab probe`: does the choice between a token and its copies mean anything to the model that made it?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rlvr_vocab.analysis.compare.comparison import interval_points
from rlvr_vocab.analysis.probe.findings import ProbedRun, ProbeFindings, as_json, probe_findings
from rlvr_vocab.analysis.probe.page import probe_page
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.atomic_file import read_json, write_json_whole, write_whole
from rlvr_vocab.config.command_sections import ProbeSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.probe import Prober, RecordedThought
from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint
from rlvr_vocab.progress import stage
from rlvr_vocab.record.files import FINAL_MODEL, PROBE, PROBE_FOLDER, PROBE_PAGE
from rlvr_vocab.record.measure import Measure
from rlvr_vocab.record.probe import ARMS, read_answers, write_answers
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.lock import only_writer
from rlvr_vocab.runs.problems import load_run_problems
from rlvr_vocab.runs.rewards import grader_of_run, reward_context
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.weights_fingerprint import weights_fingerprint

_ALWAYS = ("own", "redrawn", "permuted")


def run(settings: ProbeSettings) -> int:
    """Probe each run, say what they come to together, write probe.json and probe.html; 0 whatever the verdict is."""
    quiet_libraries()
    console = make_console()
    trained = [read_settings("train", [f"config={folder}"]) for folder in settings.run]
    measures = [Measure.of(grader_of_run(each).record()) for each in trained]
    if len(set(measures)) > 1:
        raise UserError("run: the runs are not graded alike, so that nothing can be said of them together")
    probed = [_probed(settings, folder, each, console) for folder, each in zip(settings.run, trained, strict=True)]
    found = probe_findings(probed, measures[0], settings.telling_effect)
    write_json_whole(settings.out / PROBE, as_json(found), "out")
    write_whole(settings.out / PROBE_PAGE, render(probe_page(found, _command(settings))))
    _print(console, found)
    console.print(f"{PROBE_PAGE} and {PROBE} are in {settings.out}", markup=False)
    return 0


def _probed(settings: ProbeSettings, folder: Path, trained: RunSettings, console: Console) -> ProbedRun:
    """The answers of a run by arm: those that are there, and those that are missing, which are written beside them.

    An arm is on disk as soon as it is answered, and answered alike whichever were there before.
    """
    problems = load_run_problems(trained, console).held_out
    if problems is None:
        raise UserError(f"run={folder}: has no held-out problems to answer")
    rows = list(problems)[: settings.max_samples]
    arms = [arm for arm in ARMS if settings.arms is None or arm in settings.arms or arm in _ALWAYS]
    if VocabLayout.load(folder / FINAL_MODEL).mode == "replace" and "sources" in arms:
        arms.remove("sources")  # which are closed while thinking
    place = folder / PROBE_FOLDER
    with only_writer(place, "run"):
        _require_same(place, _depends_on(settings, folder, rows))
        missing = [arm for arm in arms if not (place / f"{arm}.jsonl").exists()]
        if missing or not (place / "thoughts.json").exists():
            _answer(settings, folder, trained, rows, missing, console)
    answers = {arm: read_answers(place / f"{arm}.jsonl") for arm in arms}
    without = read_json(place / "thoughts.json")["without_thought"]
    return ProbedRun(str(folder), [row["problem"] for row in rows], answers, without)


def _answer(
    settings: ProbeSettings,
    folder: Path,
    trained: RunSettings,
    rows: Sequence[Any],
    arms: Sequence[str],
    console: Console,
) -> None:
    model, place, grpo = folder / FINAL_MODEL, folder / PROBE_FOLDER, trained.training.grpo
    sampling = SamplingSettings(
        max_new_tokens=grpo["max_completion_length"],
        temperature=grpo["temperature"],
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    grader = Grader(grader_of_run(trained), reward_context(trained, VocabLayout.load(model)))
    prober = Prober(load_checkpoint(model), grader, sampling)
    with stage(console, "thoughts", len(rows) * settings.samples) as display:
        thoughts, without = prober.think(rows, settings.samples, display.update)
    _require_thoughts(thoughts, folder)
    write_json_whole(place / "thoughts.json", {"thoughts": len(thoughts), "without_thought": without}, "run")
    for arm in arms:
        with stage(console, f"{arm}: answers", len(thoughts) * settings.draws) as display:
            write_answers(prober.answers(arm, thoughts, settings.draws, display.update), place / f"{arm}.jsonl")


def _require_thoughts(thoughts: Sequence[RecordedThought], folder: Path) -> None:
    if len({each.problem for each in thoughts}) < 2:
        raise UserError(f"run={folder}: its model closes its thinking on fewer than two problems: nothing to exchange")


def _depends_on(settings: ProbeSettings, folder: Path, rows: Sequence[Any]) -> dict[str, Any]:
    return {
        "weights": weights_fingerprint(folder / FINAL_MODEL),
        "problems": len(rows),
        **{name: getattr(settings, name) for name in ("samples", "draws", "batch_size", "seed")},
    }


def _require_same(place: Path, wanted: dict[str, Any]) -> None:
    """Answers to another question are not mixed with these."""
    file = place / "settings.json"
    if not file.exists():
        write_json_whole(file, wanted, "run")
        return
    there = read_json(file)
    others = [f"{name}={there.get(name)} (now {wanted[name]})" for name in wanted if there.get(name) != wanted[name]]
    if others:
        raise UserError(f"{place}: holds a probe with {', '.join(others)}; delete it, or ask the same")


def _print(console: Console, found: ProbeFindings) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("copies in the thought", found.measure.name, "less redrawn", "95 % interval", "log p(gold)"):
        table.add_column(name, justify="left" if name.startswith("copies") else "right")
    for each in found.arms:
        against = each.against_redrawn
        table.add_row(
            each.arm.replace("_", " "),
            found.measure.value(each.value),
            "" if against is None else against.measure.difference(against.difference),
            "" if against is None else interval_points(against),
            "-" if each.gold_logp is None else f"{each.gold_logp:.3f}",
        )
    console.print(table)
    console.print(found.sentence, markup=False)


def _command(settings: ProbeSettings) -> str:
    runs = ",".join(map(str, settings.run))
    words = [f"run=[{runs}]" if len(settings.run) > 1 else f"run={runs}"]
    words += [f"{name}={getattr(settings, name)}" for name in ("samples", "draws", "seed")]
    return shlex.join(["rlvr-vocab", "probe", *words])
