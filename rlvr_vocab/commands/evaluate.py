"""`rlvr-vocab evaluate`: accuracy, or reward, of checkpoints on a problem set, with per-problem results on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import AutoConfig, PreTrainedTokenizerBase

from rlvr_vocab.config.command_table import EvaluateSettings
from rlvr_vocab.config.sections import problem_source, problem_split, prompt_style
from rlvr_vocab.data.load import load_problem_sets
from rlvr_vocab.data.problem_key import problem_key
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
    write_settings,
)
from rlvr_vocab.evaluation.figures import (
    EvaluationFigures,
    evaluation_figures,
    figures_by_task,
    paired_differences,
    votes_of,
)
from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, require_room
from rlvr_vocab.evaluation.vllm_sampling import vllm_sampler
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import EVALUATION_RESULTS, SUMMARY
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult, mean_over_problems
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.data_report import problems_line
from rlvr_vocab.runs.lock import only_writer
from rlvr_vocab.runs.record import run_of_checkpoint
from rlvr_vocab.runs.rewards import grader_of_checkpoint, require_reward_columns
from rlvr_vocab.statistics import Interval
from rlvr_vocab.terminal import make_console, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer
from rlvr_vocab.vocab.weights import NO_CODE, folder_with

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """A checkpoint to evaluate; its results depend on `result_settings`."""

    checkpoint: Path
    folder: Path
    layout: VocabLayout
    tokenizer: PreTrainedTokenizerBase
    sampling: SamplingSettings
    grader: Grader
    result_settings: dict[str, Any]


@dataclass(frozen=True)
class Evaluated:
    """An evaluated checkpoint; `differences` are to the first one, `tasks` has the figures of each task."""

    candidate: Candidate
    results: Sequence[ProblemResult]
    figures: EvaluationFigures
    samples: int
    differences: Mapping[str, Interval]
    tasks: Mapping[str, EvaluationFigures]

    @property
    def accuracy(self) -> float | None:
        found = self.figures.intervals.get(f"avg@{self.samples}")
        return None if found is None else found.estimate


def run(settings: EvaluateSettings) -> int:
    quiet_libraries()
    with ExitStack() as writing:
        for folder in settings.folders:  # a folder that cannot be written ends the command before anything is read
            writing.enter_context(only_writer(folder, "out"))
        return _run(settings, make_console())


def _run(settings: EvaluateSettings, console: Console) -> int:
    rows = _rows(settings, console)
    candidates = [
        _candidate(settings, checkpoint, folder, rows)
        for checkpoint, folder in zip(settings.checkpoints, settings.folders, strict=True)
    ]
    for candidate in candidates:  # before the first of them takes its hours
        require_same_settings(candidate.folder, candidate.result_settings)
        config = AutoConfig.from_pretrained(folder_with("config.json", candidate.checkpoint, settings.base), **NO_CODE)
        require_room(config, candidate.tokenizer, [row["prompt"] for row in rows], candidate.sampling)
    for key in ("temperature", "max_new_tokens"):
        values = dict.fromkeys(candidate.result_settings[key] for candidate in candidates)
        if len(values) > 1:
            shown = " and ".join(f"{value:g}" for value in values)
            console.print(f"warning: {key} is {shown}, as each was trained: set {key}=… to compare", markup=False)
    evaluated: list[Evaluated] = []
    for candidate in candidates:
        evaluated.append(_evaluate(settings, candidate, rows, evaluated[:1], console))
        console.print(_outcome_line(evaluated[-1]), markup=False)
        console.print(_figure_table(evaluated[-1]))
        if len(evaluated[-1].tasks) > 1:
            console.print(_task_table(evaluated[-1]))
    if len(evaluated) > 1:
        console.print(_comparison_table(evaluated))
    return 0


def _rows(settings: EvaluateSettings, console: Console) -> Rows:
    """The rows to answer, divided by the seed of the run where the (first) checkpoint lies in a run's folder."""
    runs, dataset = [run_of_checkpoint(checkpoint) for checkpoint in settings.checkpoints], settings.dataset
    seed = settings.seed if runs[0].seed is None else runs[0].seed
    problems = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, seed))
    rows = problems.eval if settings.split == "eval" else problems.train
    if not rows:
        nothing_kept = dataset.max_eval_samples == 0
        remedy = "dataset.max_eval_samples=null" if nothing_kept else "dataset.eval_fraction or dataset.eval_split"
        raise UserError(f"split=eval: nothing to measure on; set {remedy}, or split=train")
    chosen = rows if settings.max_samples is None else rows.select(range(min(settings.max_samples, len(rows))))
    keys = [problem_key(text) for text in chosen["problem"]]
    distinct = {run.folder: run for run in runs}.values()
    for line in [*(problems_line(dataset.name, keys, run) for run in distinct), *problems.account]:
        console.print(line, markup=False)
    return list(chosen)


def _candidate(settings: EvaluateSettings, checkpoint: Path, folder: Path, rows: Rows) -> Candidate:
    layout = VocabLayout.load(folder_with(LAYOUT_FILE, checkpoint, settings.base))
    tokenizer = load_tokenizer(folder_with("tokenizer.json", checkpoint, settings.base))
    opened, closed = tokenizer.convert_ids_to_tokens([layout.think_open_id, layout.think_close_id])
    trained, spec = run_of_checkpoint(checkpoint), grader_of_checkpoint(settings, checkpoint)
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens or trained.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
    context = RewardContext(
        (opened, closed), layout.standard_size, layout.think_open_id, layout.think_close_id, sampling.max_new_tokens
    )
    require_reward_columns(spec.functions, list(rows[0]), "the problems have")
    depends_on = result_settings(checkpoint, settings.base, rows, sampling, settings.backend, spec)
    return Candidate(checkpoint, folder, layout, tokenizer, sampling, Grader(spec, context), depends_on)


def _evaluate(
    settings: EvaluateSettings, candidate: Candidate, rows: Rows, first: Sequence[Evaluated], console: Console
) -> Evaluated:
    """Sample the missing answers, and write the summary of all."""
    results = _results(settings, candidate, questions_of(rows, settings.samples), console)
    votes = votes_of(results)
    figures = evaluation_figures(results, votes)
    differences = {name: each for one in first for name, each in paired_differences(figures, one.figures).items()}
    evaluated = Evaluated(candidate, results, figures, settings.samples, differences, figures_by_task(results, votes))
    summary = _summary(evaluated, settings.dataset.name, settings.checkpoints[0])
    atomic_write(candidate.folder / SUMMARY, json_text(summary))
    return evaluated


def _results(
    settings: EvaluateSettings, candidate: Candidate, questions: Sequence[Question], console: Console
) -> list[ProblemResult]:
    path, size = candidate.folder / EVALUATION_RESULTS, candidate.sampling.batch_size
    kept = kept_results(path, questions, size)
    if kept:
        console.print(f"goes on from {len(kept):,} of {pluralize(len(questions), 'answer')} in {path}", markup=False)
    if len(kept) == len(questions):
        return kept
    if settings.backend == "vllm":
        prompts = [question.row["prompt"] for question in questions]
        loaded = candidate.checkpoint, candidate.tokenizer, candidate.layout
        sampling: AbstractContextManager[Sampler] = vllm_sampler(*loaded, prompts, candidate.sampling)
    else:
        sampling = nullcontext(seeded_sampler(load_checkpoint(candidate.checkpoint, settings.base), candidate.sampling))
    with sampling as sample, progress_bar(console, "evaluating", len(questions)) as display:

        def answer(batch: Sequence[Question], place: int) -> list[ProblemResult]:
            completions = sample([question.row["prompt"] for question in batch], place)
            return graded_results(batch, completions, candidate.grader, candidate.layout)

        def before_writing() -> None:
            (candidate.folder / SUMMARY).unlink(missing_ok=True)  # it is of fewer results
            checkpoint = str(candidate.checkpoint)
            write_settings(candidate.folder, candidate.result_settings, checkpoint=checkpoint, samples=settings.samples)

        shown = lambda done, total: display.update(done)  # noqa: E731
        return complete_results(path, kept, questions, size, answer, shown, before_writing)


def _summary(evaluated: Evaluated, dataset: str, first: Path) -> dict[str, Any]:
    """The content of summary.json; shares and differences are fractions, lengths are in tokens."""
    results, intervals = evaluated.results, evaluated.figures.intervals
    settings = evaluated.candidate.result_settings
    problems = len({result.problem for result in results})
    summary = {
        "checkpoint": str(evaluated.candidate.checkpoint),
        "dataset": dataset,
        "problems": problems,
        "samples": evaluated.samples,
        "gradable": sum(evaluated.figures.scored.values()),
        "problems_without_score": problems - len(evaluated.figures.scored),
        "grader": settings["grader"],
        "accuracy": evaluated.accuracy,
        "reward": mean_over_problems(results, attrgetter("score")),
        "mean_tokens": intervals["length"].estimate,
        "figures": _as_dicts(intervals),
        **{key: settings[key] for key in ("temperature", "max_new_tokens", "seed", "backend")},
    }
    if evaluated.tasks:
        summary["tasks"] = {task: _as_dicts(figures.intervals) for task, figures in evaluated.tasks.items()}
    if evaluated.differences:
        summary |= {"difference_to": str(first), "differences": _as_dicts(evaluated.differences)}
    return summary


def _as_dicts(intervals: Mapping[str, Interval]) -> dict[str, Any]:
    return {name: asdict(interval) for name, interval in intervals.items()}


def _outcome_line(evaluated: Evaluated) -> str:
    metric = HeldOutMetric.of(evaluated.candidate.result_settings["grader"])
    found = evaluated.accuracy if metric.is_share else mean_over_problems(evaluated.results, attrgetter("score"))
    shown = "no answer has a score" if found is None else f"{metric.name} {metric.value(found)}{metric.by}"
    problems, gradable = len({each.problem for each in evaluated.results}), sum(evaluated.figures.scored.values())
    return (
        f"{shown} on {pluralize(problems, 'problem')}, {pluralize(evaluated.samples, 'sample')} each, {gradable} of "
        f"{pluralize(len(evaluated.results), 'answer')} gradable; results in {evaluated.candidate.folder}"
    )


_NAMES = {
    "length": "length in tokens",
    "thinking_length": "thinking in tokens",
    "cut_off": "cut off",
    "closed_thinking": "thinking closed",
    "answered": "holds an answer",
    "format": "in format",
    "score": "reward",
    "reasoning_share": "reasoning tokens in thinking",
}


def _figure_table(evaluated: Evaluated) -> Table:
    """Every figure of one checkpoint with its interval; `finished` is the rest of `cut_off`."""
    found = {name: each for name, each in evaluated.figures.intervals.items() if name != "finished"}
    rows = ([_NAMES.get(name, name), *_cells(name, each), f"{each.problems:,}"] for name, each in found.items())
    return _table(["figure", "estimate", "95 % interval", "problems"], rows)


def _task_table(evaluated: Evaluated) -> Table:
    names = [name for name in (f"avg@{evaluated.samples}", "score", "length") if name in evaluated.figures.intervals]
    rows = (
        [
            task,
            f"{figures.intervals['length'].problems:,}",
            *(_cell(name, figures.intervals.get(name)) for name in names),
        ]
        for task, figures in evaluated.tasks.items()
    )
    return _table(["task", "problems", *(_NAMES.get(name, name) for name in names)], rows)


def _comparison_table(checkpoints: Sequence[Evaluated]) -> Table:
    """Checkpoints below each other, with their paired differences to the first."""
    first = checkpoints[0]
    average, best, majority = (f"{name}@{first.samples}" for name in ("avg", "pass", "maj"))
    if average not in first.figures.intervals:
        average = "score"
    columns = list(dict.fromkeys([average, *([best, majority] if first.samples > 1 else []), "length", "format"]))
    names = [_NAMES.get(name, name) for name in columns]
    rows = (
        [
            str(each.candidate.checkpoint),
            *(_cell(name, each.figures.intervals.get(name)) for name in columns),
            _cell(average, each.differences.get(average), "+") if each.differences else "",
        ]
        for each in checkpoints
    )
    return _table(["checkpoint", *names, f"{_NAMES.get(average, average)} less that of the first"], rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cells(name: str, interval: Interval, sign: str = "") -> tuple[str, str]:
    """An estimate and its interval with their unit."""
    form = ".1%"
    if name in ("length", "thinking_length"):
        form = ",.1f"
    elif name == "score" or name.startswith("rewards/"):
        form = ".3f"
    estimate, low, high = (f"{value:{sign}{form}}" for value in (interval.estimate, interval.low, interval.high))
    return estimate, f"[{low}, {high}]"


def _cell(name: str, interval: Interval | None, sign: str = "") -> str:
    return "-" if interval is None else " ".join(_cells(name, interval, sign))
