"""Gold answers through the rewards that shall find them right, each in a made-up turn that answers it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rlvr_vocab.commands.score.rows import RewardScores, ScoredRows
from rlvr_vocab.commands.score.screen import number, place_name, reason_of, reward_line, title
from rlvr_vocab.config.problem_source import problem_source, problem_split, prompt_style
from rlvr_vocab.config.sections import DatasetSettings, RewardSettings
from rlvr_vocab.data import DividedProblems, read_problems
from rlvr_vocab.data.load import build_report, require_problems
from rlvr_vocab.data.rows import short_text
from rlvr_vocab.data.table import problem_table
from rlvr_vocab.rewards.build import find_function
from rlvr_vocab.rewards.dry_run import stand_in_ids
from rlvr_vocab.rewards.reward import RewardSpec, traits_of
from rlvr_vocab.rewards.user_code import is_user_code
from rlvr_vocab.runs.rewards import gold_turn
from rlvr_vocab.verify.golds import COMPARED_AS_TEXT, check_golds
from rlvr_vocab.verify.verdict import Verdict

_MOST_SHOWN = 10
_SLOWEST_SHOWN = 3
_GOLD_WIDTH = 60


def judged(rewards: RewardSettings) -> RewardSettings:
    """The rewards that a made-up turn can be judged by."""
    return RewardSettings(tuple(spec for spec in rewards.functions if not why_not_judged(spec)))


def why_not_judged(spec: RewardSpec) -> str:
    return traits_of(find_function(spec.name)).not_for_golds


def gold_rows(
    dataset: DatasetSettings,
    seed: int,
    rewards: RewardSettings,
    think_tags: tuple[str, str],
    most: int | None,
    console: Console,
) -> ScoredRows:
    """The problems of a set, held-out ones included, each answered by its gold answer.

    Raises:
        UserError: the set cannot be read, or holds no problem.
    """
    divided = read_problems(problem_source(dataset), problem_split(dataset, seed))
    table = problem_table(divided.problems, prompt_style(dataset), divided.source.columns.reasoning)
    report = build_report(divided, table.notes)
    require_problems(report, wants_eval=False)
    for line in report.lines():
        console.print(line, markup=False)
    columns = {name: cells.slice(0, most).to_pylist() for name, cells in table.columns.items()}
    turns = [gold_turn(solution, rewards, think_tags) for solution in columns["solution"]]
    prompts = columns.pop("prompt")
    return ScoredRows(places_of(divided)[:most], turns, prompts, {**columns, "completion_ids": stand_in_ids(turns)})


def places_of(divided: DividedProblems) -> list[dict[str, int | str]]:
    num_train = len(divided.train_rows.problems)
    return [
        {**({} if index < num_train else {"split": divided.source.eval_split or ""}), "row": problem.row_number}
        for index, problem in enumerate(divided.problems)
    ]


def print_golds(
    console: Console, rows: ScoredRows, scores: Sequence[RewardScores], rewards: RewardSettings, show: int
) -> None:
    """For each reward how many gold answers have full marks, those that do not, and the slowest; or why it has none."""
    title(console, "Gold answers")
    if scores:
        console.print(f"  judged in made-up turns like {rows.completions[0][0]['content']!r}", markup=False)
    next_scores = iter(scores)
    for function in rewards.functions:
        if why := why_not_judged(function):
            console.print(f"  {function.name}: not judged: {why}", markup=False)
            continue
        for line in gold_lines(rows, next(next_scores), function, min(show, _MOST_SHOWN)):
            console.print(f"  {line}", markup=False)


def gold_lines(rows: ScoredRows, each: RewardScores, function: RewardSpec, show: int) -> Iterator[str]:
    """What one reward says of the gold answers."""
    yield reward_line(each)
    failed = set(each.failed)
    below = [row for row in range(len(rows)) if not each.is_full(row) and row not in failed]
    for row in below[:show]:
        reason = f", {reason_of(each, row)}" if each.scores[row].reason else ""
        yield f"  {place_name(rows, row)}: {number(each.scores[row].value)}{reason} (gold {_gold(rows, row)})"
    if len(below) > show:
        yield f"  {len(below) - show:,} more"
    full_mark, best = each.reward.full_mark, max(each.values, default=None)
    if best is not None and best < full_mark and is_user_code(function.name) and function.full_mark is None:
        yield f"  no row reaches {number(full_mark)}; if {number(best)} is its best, say full_mark: {number(best)}"
    if each.verdicts is not None:
        ambiguous = list(check_golds(rows.columns["solution"]).ambiguous)
        if ambiguous:
            shown = "; ".join(f"{place_name(rows, row)}: {_gold(rows, row)}" for row in ambiguous[:show])
            yield f"  {len(ambiguous):,} {COMPARED_AS_TEXT} ({shown}{'; …' * (len(ambiguous) > show)})"
        yield f"  slowest to verify: {'; '.join(_slowest(rows, each.verdicts))}"


def _slowest(rows: ScoredRows, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The gold answers that took the verifier longest, each with its first row."""
    first_rows = {rows.columns["solution"][row]: row for row in reversed(range(len(verdicts)))}
    ranked = sorted(first_rows.values(), key=lambda row: -verdicts[row].milliseconds)
    for row in ranked[:_SLOWEST_SHOWN]:
        yield f"{place_name(rows, row)} {verdicts[row].milliseconds:,.1f} ms ({_gold(rows, row)})"


def _gold(rows: ScoredRows, row: int) -> str:
    return short_text(rows.columns["solution"][row], _GOLD_WIDTH)
