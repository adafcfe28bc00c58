"""The scores of rows as lines for people and as JSON: rows with their reasons, what each reward came to, failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from rich.console import Console

from rlvr_vocab.commands.score.rows import RewardScores, ScoredRows, total_of
from rlvr_vocab.config.sections import RewardSettings
from rlvr_vocab.data.answers import cell_text, gold_text
from rlvr_vocab.rewards.build import find_function
from rlvr_vocab.rewards.guard import Mistake
from rlvr_vocab.rewards.reward import RewardSpec, traits_of
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.rewards.user_code import is_user_code
from rlvr_vocab.terminal import print_section
from rlvr_vocab.text import pluralize, printable, short_text, visible_text
from rlvr_vocab.verify.golds import COMPARED_AS_TEXT, check_golds

# Characters of what is shown.
REASON_WIDTH, FAILURE_WIDTH, TEXT_WIDTH, TURN_WIDTH, PROBLEM_WIDTH, GOLD_WIDTH = 90, 300, 60, 2_000, 120, 60
FAILURES_SHOWN, GOLDS_SHOWN = 5, 10
Order = Literal["lowest", "highest", "file"]
_TITLES: dict[Order, str] = {"lowest": "Lowest totals", "highest": "Highest totals", "file": "Rows"}


def print_rows(console: Console, rows: ScoredRows, scores: Sequence[RewardScores], order: Order, show: int) -> None:
    """Up to `show` rows, each with its scores and why they are below the full mark."""
    chosen = _ordered(scores, len(rows), order)[:show]
    if chosen:
        lines = (row_line(rows, scores, row) for row in chosen)
        print_section(console, f"{_TITLES[order]}, {len(chosen):,} of {len(rows):,}", lines)


def print_turns(console: Console, rows: ScoredRows, scores: Sequence[RewardScores], show: int) -> None:
    """The text of up to `show` turns in their order, each below its scores."""
    for row in range(min(show, len(rows))):
        print_section(console, row_line(rows, scores, row, with_text=False), _turn_lines(rows, row))
    if len(rows) > show:
        console.print(f"\n{len(rows) - show:,} more: raise show", markup=False)


def print_rewards(console: Console, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """What each reward came to, and the total."""
    print_section(console, "Rewards", _reward_lines(rows, scores))


def print_golds(
    console: Console,
    rows: ScoredRows,
    scores: Sequence[RewardScores],
    rewards: RewardSettings,
    show: int,
) -> None:
    """For each reward how many gold answers have full marks, and those that do not; or why it has none."""
    lines = [f"judged in made-up turns like {rows.completions[0][0]['content']!r}"] if scores else []
    next_scores = iter(scores)
    for function in rewards.functions:
        if why := reason_not_judged(function):
            lines.append(f"{function.name}: not judged: {why}")
        else:
            lines += _gold_lines(rows, next(next_scores), function, min(show, GOLDS_SHOWN))
    print_section(console, "Gold answers", lines)


def reason_not_judged(spec: RewardSpec) -> str:
    """Why a made-up turn with the gold answer says nothing about a reward; empty where it does."""
    return traits_of(find_function(spec.name)).skip_gold_check


def print_failures(console: Console, rows: ScoredRows, scores: Sequence[RewardScores]) -> None:
    """The rows on which a function raised or returned no score, and what it did."""
    for each in scores:
        if each.failed:
            title = f"{each.reward.name} failed on {len(each.failed):,} of {pluralize(len(rows), 'row')}"
            lines = list(_failure_lines(rows, each))
            more = [f"{len(lines) - FAILURES_SHOWN:,} more"] if len(lines) > FAILURES_SHOWN else []
            print_section(console, title, [*lines[:FAILURES_SHOWN], *more], style="bold red")


def row_json(rows: ScoredRows, scores: Sequence[RewardScores], row: int) -> dict[str, Any]:
    """Where a row is from, prompt, completion, gold answer, total, and by reward what it gave."""
    known: dict[str, Any] = {**rows.places[row]}
    if rows.prompts is not None:
        known["prompt"] = rows.prompts[row]
    known["completion"] = turn_text(rows.completions[row])
    if "solution" in rows.columns:
        known["solution"] = rows.columns["solution"][row]
    rewards = {each.reward.name: _score_json(each, row) for each in scores}
    return {**known, "total": total_of(scores, row), "rewards": rewards}


def _score_json(each: RewardScores, row: int) -> dict[str, Any]:
    score = each.scores[row]
    given = {"score": score.value, "reason": score.reason, "failed": isinstance(score, Mistake)}
    if each.verdicts is None:
        return given
    verdict = each.verdicts[row]
    return {**given, "gold": verdict.gold, "answer": verdict.answer, "milliseconds": round(verdict.milliseconds, 3)}


def _ordered(scores: Sequence[RewardScores], num_rows: int, order: Order) -> list[int]:
    """The rows as they are to be shown; those without any score come first, as something is wrong with them."""
    if order == "file":
        return list(range(num_rows))
    totals = [total_of(scores, row) for row in range(num_rows)]
    sign = 1 if order == "lowest" else -1
    return sorted(range(num_rows), key=lambda row: -float("inf") if (total := totals[row]) is None else sign * total)


def row_line(rows: ScoredRows, scores: Sequence[RewardScores], row: int, with_text: bool = True) -> str:
    parts = [f"{_place_name(rows, row)}: total {_number(total_of(scores, row))}"]
    for each in scores:
        reason = "" if each.is_full(row) or not each.scores[row].reason else f" ({_reason(each, row)})"
        parts.append(f"{each.reward.name} {_number(each.scores[row].value)}{reason}")
    return "; ".join([*parts, f"text: {_shown_turn(rows, row)}"] if with_text else parts)


def _turn_lines(rows: ScoredRows, row: int) -> Iterator[str]:
    if rows.prompts is not None:
        asked = short_text(rows.prompts[row][-1]["content"], PROBLEM_WIDTH)
        yield f"asked: {asked}" + (f" (gold {_gold(rows, row)})" if "solution" in rows.columns else "")
    text = turn_text(rows.completions[row])
    if len(text) > TURN_WIDTH:
        text = f"{text[: TURN_WIDTH // 2]} … {len(text) - TURN_WIDTH:,} characters … {text[-TURN_WIDTH // 2 :]}"
    yield from (f"│ {line}" for line in visible_text(text).splitlines())


def _reward_lines(rows: ScoredRows, scores: Sequence[RewardScores]) -> Iterator[str]:
    yield from map(reward_line, scores)
    totals = [total for row in range(len(rows)) if (total := total_of(scores, row)) is not None]
    if len(scores) > 1 and totals:
        yield f"total: mean {_number(sum(totals) / len(totals))}"
    groups, alike = groups_alike(rows, scores)
    if groups:
        yield f"prompts with several completions: {groups:,}; of one total, so with nothing to learn from: {alike:,}"


def reward_line(each: RewardScores) -> str:
    values, reward, total = each.values, each.reward, len(each.scores)
    full = sum(map(each.is_full, range(total)))
    mean = _number(sum(values) / len(values)) if values else "none"
    adaptive = " at the start" if reward.adaptive is not None else ""
    return (
        f"{reward.name}: mean {mean}, full mark {_number(reward.full_mark)}, "
        f"at full mark {full:,} of {total:,} ({share_of(full, total)}), without a score {total - len(values):,}, "
        f"ms a row {each.seconds / total * 1000:,.2g}, weight {_number(reward.weight)}{adaptive}"
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


def _gold_lines(rows: ScoredRows, each: RewardScores, function: RewardSpec, show: int) -> Iterator[str]:
    """What one reward gives for the gold answers."""
    yield reward_line(each)
    failed = set(each.failed)
    below = [row for row in range(len(rows)) if not each.is_full(row) and row not in failed]
    for row in below[:show]:
        reason = f", {_reason(each, row)}" if each.scores[row].reason else ""
        gold = f" (gold {_gold(rows, row)})" if "solution" in rows.columns else ""
        yield f"  {_place_name(rows, row)}: {_number(each.scores[row].value)}{reason}{gold}"
    if len(below) > show:
        yield f"  {len(below) - show:,} more"
    full_mark, best = each.reward.full_mark, max(each.values, default=None)
    if best is not None and best < full_mark and is_user_code(function.name) and function.full_mark is None:
        unpaid = "it may want another form of turn; " * (best == 0)
        advice = f"if {_number(best)} is its best, say full_mark: {_number(best)}"
        yield f"  no row reaches {_number(full_mark)}; {unpaid}{advice}"
    if each.verdicts is not None:
        ambiguous = list(check_golds([gold_text(gold) for gold in rows.columns["solution"]]).ambiguous)
        if ambiguous:
            shown = "; ".join(f"{_place_name(rows, row)}: {_gold(rows, row)}" for row in ambiguous[:show])
            yield f"  {len(ambiguous):,} {COMPARED_AS_TEXT} ({shown}{'; …' * (len(ambiguous) > show)})"


def _failure_lines(rows: ScoredRows, each: RewardScores) -> Iterator[str]:
    """What a function did, row by row; once where it concerns what it returned for all of them."""
    last = None
    for row in each.failed:
        score = each.scores[row]
        reason = short_text(score.reason, FAILURE_WIDTH)
        if not (isinstance(score, Mistake) and score.of_the_batch):
            yield f"{_place_name(rows, row)}: {reason}; text: {_shown_turn(rows, row)}"
        elif score is not last:
            last = score
            yield f"from {_place_name(rows, row)} on: {reason}"


def _place_name(rows: ScoredRows, row: int) -> str:
    """Example: `step 10, row 3`."""
    return ", ".join(f"{what} {value}" for what, value in rows.places[row].items())


def _shown_turn(rows: ScoredRows, row: int) -> str:
    """How a turn begins and ends."""
    return printable(" ".join(turn_text(rows.completions[row]).split()), TEXT_WIDTH)


def _reason(each: RewardScores, row: int) -> str:
    return short_text(each.scores[row].reason, REASON_WIDTH)


def _gold(rows: ScoredRows, row: int) -> str:
    return short_text(cell_text(rows.columns["solution"][row]), GOLD_WIDTH)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
