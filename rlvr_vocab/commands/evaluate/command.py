"""`rlvr-vocab evaluate`: accuracy, or reward, of checkpoints on a problem set, with per-problem results on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import AutoConfig, PreTrainedTokenizerBase

from rlvr_vocab.commands.evaluate.results import (
    EvaluatedCheckpoint,
    comparison_table,
    evaluation_summary,
    figure_table,
    outcome_line,
    recorded_differences,
    require_same_settings,
    result_settings,
    task_table,
    write_settings,
)
from rlvr_vocab.config.command_table import EvaluateSettings
from rlvr_vocab.config.sections import RewardSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.load import load_problem_sets
from rlvr_vocab.data.problem_key import problem_key
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.accuracy import Question, graded_results
from rlvr_vocab.evaluation.figures import evaluation_figures, figures_by_task, paired_differences
from rlvr_vocab.evaluation.resumable import Sampler, complete_results, kept_results, questions_of, seeded_sampler
from rlvr_vocab.evaluation.sampling import Messages, SamplingSettings, load_checkpoint, require_room
from rlvr_vocab.evaluation.vllm_sampling import vllm_sampler
from rlvr_vocab.evaluation.votes import votes_of
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import EVALUATION_RESULTS, SUMMARY
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.data_report import problems_line
from rlvr_vocab.runs.lock import only_writer
from rlvr_vocab.runs.record import run_of_checkpoint
from rlvr_vocab.runs.rewards import grader_of_checkpoint, require_reward_columns
from rlvr_vocab.terminal import make_console, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.adapter_base import folder_with
from rlvr_vocab.vocab.read_as_data import NO_CODE
from rlvr_vocab.vocab.tokenizer import load_tokenizer

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Candidate:
    """One checkpoint, and how it is asked and graded; `result_settings` is what its results depend on."""

    checkpoint: Path
    folder: Path
    layout: VocabLayout
    tokenizer: PreTrainedTokenizerBase
    sampling: SamplingSettings
    grader: Grader
    result_settings: dict[str, Any]


def run(settings: EvaluateSettings) -> int:
    quiet_libraries()
    with ExitStack() as writing:
        for folder in settings.folders:  # before anything is read: a place that cannot be written is told here
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
        _require_room(settings, candidate, rows)
    _warn_of_other_sampling(candidates, console)
    evaluated: list[EvaluatedCheckpoint] = []
    for candidate in candidates:
        evaluated.append(_evaluated(settings, candidate, rows, evaluated[:1], console))
        console.print(outcome_line(evaluated[-1], HeldOutMetric.of(candidate.result_settings["grader"])), markup=False)
        console.print(figure_table(evaluated[-1]))
        if len(evaluated[-1].tasks) > 1:
            console.print(task_table(evaluated[-1]))
    if len(evaluated) > 1:
        console.print(comparison_table(evaluated))
    return 0


def _rows(settings: EvaluateSettings, console: Console) -> Rows:
    """The rows to answer, divided by the seed of the run where the (first) checkpoint lies in a run's folder."""
    runs, dataset = [run_of_checkpoint(checkpoint) for checkpoint in settings.checkpoints], settings.dataset
    seed = settings.seed if runs[0].seed is None else runs[0].seed
    problems = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, seed))
    rows = problems.eval if settings.split == "eval" else problems.train
    if not rows:
        raise UserError(f"split=eval: nothing to measure on; {_remedy(settings)}, or split=train")
    chosen = rows if settings.max_samples is None else rows.select(range(min(settings.max_samples, len(rows))))
    keys = [problem_key(text) for text in chosen["problem"]]
    told = {run.folder: run for run in runs}.values()
    for line in [*(problems_line(dataset.name, keys, run) for run in told), *problems.report.lines()]:
        console.print(line, markup=False)
    return list(chosen)


def _remedy(settings: EvaluateSettings) -> str:
    if settings.dataset.max_eval_samples == 0:
        return "set dataset.max_eval_samples=null"
    return "set dataset.eval_fraction or dataset.eval_split"


def _candidate(settings: EvaluateSettings, checkpoint: Path, folder: Path, rows: Rows) -> _Candidate:
    layout = VocabLayout.load(folder_with(LAYOUT_FILE, checkpoint, settings.base))
    tokenizer = load_tokenizer(folder_with("tokenizer.json", checkpoint, settings.base))
    opened, closed = tokenizer.convert_ids_to_tokens([layout.think_open_id, layout.think_close_id])
    sampling, spec = _sampling(settings, checkpoint), grader_of_checkpoint(settings, checkpoint)
    context = RewardContext(
        (opened, closed), layout.standard_size, layout.think_open_id, layout.think_close_id, sampling.max_new_tokens
    )
    require_reward_columns(RewardSettings(spec.functions), list(rows[0]), "the problems have")
    depends_on = result_settings(checkpoint, settings.base, rows, sampling, settings.backend, spec)
    return _Candidate(checkpoint, folder, layout, tokenizer, sampling, Grader(spec, context), depends_on)


def _sampling(settings: EvaluateSettings, checkpoint: Path) -> SamplingSettings:
    trained = run_of_checkpoint(checkpoint)
    return SamplingSettings(
        max_new_tokens=settings.max_new_tokens or trained.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )


def _require_room(settings: EvaluateSettings, candidate: _Candidate, rows: Rows) -> None:
    config = AutoConfig.from_pretrained(folder_with("config.json", candidate.checkpoint, settings.base), **NO_CODE)
    prompts = [row["prompt"] for row in rows]
    require_room(config, candidate.tokenizer, prompts, candidate.sampling)


def _warn_of_other_sampling(candidates: Sequence[_Candidate], console: Console) -> None:
    for key in ("temperature", "max_new_tokens"):
        values = [candidate.result_settings[key] for candidate in candidates]
        if len(set(values)) > 1:
            shown = " and ".join(f"{value:g}" for value in dict.fromkeys(values))
            console.print(f"warning: {key} is {shown}, as each was trained: set {key}=… to compare", markup=False)


def _evaluated(
    settings: EvaluateSettings,
    candidate: _Candidate,
    rows: Rows,
    first: Sequence[EvaluatedCheckpoint],
    console: Console,
) -> EvaluatedCheckpoint:
    """Answer what is missing, and write down what all of it comes to."""
    results = _results(settings, candidate, questions_of(rows, settings.samples), console)
    votes = votes_of(results)
    figures = evaluation_figures(results, votes)
    differences = {name: each for one in first for name, each in paired_differences(figures, one.figures).items()}
    evaluated = EvaluatedCheckpoint(
        candidate.checkpoint,
        candidate.folder,
        results,
        figures,
        settings.samples,
        differences,
        figures_by_task(results, votes),
    )
    summary = evaluation_summary(evaluated, candidate.result_settings, settings.dataset.name, settings.checkpoints[0])
    earlier = {} if differences else recorded_differences(candidate.folder)
    atomic_write(candidate.folder / SUMMARY, json_text({**summary, **earlier}))
    return evaluated


def _results(
    settings: EvaluateSettings, candidate: _Candidate, questions: Sequence[Question], console: Console
) -> list[ProblemResult]:
    path, size = candidate.folder / EVALUATION_RESULTS, candidate.sampling.batch_size
    kept = kept_results(path, questions, size)
    if kept:
        console.print(f"goes on from {len(kept):,} of {pluralize(len(questions), 'answer')} in {path}", markup=False)
    if len(kept) == len(questions):
        return kept
    prompts = [question.row["prompt"] for question in questions]
    with (
        _sampler(settings, candidate, prompts) as sample,
        progress_bar(console, "evaluating", len(questions)) as display,
    ):

        def answer(batch: Sequence[Question], place: int) -> list[ProblemResult]:
            completions = sample([question.row["prompt"] for question in batch], place)
            return graded_results(batch, completions, candidate.grader, candidate.layout)

        def before_writing() -> None:
            (candidate.folder / SUMMARY).unlink(missing_ok=True)  # of results that are about to become others
            checkpoint = str(candidate.checkpoint)
            write_settings(candidate.folder, candidate.result_settings, checkpoint=checkpoint, samples=settings.samples)

        def on_progress(done: int, total: int) -> None:
            display.update(done)

        return complete_results(path, kept, questions, size, answer, on_progress, before_writing)


@contextmanager
def _sampler(settings: EvaluateSettings, candidate: _Candidate, prompts: Sequence[Messages]) -> Iterator[Sampler]:
    if settings.backend == "vllm":
        place = candidate.checkpoint, candidate.tokenizer, candidate.layout
        with vllm_sampler(*place, prompts, candidate.sampling) as sampler:
            yield sampler
        return
    yield seeded_sampler(load_checkpoint(candidate.checkpoint, settings.base), candidate.sampling)
