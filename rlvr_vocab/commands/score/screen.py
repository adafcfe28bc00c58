"""Scores for people: rows with their reasons, what each reward came to, and the rows that a function failed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlvr_vocab.atomic_file import write_jsonl_whole
from rlvr_vocab.commands.score.rows import RewardScores, ScoredRows, total_of
from rlvr_vocab.counted import counted
from rlvr_vocab.data.rows import short_text
from rlvr_vocab.rewards.guard import Mistake
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.visible_text import printable, visible_text

REASON_WIDTH, MISTAKE_WIDTH, TEXT_WIDTH, TURN_WIDTH = 90, 300, 60, 2_000
PROBLEM_WIDTH = 120
MISTAKES_SHOWN = 5
FIGURES = ("mean", "full mark", "at full mark", "without a score", "ms a row", "weight")
Order = Literal["lowest", "highest", "file"]


def print_rows(console: Console, rows: ScoredRows, scores: Sequence[RewardScores], order: Order, show: int) -> None:
    """Up to `show` rows, each with its scores and why they are below the full mark, and how many more there are."""
    chosen = ordered(scores, len(rows), order)[:show]
    if not chosen:
        return
    what = {"lowest": "Lowest totals", "highest": "Highest totals", "file": "Rows"}[order]
    title(console, f"{what}, {len(chosen):,} of {len(rows):,}")
    if not console.is_terminal:
        for row in chosen:
            console.print(f"  {row_line(rows, scores, row)}", markup=False)
        return
    table = Table("row", "total", *(each.reward.name for each in scores), "below full mark", box=None)
    table.add_column("text", max_width=TEXT_WIDTH)
    for row in chosen:
        values = [number(each.scores[row].value) for each in scores]
        cells = [
            place_name(rows, row),
            number(total_of(scores, row)),
            *values,
            reasons(scores, row),
            shown_turn(rows, row),
        ]
        table.add_row(*map(Text, cells))
    console.print(table)


def print_turns(console: Console, rows: ScoredRows, scores: Sequence[RewardScores], show: int) -> None:
    """The text of up to `show` turns in their order, each below its scores."""
    for row in range(min(show, len(rows))):
        title(console, row_line(rows, scores, row, with_text=False))
        if rows.prompts is not None:
            asked = short_text(rows.prompts[row][-1]["content"], PROBLEM_WIDTH)
            console.print(f"  asked: {asked} (gold {short_text(rows.columns['solution'][row])})", markup=False)
        text = turn_text(rows.completions[row])
        if len(text) > TURN_WIDTH:
            text = f"{text[: TURN_WIDTH // 2]} … {len(text) - TURN_WIDTH:,} characters … {text[-TURN_WIDTH // 2 :]}"
        for line in visible_text(text).splitlines():
            console.print(f"  │ {line}", markup=False)
    if len(rows) > show:
        console.print(f"\n{len(rows) - show:,} more: raise show", markup=False)


def print_rewards(console: Console, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """What each reward came to, and the total."""
    title(console, "Rewards")
    if console.is_terminal:
        table = Table("reward", *FIGURES, box=None)
        for each in scores:
            table.add_row(*map(Text, (each.reward.name, *figures(each))))
        console.print(table)
    else:
        for each in scores:
            console.print(f"  {reward_line(each)}", markup=False)
    totals = [total for row in range(len(rows)) if (total := total_of(scores, row)) is not None]
    if len(scores) > 1 and totals:
        console.print(f"  total: mean {number(mean(totals))}", markup=False)
    groups, alike = groups_alike(rows, scores)
    if groups:
        console.print(
            f"  prompts with several completions: {groups:,}; of one total, so with nothing to learn from: {alike:,}",
            markup=False,
        )


def print_mistakes(console: Console, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """The rows on which a function raised or returned no score, and what it did."""
    for each in scores:
        if not each.failed:
            continue
        title(
            console,
            f"{each.reward.name} failed on {len(each.failed):,} of {counted(len(rows), 'row')}",
            style="bold red",
        )
        lines = list(mistake_lines(rows, each))
        more = [f"{len(lines) - MISTAKES_SHOWN:,} more"] if len(lines) > MISTAKES_SHOWN else []
        for line in [*lines[:MISTAKES_SHOWN], *more]:
            console.print(f"  {line}", markup=False)


def mistake_lines(rows: ScoredRows, each: RewardScores) -> Iterator[str]:
    """What a function did, row by row; once where it concerns what it returned for all of them."""
    told = None
    for row in each.failed:
        score = each.scores[row]
        reason = short_text(score.reason, MISTAKE_WIDTH)
        if not (isinstance(score, Mistake) and score.of_the_batch):
            yield f"{place_name(rows, row)}: {reason}; text: {shown_turn(rows, row)}"
        elif score is not told:
            told = score
            yield f"from {place_name(rows, row)} on: {reason}"


def title(console: Console, text: str, style: str = "bold cyan") -> None:
    console.print(f"\n{text}", style=style, markup=False)


def ordered(scores: Sequence[RewardScores], num_rows: int, order: Order) -> list[int]:
    """The rows as they are to be shown; those without any score come first, as something is wrong with them."""
    if order == "file":
        return list(range(num_rows))
    totals = [total_of(scores, row) for row in range(num_rows)]
    sign = 1 if order == "lowest" else -1
    return sorted(range(num_rows), key=lambda row: -float("inf") if (total := totals[row]) is None else sign * total)


def row_line(rows: ScoredRows, scores: Sequence[RewardScores], row: int, with_text: bool = True) -> str:
    parts = [f"{place_name(rows, row)}: total {number(total_of(scores, row))}"]
    for each in scores:
        reason = "" if each.is_full(row) or not each.scores[row].reason else f" ({reason_of(each, row)})"
        parts.append(f"{each.reward.name} {number(each.scores[row].value)}{reason}")
    return "; ".join([*parts, f"text: {shown_turn(rows, row)}"] if with_text else parts)


def reasons(scores: Sequence[RewardScores], row: int) -> str:
    """Why a row is below the full mark, a line for each reward."""
    below = [each for each in scores if not each.is_full(row) and each.scores[row].reason]
    return "\n".join(f"{each.reward.name}: {reason_of(each, row)}" for each in below)


def reason_of(each: RewardScores, row: int) -> str:
    return short_text(each.scores[row].reason, REASON_WIDTH)


def reward_line(each: RewardScores) -> str:
    parts = [f"{what} {figure}" for what, figure in zip(FIGURES, figures(each), strict=True)]
    return f"{each.reward.name}: {', '.join(parts)}"


def figures(each: RewardScores) -> tuple[str, ...]:
    """What a reward came to, in the order of `FIGURES`."""
    values, reward, total = each.values, each.reward, len(each.scores)
    full = sum(map(each.is_full, range(total)))
    return (
        number(mean(values)) if values else "none",
        number(reward.full_mark),
        f"{full:,} of {total:,} ({share_of(full, total)})",
        f"{total - len(values):,}",
        f"{each.seconds / total * 1000:,.2g}",
        f"{number(reward.weight)}{' at the start' if reward.adaptive is not None else ''}",
    )


def share_of(part: int, whole: int) -> str:
    """A share in per cent; never 100 or 0 where that is not exact."""
    return f"{min(max(part / whole, 0.0001), 0.9999):.2%}" if 0 < part < whole else f"{part // whole:.0%}"


def groups_alike(rows: ScoredRows, scores: Sequence[RewardScores]) -> tuple[int, int]:
    """How many prompts have several completions side by side, and how many of those have one total for all."""
    groups: list[list[float | None]] = []
    for row in range(len(rows) if rows.prompts is not None else 0):
        if row and rows.prompts is not None and rows.prompts[row] == rows.prompts[row - 1]:
            groups[-1].append(total_of(scores, row))
        else:
            groups.append([total_of(scores, row)])
    several = [group for group in groups if len(group) > 1]
    return len(several), sum(len(set(group)) == 1 for group in several)


def place_name(rows: ScoredRows, row: int) -> str:
    """Example: `step 10, row 3`."""
    return ", ".join(f"{what} {value}" for what, value in rows.places[row].items())


def shown_turn(rows: ScoredRows, row: int) -> str:
    """How a turn begins and ends."""
    return printable(" ".join(turn_text(rows.completions[row]).split()), TEXT_WIDTH)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def write_scores(path: Path, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """One object a row: where it is from, prompt, completion, gold answer, total, and by reward what it gave."""
    write_jsonl_whole(path, (_row(rows, scores, row) for row in range(len(rows))), "out")


def _row(rows: ScoredRows, scores: Sequence[RewardScores], row: int) -> dict[str, Any]:
    known: dict[str, Any] = {**rows.places[row]}
    if rows.prompts is not None:
        known["prompt"] = rows.prompts[row]
    known["completion"] = turn_text(rows.completions[row])
    if "solution" in rows.columns:
        known["solution"] = rows.columns["solution"][row]
    rewards = {each.reward.name: _given(each, row) for each in scores}
    return {**known, "total": total_of(scores, row), "rewards": rewards}


def _given(each: RewardScores, row: int) -> dict[str, Any]:
    score = each.scores[row]
    given = {"score": score.value, "reason": score.reason, "failed": isinstance(score, Mistake)}
    if each.verdicts is None:
        return given
    verdict = each.verdicts[row]
    return {**given, "gold": verdict.gold, "answer": verdict.answer, "milliseconds": round(verdict.milliseconds, 3)}
