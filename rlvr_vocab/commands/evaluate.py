"""`rlvr-vocab evaluate`: accuracy, or reward, of a checkpoint on a problem set, with per-problem results on disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import AutoConfig

from rlvr_vocab.config.command_settings import EvaluateSettings
from rlvr_vocab.config.sections import problem_source, problem_split, prompt_style, stages_of
from rlvr_vocab.data.load import lay_out, read_problems
from rlvr_vocab.data.problem_key import problem_key
from rlvr_vocab.data.source import names_file
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import (
    Question,
    Sampler,
    complete_results,
    graded_results,
    kept_results,
    questions_of,
    require_same_settings,
    result_settings,
    seeded_sampler,
)
from rlvr_vocab.evaluation.figures import evaluation_figures, figures_by_task, votes_of
from rlvr_vocab.evaluation.sampling import Chat, SamplingSettings, load_chat, load_checkpoint, require_room
from rlvr_vocab.evaluation.vllm_sampling import vllm_sampler
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import EVALUATION_RESULTS, EVALUATION_SETTINGS, SUMMARY
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult, mean_over_problems
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import RunOfCheckpoint, only_writer, run_of_checkpoint
from rlvr_vocab.runs.problems import problems_line
from rlvr_vocab.runs.rewards import grader_of_checkpoint, require_reward_columns, rewards_in_script
from rlvr_vocab.runs.tools import OF_TOOLS, ToolUse
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.statistics import Interval
from rlvr_vocab.terminal import make_console, print_table, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.tokenizer import think_tags
from rlvr_vocab.vocab.weights import NO_CODE, folder_with

Rows = Sequence[Mapping[str, Any]]
_ENDED_IN_CALLS = 0.1  # share of answers above which a line says why


@dataclass(frozen=True)
class Candidate:
    """The checkpoint to evaluate; `result_settings` determine its results."""

    chat: Chat
    sampling: SamplingSettings
    grader: Grader
    result_settings: dict[str, Any]


def run(settings: EvaluateSettings) -> int:
    quiet_libraries()
    with only_writer(settings.folder, "out"):  # an unwritable folder is an error before anything is read
        console = make_console()
        trained = run_of_checkpoint(settings.checkpoint)
        rows = _rows(settings, trained, console)
        candidate = _candidate(settings, trained, rows)
        require_same_settings(settings.folder, candidate.result_settings)
        config = AutoConfig.from_pretrained(folder_with("config.json", settings.checkpoint, settings.base), **NO_CODE)
        require_room(config, candidate.chat, [row["prompt"] for row in rows], candidate.sampling)
        results = _results(settings, candidate, questions_of(rows, settings.samples), console)
        votes = votes_of(results)
        summary = _summary(settings, candidate, results, evaluation_figures(results, votes))
        if tasks := figures_by_task(results, votes):
            summary["tasks"] = {task: _as_dicts(each) for task, each in tasks.items()}
        atomic_write(settings.folder / SUMMARY, json_text(summary))
        _print_figures(summary, settings.folder, console)
    return 0


def _rows(settings: EvaluateSettings, trained: RunOfCheckpoint, console: Console) -> Rows:
    """The rows to answer; the split uses the seed of the run that the checkpoint belongs to, if any."""
    dataset, part = settings.dataset, _part(settings, trained)
    seed = settings.seed if trained.settings is None else trained.settings.seed
    split = problem_split(dataset, seed)
    if part == "all":
        split = replace(split, eval_fraction=0.0, max_train_samples=None, max_eval_samples=None)
    divided = read_problems(problem_source(dataset), split)
    problems = lay_out(divided, prompt_style(dataset))
    rows = [*(problems.train if part != "eval" else ()), *((problems.eval or ()) if part != "train" else ())]
    if not rows:
        raise UserError("split=eval: there are no held-out problems; set dataset.eval_fraction, or split=all")
    chosen = rows[: settings.max_samples]
    keys = [problem_key(row["problem"]) for row in chosen]
    of = f"{len(chosen):,} of {pluralize(len(divided.problems), 'usable problem')}"
    taken = f"evaluated: {of}, by split={part}{'' if part == 'all' else '; split=all takes all'}"
    lines = [problems_line(dataset.name, keys, trained), taken, *problems.account[part == "all" :]]
    if not settings.rewards.functions and (held := rewards_in_script(trained.settings)):
        lines.append(f"its rewards are in a Python script: they grade where you give rewards=[{','.join(held)}]")
    console.print(*lines, sep="\n", markup=False)
    return chosen


def _part(settings: EvaluateSettings, trained: RunOfCheckpoint) -> str:
    """`split`; by default `all` of a file that the run did not train on, as benchmarks are measured, else `eval`."""
    dataset, run = settings.dataset, trained.settings
    used = [] if run is None else [run.dataset, *(stage.run.dataset for stage in stages_of(run))]
    is_used = Path(dataset.name).absolute() in {Path(each.name).absolute() for each in used}
    return settings.split or ("all" if names_file(dataset.name) and not is_used else "eval")


def _candidate(settings: EvaluateSettings, trained: RunOfCheckpoint, rows: Rows) -> Candidate:
    checkpoint = settings.checkpoint
    chat = load_chat(checkpoint, settings.base)
    spec = grader_of_checkpoint(settings, trained.settings)
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens or trained.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        truncation=trained.truncation,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    if trained.folder is None and settings.max_new_tokens is None:
        print(f"max_new_tokens={sampling.max_new_tokens}: {checkpoint} is in no run that says another limit")
    tool_use = ToolUse.of(settings, trained)
    chat = replace(chat, tools=tool_use.loop(chat.tokenizer, chat.layout))
    tags, decimal_mark = think_tags(chat.tokenizer, chat.layout), settings.dataset.decimal
    grader = Grader(spec, RewardContext(tags, sampling.max_new_tokens, decimal_mark))
    require_reward_columns(spec.functions, list(rows[0]), "the problems have")
    depends_on = result_settings(checkpoint, settings.base, rows, sampling, settings.backend, spec)
    return Candidate(chat, sampling, grader, {**depends_on, **tool_use.record()})


def _results(
    settings: EvaluateSettings, candidate: Candidate, questions: Sequence[Question], console: Console
) -> list[ProblemResult]:
    path, size = settings.folder / EVALUATION_RESULTS, candidate.sampling.batch_size
    kept = kept_results(path, questions, size)
    if kept:
        console.print(f"goes on from {len(kept):,} of {pluralize(len(questions), 'answer')} in {path}", markup=False)
    if len(kept) == len(questions):
        return kept
    chat = candidate.chat
    if settings.backend == "vllm":
        prompts = [question.row["prompt"] for question in questions]
        sampling: AbstractContextManager[Sampler] = vllm_sampler(settings.checkpoint, chat, prompts, candidate.sampling)
    else:
        checkpoint = load_checkpoint(settings.checkpoint, settings.base, chat)
        sampling = nullcontext(seeded_sampler(checkpoint, candidate.sampling))
    with sampling as sample, progress_bar(console, "evaluating", len(questions)) as display:

        def answer(batch: Sequence[Question], place: int) -> list[ProblemResult]:
            completions = sample([question.row for question in batch], place)
            return graded_results(batch, completions, candidate.grader, chat.layout)

        (settings.folder / SUMMARY).unlink(missing_ok=True)  # it covers fewer results
        typed = [*map(without_secrets, sys.argv)]
        beside = {"checkpoint": str(settings.checkpoint), "samples": settings.samples, "command": typed}  # not compared
        atomic_write(settings.folder / EVALUATION_SETTINGS, json_text({**candidate.result_settings, **beside}), "out")
        return complete_results(path, kept, questions, size, answer, display.update)


def _summary(
    settings: EvaluateSettings, candidate: Candidate, results: Sequence[ProblemResult], figures: Mapping[str, Interval]
) -> dict[str, Any]:
    """The content of summary.json; shares are fractions, lengths are in tokens."""
    problems = len({result.problem for result in results})
    average = figures.get(f"avg@{settings.samples}")
    depends_on = ("grader", "temperature", "max_new_tokens", "seed", "backend")
    return {
        "checkpoint": str(settings.checkpoint),
        "dataset": settings.dataset.name,
        "problems": problems,
        "samples": settings.samples,
        "answers": len(results),
        "gradable": sum(result.score is not None for result in results),
        "problems_without_score": problems - len({result.problem for result in results if result.score is not None}),
        "accuracy": None if average is None else average.estimate,
        "reward": mean_over_problems(results, attrgetter("score")),
        "mean_tokens": figures["length"].estimate,
        "figures": _as_dicts(figures),
        **{key: candidate.result_settings[key] for key in depends_on},
        **candidate.sampling.truncation,
        **{key: value for key in OF_TOOLS if (value := candidate.result_settings[key]) is not None},
    }


def _as_dicts(intervals: Mapping[str, Interval]) -> dict[str, Any]:
    return {name: asdict(interval) for name, interval in intervals.items()}


def _print_figures(summary: Mapping[str, Any], folder: Path, console: Console) -> None:
    """Print the outcome in a line, every figure with its interval, and a table of tasks if there are several."""
    metric = HeldOutMetric.of(summary["grader"])
    found = summary[metric.name]
    shown = "no answer has a score" if found is None else f"{metric.name} {metric.value(found)}{metric.by}"
    console.print(
        f"{shown} on {pluralize(summary['problems'], 'problem')}, {pluralize(summary['samples'], 'sample')} each, "
        f"{summary['gradable']} of {pluralize(summary['answers'], 'answer')} gradable; results in {folder}",
        markup=False,
    )
    figures, tasks = summary["figures"], summary.get("tasks", {})
    rows = [[name, _cell(name, each), f"{each['problems']:,}"] for name, each in figures.items()]
    print_table(console, ["figure", "estimate [95 % interval]", "problems"], rows)
    if (ended := figures.get("ended_in_call", {}).get("estimate", 0)) > _ENDED_IN_CALLS:
        remedy = "raise max_new_tokens or max_tool_calling_iterations, or let the tool return less"
        console.print(f"{ended:.0%} of the answers end in a call, whose result passed a limit: {remedy}", markup=False)
    if len(tasks) > 1:
        names = [name for name in (f"avg@{summary['samples']}", "score", "length") if name in figures]
        rows = [[task, *(_cell(name, each.get(name)) for name in names)] for task, each in tasks.items()]
        print_table(console, ["task", *names], rows)


def _cell(name: str, interval: Mapping[str, Any] | None) -> str:
    """`75.0% [71.2%, 78.4%]`"""
    if interval is None:
        return "-"
    form = ".1%"
    if name in ("length", "thinking_length", "calls"):
        form = ",.1f"
    elif name == "score" or name.startswith("rewards/"):
        form = ".3f"
    estimate, low, high = (f"{interval[end]:{form}}" for end in ("estimate", "low", "high"))
    return f"{estimate} [{low}, {high}]"
