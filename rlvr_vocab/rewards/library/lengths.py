"""Rewards for length: a range to stay in, a cosine that depends on being right, and a margin before the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, required, shown, whole_number
from rlvr_vocab.rewards.reward import LIBRARY, Score, reward
from rlvr_vocab.rewards.turns import COUNTS_SAMPLED, THINK_TAGS, parts, sampled_ids, turn_text
from rlvr_vocab.text import nearest_and_all, pluralize

_PASSING_SCORE = 0.5
_LONGEST_MEANING = "the limit on sampled tokens, training.max_completion_length of the run"


def length_score(size: int, shortest: int, longest: float, falloff: float, unit: str) -> Score:
    """How near a length is to a range: 1 inside, 0 at `falloff` outside, linear between."""
    distance = max(shortest - size, size - longest, 0)
    side = "" if not distance else ", too short" if size < shortest else ", too long"
    return Score(max(0.0, 1.0 - distance / falloff), f"{size} {unit}{side}")


def cosine_score(
    right: bool,
    size: int,
    max_length: int,
    correct: tuple[float, float],
    wrong: tuple[float, float],
    exceed_penalty: float | None,
) -> Score:
    """A length on the cosine between two values, `(lowest, highest)` for right and for wrong answers."""
    reason = f"{'right' if right else 'wrong'}, {size} of {max_length} tokens"
    if exceed_penalty is not None and size >= max_length:
        return Score(exceed_penalty, f"{reason}, too long")
    at_the_limit, at_once = correct if right else (wrong[1], wrong[0])
    # Past the limit the cosine would climb again.
    progress = min(size / max_length, 1.0)
    return Score(at_the_limit + 0.5 * (at_once - at_the_limit) * (1.0 + math.cos(math.pi * progress)), reason)


def overlong_score(size: int, max_completion_length: int, cache: int) -> Score:
    """How far a length reaches into the last `cache` tokens before the limit."""
    free = max_completion_length - cache
    if size <= free:
        return Score(0.0, f"{pluralize(size, 'token')}")
    if size > max_completion_length:
        return Score(-1.0, f"{pluralize(size, 'token')}, over the limit")
    return Score((free - size) / cache, f"{pluralize(size - free, 'token')} into the last {cache}")


@reward(skip_gold_check=COUNTS_SAMPLED)
def length(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    shortest: int = 0,
    longest: int | None = None,
    falloff: float | None = None,
    unit: str = "tokens",
    **_columns: Any,
) -> list[Score]:
    """1 for a length from `shortest` to `longest`, falling linearly to 0 at `falloff` outside.

    The score is `max(0, 1 - d / falloff)`, with `d` the distance to the range.

    Args:
        shortest: least length that earns the full mark.
        longest: greatest length that does; None for no limit.
        falloff: distance from the range at which nothing is left; by default the width of the range, and `shortest`
            where there is no limit.
        unit: `tokens` that were sampled, or `words` or `characters` of the text.

    Example:
        >>> length(["", "one two three", "one two three four"], shortest=2, longest=3, falloff=4, unit="words")
        [0.5, 1.0, 0.75]
    """
    whole_number("length", "shortest", shortest)
    if longest is None and shortest == 0:
        raise UserError("length: shortest and longest are missing: give one of them, or both")
    if longest is not None and whole_number("length", "longest", longest) < shortest:
        raise UserError(f"length: longest={longest} is less than shortest={shortest}")
    limit = math.inf if longest is None else longest
    if falloff is None:
        falloff = max(1, shortest if longest is None else longest - shortest)
    falloff = number("length", "falloff", falloff, least=1)
    sizes = map(len, parts("length", completions, completion_ids, unit))
    return [length_score(size, shortest, limit, falloff, unit) for size in sizes]


@reward(
    shapes="grader",
    verifies=True,
    answer_in="box",
    skip_gold_check=f"{COUNTS_SAMPLED}; its grader can be tried by itself",
    aliases=("get_cosine_scaled_reward",),  # TRL's name
)
def cosine_length(
    completions: Sequence[Any],
    solution: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    max_completion_length: int | None = None,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    exceed_penalty: float | None = None,
    grader: str | Callable[..., list[float | None]] = "accuracy",
    think_tags: tuple[str, str] = THINK_TAGS,
    **columns: Any,
) -> list[Score]:
    r"""Correctness shaped by length: right answers earn more the shorter they are, wrong ones lose more.

    With `t` sampled tokens and limit `T`, the score is `b + (a - b) / 2 * (1 + cos(pi * t / T))`, from `a` at length 0
    to `b` at the limit and beyond: `max_value_correct` to `min_value_correct` for right answers, `min_value_wrong` to
    `max_value_wrong` for wrong ones. From "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373),
    appendix C.1; values as in TRL's `get_cosine_scaled_reward`. A `grader` of the library, or a function, tells right
    from wrong, above 0.5 being right; None where it has no score. `exceed_penalty` is for all that reach the limit.

    Example:
        >>> turns, ids = ["7", "7", "8", "8"], [[0] * 0, [0] * 50, [0] * 50, [0] * 100]
        >>> [round(s, 3) for s in cosine_length(turns, ["7"] * 4, ids, max_completion_length=100, grader="numeric")]
        [1.0, 0.75, -0.75, -0.5]
    """
    limit = required("cosine_length", "max_completion_length", max_completion_length, _LONGEST_MEANING)
    whole_number("cosine_length", "max_completion_length", limit, least=1)
    given = {
        "min_value_correct": min_value_correct,
        "max_value_correct": max_value_correct,
        "min_value_wrong": min_value_wrong,
        "max_value_wrong": max_value_wrong,
    }
    for name, value in given.items():
        number("cosine_length", name, value)
    if exceed_penalty is not None:
        number("cosine_length", "exceed_penalty", exceed_penalty)
    sizes = [len(ids) for ids in sampled_ids("cosine_length", completion_ids)]
    scores = _grader(grader)(completions=completions, solution=solution, think_tags=think_tags, **_quiet(columns))
    correct, wrong = (min_value_correct, max_value_correct), (min_value_wrong, max_value_wrong)
    return [
        Score(None, "not graded")
        if score is None
        else cosine_score(score > _PASSING_SCORE, size, limit, correct, wrong, exceed_penalty)
        for score, size in zip(scores, sizes, strict=True)
    ]


@reward(full_mark=0.0, skip_gold_check=COUNTS_SAMPLED, aliases=("get_soft_overlong_punishment",))  # TRL's name
def overlong(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    max_completion_length: int | None = None,
    cache: int | None = None,
    **_columns: Any,
) -> list[Score]:
    """A soft punishment before the limit on length: 0, then falling to -1 over the last `cache` tokens.

    With `t` sampled tokens, limit `L` and cache `c`: 0 up to `L - c`, `((L - c) - t) / c` up to `L`, -1 beyond. From
    DAPO (arXiv 2503.14476), equation 13; the same as TRL's `get_soft_overlong_punishment`. By default `cache` is a
    fifth of `max_completion_length`, as in DAPO.

    Example:
        >>> overlong([""] * 3, [[0] * 80, [0] * 90, [0] * 100], max_completion_length=100, cache=20)
        [0.0, -0.5, -1.0]
    """
    limit = required("overlong", "max_completion_length", max_completion_length, _LONGEST_MEANING)
    whole_number("overlong", "max_completion_length", limit, least=1)
    margin = whole_number("overlong", "cache", limit // 5 if cache is None else cache)
    if margin > limit:
        raise UserError(f"overlong: cache={margin} is more than max_completion_length={limit}")
    return [overlong_score(len(ids), limit, margin) for ids in sampled_ids("overlong", completion_ids)]


def _grader(grader: str | Callable[..., list[float | None]]) -> Callable[..., list[float | None]]:
    if not isinstance(grader, str):
        return grader
    if grader not in LIBRARY:
        raise UserError(f"cosine_length: grader={shown(grader)} is unknown{nearest_and_all(grader, sorted(LIBRARY))}")
    return LIBRARY[grader]


def _quiet(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns without what a grader could log with: the run may well use it as a reward of its own besides."""
    return {name: column for name, column in columns.items() if name not in ("log_extra", "log_metric")}


_MEANINGS = {
    "standard_size": "the number of standard token ids, from which on ids are reasoning tokens",
    "think_open_id": "the id of the tag that opens thinking",
    "think_close_id": "the id of the tag that closes thinking",
}


def share_score(
    ids: Sequence[int],
    standard_size: int,
    think_open_id: int,
    think_close_id: int,
    begins_thinking: bool,
    target: float,
) -> Score:
    """How near the share of reasoning tokens among those sampled while thinking is to a target."""
    thinking, tokens, reasoning_tokens = begins_thinking, 0, 0
    for token in ids:
        # A token belongs to the region in which it was chosen: a closing tag was chosen while thinking.
        tokens += thinking
        reasoning_tokens += thinking and token >= standard_size
        thinking = token == think_open_id or (thinking and token != think_close_id)
    if not tokens:
        return Score(None, "no thinking")
    # Exact until the end, so that with the target 1 the score is the share to the last digit.
    wanted = Fraction(str(target))
    distance = abs(Fraction(reasoning_tokens, tokens) - wanted)
    return Score(float(1 - distance / max(wanted, 1 - wanted)), f"{reasoning_tokens} of {tokens} thinking tokens")


@reward(skip_gold_check=COUNTS_SAMPLED)
def reasoning_share(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    standard_size: int | None = None,
    think_open_id: int | None = None,
    think_close_id: int | None = None,
    target: float = 1.0,
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    """The share of reasoning tokens among the tokens sampled while thinking, or how near it is to a target.

    With share `s` and target `t` the score is `1 - |s - t| / max(t, 1 - t)`: the share itself for the target 1, None
    without thinking.
    Thinking lasts from an opening tag to a closing one, which counts. A completion that reads as if it began with the
    opening tag and was not sampled with it began to think in the prompt.

    Example:
        >>> turns, ids = ["<think>a b</think>c", "d"], [[90, 10, 111, 91, 12], [13]]
        >>> reasoning_share.explain(turns, ids, standard_size=100, think_open_id=90, think_close_id=91)[0]
        Score(value=0.3333333333333333, reason='1 of 3 thinking tokens')
        >>> reasoning_share(turns, ids, standard_size=100, think_open_id=90, think_close_id=91, target=0.5)
        [0.6666666666666666, None]
    """
    given = {"standard_size": standard_size, "think_open_id": think_open_id, "think_close_id": think_close_id}
    size, open_id, close_id = (
        whole_number("reasoning_share", name, required("reasoning_share", name, value, _MEANINGS[name]))
        for name, value in given.items()
    )
    target = number("reasoning_share", "target", target, least=0, most=1)
    scores = []
    for completion, ids in zip(completions, sampled_ids("reasoning_share", completion_ids), strict=True):
        prefilled = turn_text(completion).startswith(think_tags[0]) and list(ids[:1]) != [open_id]
        scores.append(share_score(ids, size, open_id, close_id, prefilled, target))
    return scores
