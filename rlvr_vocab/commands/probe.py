"""`rlvr-vocab probe`: tests whether the choice between a token and its copies affects the model's answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.analysis.probe.findings import ProbedRun, ProbeFindings, probe_findings
from rlvr_vocab.analysis.probe.page import probe_page
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.config.command_settings import ProbeSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import command_line
from rlvr_vocab.config.sections import RunSettings, stages_of
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import differing_settings
from rlvr_vocab.evaluation.probe import Prober
from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, require_room
from rlvr_vocab.files import atomic_write, fingerprint_of, json_text, read_json
from rlvr_vocab.record.files import EVALUATION_SETTINGS, FINAL_MODEL, PROBE, PROBE_PAGE
from rlvr_vocab.record.results import (
    ARMS,
    HeldOutMetric,
    PermutedThought,
    ProbeAnswer,
    SampledThought,
    grader_text,
    read_lines,
    same_grader,
    write_results,
)
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import only_writer
from rlvr_vocab.runs.problems import held_out_problems
from rlvr_vocab.runs.rewards import grader_of_run, reward_context
from rlvr_vocab.runs.tools import ToolUse
from rlvr_vocab.terminal import make_console, print_table, progress_bar, quiet_libraries
from rlvr_vocab.vocab.weights import weights_fingerprint

_THOUGHTS = "thoughts.jsonl"
Rows = Sequence[Mapping[str, Any]]


def run(settings: ProbeSettings) -> int:
    """Probe each run, print the joint verdict, write probe.json and probe.html; returns 0 for any verdict."""
    quiet_libraries()
    console = make_console()
    trained = [read_settings("train", [f"config={folder}"]) for folder in settings.run]
    graders = [grader_of_run(each).record() for each in trained]
    for folder, grader in zip(settings.run[1:], graders[1:], strict=True):
        if not same_grader(graders[0], grader):
            first = f"{settings.run[0]} by {grader_text(graders[0])}"
            raise UserError(f"run={folder}: graded by {grader_text(grader)}, and {first}: probe each by itself")
    probed = [_probed(settings, folder, each, console) for folder, each in zip(settings.run, trained, strict=True)]
    found = probe_findings(probed, HeldOutMetric.of(graders[0]), settings.telling_effect)
    if any(each.uses_tools for each in trained):
        how = f"past_thinking={settings.past_thinking}; ids exchanged before the first call, and what followed replayed"
        found = replace(found, sentence=f"{found.sentence} With tools: {how}.")
    atomic_write(settings.folder / PROBE, json_text(asdict(found)), "out")
    atomic_write(settings.folder / PROBE_PAGE, render(probe_page(found, command_line("probe", settings))))
    _print(console, found)
    console.print(f"{PROBE_PAGE} and {PROBE} are in {settings.folder}", markup=False)
    return 0


def _probed(settings: ProbeSettings, folder: Path, trained: RunSettings, console: Console) -> ProbedRun:
    """The answers of a run by arm; missing ones are sampled and written first."""
    problems = held_out_problems(trained, console)
    if problems is None:
        raise UserError(f"run={folder}: has no held-out problems to answer")
    rows = list(problems)[: settings.max_samples]
    place, model = folder / settings.folder_name, folder / FINAL_MODEL
    last, grader = stages_of(trained)[-1].run, grader_of_run(trained)
    grpo = last.training.grpo
    rounds = grpo.get("max_tool_calling_iterations")
    tools = ToolUse(last.tools, last.environment, rounds, settings.past_thinking)
    sampling = SamplingSettings.of_training(grpo, batch_size=settings.batch_size, seed=settings.seed)
    depends_on = {
        "weights": weights_fingerprint(model),
        "problems": fingerprint_of((row["prompt"], cell_text(row.get("solution"))) for row in rows),
        "grader": grader.record(),
        "max_new_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        **sampling.truncation,
        **{name: getattr(settings, name) for name in ("max_samples", "samples", "draws", "seed")},
        **(tools.record() if last.uses_tools else {}),
    }
    permuted = place / f"permutations_{settings.permutations}.jsonl"
    with only_writer(place, "run"):
        _require_same(place, depends_on)
        if not all((place / name).exists() for name in (_THOUGHTS, permuted.name, *(f"{arm}.jsonl" for arm in ARMS))):
            checkpoint = load_checkpoint(model)
            checkpoint = replace(checkpoint, tools=tools.loop(checkpoint.tokenizer, checkpoint.layout))
            require_room(checkpoint.model.config, checkpoint, [row["prompt"] for row in rows], sampling)
            prober = Prober(checkpoint, Grader(grader, reward_context(last)), sampling)
            _write_missing(prober, settings, folder, rows, permuted, console)
    answers = {arm: read_lines(place / f"{arm}.jsonl", ProbeAnswer) for arm in ARMS}
    without = len(read_lines(place / _THOUGHTS, SampledThought))
    without -= len({(each.problem, each.sample) for each in answers["own"]})
    problem_texts = [row["problem"] for row in rows]
    return ProbedRun(str(folder), problem_texts, answers, read_lines(permuted, PermutedThought), without)


def _write_missing(
    prober: Prober, settings: ProbeSettings, folder: Path, rows: Rows, permuted: Path, console: Console
) -> None:
    """Write the files that are missing: thoughts, arms, and log-probabilities after permutations."""
    place, draws = folder / settings.folder_name, settings.draws

    def write(path: Path, title: str, total: int, results_of: Callable[[Callable[[int], None]], Any]) -> None:
        if not path.exists():
            with progress_bar(console, title, total) as display:
                write_results(results_of(display.update), path)

    write(place / _THOUGHTS, "thoughts", len(rows) * settings.samples, partial(prober.think, rows, settings.samples))
    thoughts = prober.recorded(read_lines(place / _THOUGHTS, SampledThought), rows)
    if len({each.place[0] for each in thoughts if each.thought.places}) < 2:
        raise UserError(f"run={folder}: fewer than two problems have a closed thought with exchangeable ids")
    for arm in ARMS:
        answers = partial(prober.answers, arm, thoughts, draws)
        write(place / f"{arm}.jsonl", f"{arm}: answers", len(thoughts) * draws, answers)
    golds = partial(prober.permuted_golds, thoughts, settings.permutations)
    write(permuted, "log p of gold answers, permuted", settings.permutations, golds)


def _require_same(place: Path, wanted: dict[str, Any]) -> None:
    """Raise UserError if recorded answers come from other settings; settings without thoughts are overwritten."""
    file = place / EVALUATION_SETTINGS
    if not (place / _THOUGHTS).exists() or not file.exists():
        atomic_write(file, json_text(wanted), "run")
        return
    if differing := differing_settings(read_json(file), json.loads(json.dumps(wanted))):
        raise UserError(f"{place}: holds a probe with {differing}; delete it, or use the same settings")


def _print(console: Console, found: ProbeFindings) -> None:
    columns = ["copies in the thought", found.primary.metric.name, "less redrawn", "95 % interval", "log p(gold)"]
    rows = [(each.arm, found.primary.metric.value(each.value), *each.texts) for each in found.arms]
    print_table(console, columns, rows)
    console.print(found.sentence, markup=False)
    if found.used is not None:
        console.print(f"Bits about the answer in the choices: {found.used.text()}.", markup=False)
