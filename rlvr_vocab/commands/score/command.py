"""`rlvr-vocab score`: what rewards give for completions, gold answers or samples of a model, without training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rlvr_vocab.commands.score.rows import (
    CompletionSource,
    RewardScores,
    ScoredRows,
    read_completions,
    recorded_context,
    score_rows,
    total_of,
)
from rlvr_vocab.commands.score.screen import (
    print_failures,
    print_golds,
    print_rewards,
    print_rows,
    print_turns,
    reason_not_judged,
    row_json,
)
from rlvr_vocab.config.command_table import ScoreSettings
from rlvr_vocab.config.sections import (
    DatasetSettings,
    ModelSettings,
    RewardSettings,
    problem_source,
    problem_split,
    prompt_style,
)
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.load import build_report, read_problems, require_problems
from rlvr_vocab.data.table import problem_table
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write_jsonl
from rlvr_vocab.rewards.build import RewardContext, build_rewards, find_function, required_columns
from rlvr_vocab.rewards.dry_run import stand_in_ids
from rlvr_vocab.rewards.reward import traits_of
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.rewards.user_code import is_user_code
from rlvr_vocab.runs.rewards import dummy_context, gold_completion, require_reward_columns, turn_forms
from rlvr_vocab.terminal import make_console, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize, short_text

if TYPE_CHECKING:
    from rlvr_vocab.evaluation.sampling import Checkpoint

FAILED = 1
_SAMPLED_PROBLEMS, _TRIED = 8, 8
_NAMED_BY = {"prompts": "prompt_column", "solution": "solution_column", "answer": "solution_column"}


def run(settings: ScoreSettings) -> int:
    """Show and write down what the rewards give; 1 where a function failed on a row, else 0."""
    console = make_console()
    if settings.completions is not None:
        rows, scores = _score_completions(settings, settings.completions, console)
    elif settings.model is None:
        rows, scores = _score_golds(settings, console)
    else:
        rows, scores = _score_samples(settings, settings.model, console)
    print_failures(console, rows, scores)
    if settings.out is not None:
        atomic_write_jsonl(settings.out, (row_json(rows, scores, row) for row in range(len(rows))), "out")
        console.print(f"\nevery row, with all scores and reasons, is in {settings.out}", markup=False)
    return FAILED if any(each.failed for each in scores) else 0


def _score_completions(settings: ScoreSettings, path: Path, console: Console) -> tuple[ScoredRows, list[RewardScores]]:
    source = CompletionSource(
        path,
        settings.completion_column,
        settings.prompt_column,
        settings.solution_column,
        settings.solution_format,
    )
    context = recorded_context(path) or RewardContext(think_tags=THINK_TAGS)
    if settings.think_tags is not None:
        context = replace(context, think_tags=settings.think_tags)
    rows, notes = read_completions(source, settings.max_samples)
    for note in [f"{path}: {pluralize(len(rows), 'row')}", *notes]:
        console.print(note, markup=False)
    _require_columns(settings.rewards, rows, source)
    scores = _scored(settings.rewards, rows, context, console)
    print_rows(console, rows, scores, settings.order, settings.show)
    print_rewards(console, rows, scores)
    return rows, scores


def _require_columns(rewards: RewardSettings, rows: ScoredRows, source: CompletionSource) -> None:
    """Raises UserError where a reward needs something that the file has not."""
    given = {*rows.arguments(0, 1)}
    for spec in rewards.functions:
        for column in [*required_columns(spec, trainer=()), *traits_of(find_function(spec.name)).wanted]:
            if column not in given:
                listed = ", ".join(map(short_text, rows.columns)) or "no other column"
                hint = f"; name it with {_NAMED_BY[column]}=…" if column in _NAMED_BY else ""
                raise UserError(f"reward {spec.name} needs {column}; {source.path} has {listed}{hint}")


def _score_golds(settings: ScoreSettings, console: Console) -> tuple[ScoredRows, list[RewardScores]]:
    """The problems of a set, held-out ones included, each answered by its gold answer in a made-up turn."""
    tags = settings.think_tags or THINK_TAGS
    judged = RewardSettings(tuple(spec for spec in settings.rewards.functions if not reason_not_judged(spec)))
    problems = _problems(settings, console)
    golds = problems.columns.get("solution", [None] * len(problems.places))
    rows = _with_turns(problems, [gold_completion(gold, settings.rewards, tags) for gold in golds])
    require_reward_columns(judged, list(rows.columns), "the problems have")
    context = dummy_context(RewardContext(tags))
    if any(is_user_code(spec.name) for spec in judged.functions):  # which do not declare what form they want
        texts = (
            [form.format(reasoning="Work it out.", answer=cell_text(gold) or "…") for gold in golds]
            for form in turn_forms(tags)
        )
        forms = (_with_turns(problems, [[{"role": "assistant", "content": text}] for text in each]) for each in texts)
        rows = max((rows, *forms), key=partial(_paid, judged, context))
    scores = _scored(judged, rows, context, console) if judged.functions else []
    print_golds(console, rows, scores, settings.rewards, settings.show)
    return rows, scores


def _with_turns(problems: ScoredRows, turns: list[Any]) -> ScoredRows:
    return replace(problems, completions=turns, columns={**problems.columns, "completion_ids": stand_in_ids(turns)})


def _paid(rewards: RewardSettings, context: RewardContext, rows: ScoredRows) -> float:
    """What the first rows come to."""
    first = replace(rows, places=rows.places[:_TRIED], completions=rows.completions[:_TRIED])
    scores = score_rows(build_rewards(rewards.functions, context), first, lambda done, total: None)
    return sum(total_of(scores, row) or 0.0 for row in range(len(first)))


def _score_samples(
    settings: ScoreSettings, model: ModelSettings, console: Console
) -> tuple[ScoredRows, list[RewardScores]]:
    """The first training problems in their seeded order, answered by a model as at the first step of training."""
    quiet_libraries()
    problems = _problems(settings, console)
    require_reward_columns(settings.rewards, list(problems.columns), "the problems have")
    assert settings.dataset is not None
    with _checkpoint(settings, model, settings.dataset, problems) as checkpoint:
        rows = _answered(checkpoint, problems, settings, model, console)
    layout = checkpoint.layout
    opened, closed = checkpoint.tokenizer.convert_ids_to_tokens([layout.think_open_id, layout.think_close_id])
    limit = model.generation_kwargs["max_new_tokens"]
    context = RewardContext((opened, closed), layout.standard_size, layout.think_open_id, layout.think_close_id, limit)
    scores = _scored(settings.rewards, rows, context, console)
    print_turns(console, rows, scores, settings.show)
    print_rewards(console, rows, scores)
    return rows, scores


def _problems(settings: ScoreSettings, console: Console) -> ScoredRows:
    """The problems to answer, without completions: the first to train on for a model, else all.

    Raises:
        UserError: the set cannot be read, or holds no problem.
    """
    dataset = settings.dataset
    assert dataset is not None
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    report = build_report(divided)
    require_problems(report, wants_eval=False)
    for line in report.lines():
        console.print(line, markup=False)
    chosen: Sequence[int] = range(len(divided.problems))[: settings.max_samples]
    if settings.model is not None:
        chosen = divided.parts.train[: settings.max_samples or _SAMPLED_PROBLEMS]
    num_train = len(divided.train_rows.problems)
    places: list[dict[str, int | str]] = []
    for index in chosen:
        place: dict[str, int | str] = {} if index < num_train else {"split": divided.source.eval_split or ""}
        places.append({**place, "row": divided.problems[index].row_number})
    table = problem_table(divided.problems, prompt_style(dataset), divided.source.columns)
    columns = table[list(chosen)]
    return ScoredRows(places, (), columns.pop("prompt"), columns)


@contextmanager
def _checkpoint(
    settings: ScoreSettings, model: ModelSettings, dataset: DatasetSettings, problems: ScoredRows
) -> Iterator[Checkpoint]:
    """The model as training would start from it."""
    # Only here: torch and transformers take seconds to import, and the other uses do not need them.
    from rlvr_vocab.evaluation.sampling import load_checkpoint
    from rlvr_vocab.runs.model import loading_kwargs, untrained_plan
    from rlvr_vocab.runs.prompts import asks_to_think, require_chat_template
    from rlvr_vocab.vocab.expand import write_expansion

    prompts = problems.prompts or ()
    row = {name: cells[0] for name, cells in problems.columns.items()} | {"prompt": prompts[0]}
    thinks = asks_to_think(prompts, model.think_tags, settings.rewards, row)
    plan = untrained_plan(model, settings.seed, dataset, thinks)
    require_chat_template(plan)
    with tempfile.TemporaryDirectory() as temporary:
        expanded = Path(temporary) / "initial_model"
        write_expansion(plan, expanded)
        yield load_checkpoint(expanded, **loading_kwargs(model))


def _answered(
    checkpoint: Checkpoint, problems: ScoredRows, settings: ScoreSettings, model: ModelSettings, console: Console
) -> ScoredRows:
    """Each problem with `samples` answers of the model."""
    from rlvr_vocab.evaluation.sampling import SamplingSettings, sample_completions

    samples = settings.samples
    prompts = [prompt for prompt in problems.prompts or () for _ in range(samples)]
    sampling = SamplingSettings(
        max_new_tokens=model.generation_kwargs["max_new_tokens"],
        temperature=model.generation_kwargs["temperature"],
        batch_size=settings.batch_size,
        seed=settings.seed,
        limit_key="model.generation_kwargs.max_new_tokens",
    )
    with progress_bar(console, "sampling", len(prompts)) as display:
        completions = sample_completions(
            checkpoint, prompts, sampling, lambda done, total: display.update(done, total=total)
        )
    columns = {name: [cell for cell in cells for _ in range(samples)] for name, cells in problems.columns.items()}
    return ScoredRows(
        places=[{**place, "sample": sample + 1} for place in problems.places for sample in range(samples)],
        completions=[[{"role": "assistant", "content": completion.turn}] for completion in completions],
        prompts=prompts,
        columns={**columns, "completion_ids": [completion.completion_ids for completion in completions]},
    )


def _scored(rewards: RewardSettings, rows: ScoredRows, context: RewardContext, console: Console) -> list[RewardScores]:
    built = build_rewards(rewards.functions, context)
    with progress_bar(console, "scoring", len(rows)) as display:
        return score_rows(built, rows, lambda done, total: display.update(done, total=total))
