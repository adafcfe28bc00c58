"""`rlvr-vocab score`: what rewards give for completions, gold answers or samples of a model, without training."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from rlvr_vocab.commands.score.golds import gold_rows, judged, print_golds
from rlvr_vocab.commands.score.rows import RewardScores, ScoredRows, score_rows
from rlvr_vocab.commands.score.screen import print_mistakes, print_rewards, print_rows, print_turns, write_scores
from rlvr_vocab.config.command_sections import ScoreSettings
from rlvr_vocab.config.sections import RewardSettings
from rlvr_vocab.counted import counted
from rlvr_vocab.data.rows import short_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.progress import stage
from rlvr_vocab.rewards.build import RewardContext, build_rewards, find_function, required_columns
from rlvr_vocab.rewards.reward import traits_of
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.runs.completion_files import CompletionSource, context_of, read_completions
from rlvr_vocab.runs.rewards import require_reward_columns, stand_in_context
from rlvr_vocab.terminal import make_console

FAILED = 1
_NAMED_BY = {"prompts": "prompt_column", "solution": "solution_column", "answer": "solution_column"}


def run(settings: ScoreSettings) -> int:
    """Show and write down what the rewards give; 1 where a function failed on a row, else 0."""
    console = make_console()
    if settings.completions is not None:
        rows, scores = _of_completions(settings, console)
    elif settings.model is None:
        rows, scores = _of_golds(settings, console)
    else:
        rows, scores = _of_samples(settings, console)
    print_mistakes(console, rows, scores)
    if settings.out is not None:
        write_scores(settings.out, rows, scores)
        console.print(f"\nevery row, with all scores and reasons, is in {settings.out}", markup=False)
    return FAILED if any(each.failed for each in scores) else 0


def _of_completions(settings: ScoreSettings, console: Console) -> tuple[ScoredRows, list[RewardScores]]:
    assert settings.completions is not None
    source = CompletionSource(
        settings.completions,
        settings.completion_column,
        settings.prompt_column,
        settings.solution_column,
        settings.solution_format,
    )
    context = context_of(source.path) or RewardContext(think_tags=THINK_TAGS)
    if settings.think_tags is not None:
        context = replace(context, think_tags=settings.think_tags)
    keep_ids = any(
        reward.bound.reads("completion_ids") for reward in build_rewards(settings.rewards.functions, context)
    )
    rows, notes = read_completions(source, settings.max_samples, keep_ids)
    for note in [f"{source.path}: {counted(len(rows), 'row')}", *notes]:
        console.print(note, markup=False)
    _require_columns(settings.rewards, rows, source)
    scores = _scored(settings.rewards, rows, context, console)
    print_rows(console, rows, scores, settings.order, settings.show)
    print_rewards(console, rows, scores)
    return rows, scores


def _of_golds(settings: ScoreSettings, console: Console) -> tuple[ScoredRows, list[RewardScores]]:
    assert settings.dataset is not None
    tags, rewards = settings.think_tags or THINK_TAGS, judged(settings.rewards)
    rows = gold_rows(settings.dataset, settings.seed, settings.rewards, tags, settings.max_samples, console)
    require_reward_columns(rewards, list(rows.columns), "the problems have")
    scores = _scored(rewards, rows, stand_in_context(RewardContext(tags)), console) if rewards.functions else []
    print_golds(console, rows, scores, settings.rewards, settings.show)
    return rows, scores


def _of_samples(settings: ScoreSettings, console: Console) -> tuple[ScoredRows, list[RewardScores]]:
    # Only here: torch and transformers take seconds to import, and the other uses do not need them.
    from rlvr_vocab.commands.score.samples import sampled_rows

    assert settings.model is not None and settings.dataset is not None
    rows, context = sampled_rows(settings, settings.model, settings.dataset, console)
    scores = _scored(settings.rewards, rows, context, console)
    print_turns(console, rows, scores, settings.show)
    print_rewards(console, rows, scores)
    return rows, scores


def _scored(rewards: RewardSettings, rows: ScoredRows, context: RewardContext, console: Console) -> list[RewardScores]:
    built = build_rewards(rewards.functions, context)
    with stage(console, "scoring", len(rows)) as display:
        return score_rows(built, rows, lambda done, total: display.update(done, total=total))


def _require_columns(rewards: RewardSettings, rows: ScoredRows, source: CompletionSource) -> None:
    """Raises UserError where a reward needs something that the file has not."""
    given = {*rows.arguments(0, 1)}
    for spec in rewards.functions:
        for column in [*required_columns(spec, trainer=()), *traits_of(find_function(spec.name)).wanted]:
            if column not in given:
                listed = ", ".join(map(short_text, rows.columns)) or "no other column"
                hint = f"; name it with {_NAMED_BY[column]}=…" if column in _NAMED_BY else ""
                raise UserError(f"reward {spec.name} needs {column}; {source.path} has {listed}{hint}")
