"""`rlvr-vocab evaluate`: accuracy of a checkpoint on a problem set, with per-problem results on disk."""

from __future__ import annotations

from rich.console import Console

from rlvr_vocab.data import load_problem_sets
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.accuracy import accuracy_of, evaluate_checkpoint, write_results
from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint
from rlvr_vocab.exp.data_wiring import problem_source, problem_split, prompt_style
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.recorded_run import problems_line, recorded_run
from rlvr_vocab.exp.reward_wiring import grader_of
from rlvr_vocab.exp.run_folder import write_json
from rlvr_vocab.exp.screen import make_console
from rlvr_vocab.exp.typed_sections import EvaluateSettings
from rlvr_vocab.training.progress import stage


def run(settings: EvaluateSettings) -> int:
    quiet_libraries()
    console = make_console()
    rows = _rows(settings, console)
    checkpoint = load_checkpoint(settings.checkpoint, settings.base)
    tags = [checkpoint.layout.think_open_id, checkpoint.layout.think_close_id]
    opened, closed = checkpoint.tokenizer.convert_ids_to_tokens(tags)
    grader = grader_of(recorded_run(settings.checkpoint).rewards, (opened, closed)).function
    with stage(console, "evaluating", len(rows) * settings.samples) as display:
        results = evaluate_checkpoint(
            checkpoint,
            rows,
            grader,
            _sampling(settings),
            settings.samples,
            lambda done, total: display.update(done),
        )
    write_results(results, settings.out / "results.jsonl")
    accuracy = accuracy_of(results)
    gradable = sum(result.score is not None for result in results)
    summary = {
        "checkpoint": str(settings.checkpoint),
        "dataset": settings.dataset.name,
        "problems": len(rows),
        "samples": settings.samples,
        "gradable": gradable,
        "accuracy": accuracy,
        "mean_tokens": sum(result.tokens for result in results) / len(results),
        "closed_thinking": sum(result.closed for result in results) / len(results),
        "finished": sum(result.finished for result in results) / len(results),
    }
    write_json(settings.out / "summary.json", summary)
    shown = "no gold answer could be read" if accuracy is None else f"accuracy {accuracy:.1%}"
    console.print(
        f"{shown} on {len(rows)} problems, {settings.samples} sample(s) each, {gradable} of {len(results)} answers "
        f"gradable; results in {settings.out}",
        markup=False,
    )
    return 0


def _rows(settings: EvaluateSettings, console: Console):  # type: ignore[no-untyped-def]  # datasets has no types
    """The rows to answer, divided by the seed of the run where the checkpoint lies in a run's folder."""
    run, dataset = recorded_run(settings.checkpoint), settings.dataset
    console.print(problems_line(dataset, settings.split, run), markup=False)
    seed = settings.seed if run.seed is None else run.seed
    problems = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, seed))
    for line in problems.report.lines():
        console.print(line, markup=False)
    rows = problems.eval if settings.split == "eval" else problems.train
    if rows is None:
        raise UserError(f"split=eval: nothing to measure on; {_remedy(settings)}, or split=train")
    return rows if settings.max_samples is None else rows.select(range(min(settings.max_samples, len(rows))))


def _remedy(settings: EvaluateSettings) -> str:
    if settings.dataset.max_eval_samples == 0:
        return "set dataset.max_eval_samples=null"
    return "set dataset.eval_fraction or dataset.eval_split"


def _sampling(settings: EvaluateSettings) -> SamplingSettings:
    trained = recorded_run(settings.checkpoint)
    return SamplingSettings(
        max_new_tokens=settings.max_new_tokens or trained.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        batch_size=settings.batch_size,
        seed=settings.seed,
    )
