"""Rewards for length: a range, a cosine that depends on being right, a margin before the limit, reasoning tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import LIBRARY, Score, reward
from rlvr_vocab.rewards.turns import COUNTS_SAMPLED, THINK_TAGS, Tags, Unit, parts, sampled_ids, turn_text
from rlvr_vocab.text import nearest_and_all, pluralize

_PASSING_SCORE = 0.5


@reward(skip_gold_check=COUNTS_SAMPLED)
def length(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    shortest: NonNegativeInt = 0,
    longest: NonNegativeInt | None = None,
    falloff: Annotated[float, Field(ge=1)] | None = None,
    unit: Unit = "tokens",
    **_columns: Any,
) -> list[Score]:
    """1 for a length from `shortest` to `longest`, falling linearly to 0 at `falloff` outside.

    By default `falloff` is the width of the range, or `shortest` where there is no `longest`.

    >>> length(["", "one two three", "one two three four"], shortest=2, longest=3, falloff=4, unit="words")
    [0.5, 1.0, 0.75]
    """
    if longest is None and shortest == 0:
        raise UserError("length: shortest and longest are missing: give one of them, or both")
    if longest is not None and longest < shortest:
        raise UserError(f"length: longest={longest} is less than shortest={shortest}")
    if falloff is None:
        falloff = max(1, shortest if longest is None else longest - shortest)
    scores = []
    for size in map(len, parts("length", completions, completion_ids, unit)):
        distance = max(shortest - size, size - (math.inf if longest is None else longest), 0)
        side = "" if not distance else ", too short" if size < shortest else ", too long"
        scores.append(Score(max(0.0, 1.0 - distance / falloff), f"{size} {unit}{side}"))
    return scores


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
    *,
    max_completion_length: PositiveInt,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    exceed_penalty: float | None = None,
    grader: str | Callable[..., list[float | None]] = "accuracy",
    think_tags: Tags = THINK_TAGS,
    **columns: Any,
) -> list[Score]:
    r"""Correctness shaped by length: right answers earn more the shorter they are, wrong ones lose more.

    From "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373), appendix C.1; values as in TRL.

    >>> turns, ids = ["7", "7", "8", "8"], [[0] * 0, [0] * 50, [0] * 50, [0] * 100]
    >>> [round(s, 3) for s in cosine_length(turns, ["7"] * 4, ids, max_completion_length=100, grader="numeric")]
    [1.0, 0.75, -0.75, -0.5]
    """
    if isinstance(grader, str):
        if grader not in LIBRARY:
            raise UserError(f"cosine_length: grader={grader} is unknown{nearest_and_all(grader, sorted(LIBRARY))}")
        grader = LIBRARY[grader]
    # Without what the grader could log with: the run may use it as a reward of its own besides.
    columns = {name: column for name, column in columns.items() if name not in ("log_extra", "log_metric")}
    sizes = [len(ids) for ids in sampled_ids("cosine_length", completion_ids)]
    scores = []
    graded = grader(completions=completions, solution=solution, think_tags=think_tags, **columns)
    for score, size in zip(graded, sizes, strict=True):
        if score is None:
            scores.append(Score(None, "not graded"))
            continue
        right = score > _PASSING_SCORE
        reason = f"{'right' if right else 'wrong'}, {size} of {max_completion_length} tokens"
        if exceed_penalty is not None and size >= max_completion_length:
            scores.append(Score(exceed_penalty, f"{reason}, too long"))
            continue
        if right:
            at_the_limit, at_once = min_value_correct, max_value_correct
        else:
            at_the_limit, at_once = max_value_wrong, min_value_wrong
        progress = min(size / max_completion_length, 1.0)  # past the limit the cosine would climb again
        value = at_the_limit + 0.5 * (at_once - at_the_limit) * (1.0 + math.cos(math.pi * progress))
        scores.append(Score(value, reason))
    return scores


@reward(full_mark=0.0, skip_gold_check=COUNTS_SAMPLED, aliases=("get_soft_overlong_punishment",))  # TRL's name
def overlong(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    max_completion_length: PositiveInt,
    cache: NonNegativeInt | None = None,
    **_columns: Any,
) -> list[Score]:
    """A soft punishment before the limit on length: 0, then falling to -1 over the last `cache` tokens.

    From DAPO (arXiv 2503.14476), equation 13. By default `cache` is a fifth of `max_completion_length`, as there.

    >>> overlong([""] * 3, [[0] * 80, [0] * 90, [0] * 100], max_completion_length=100, cache=20)
    [0.0, -0.5, -1.0]
    """
    cache = max_completion_length // 5 if cache is None else cache
    if cache > max_completion_length:
        raise UserError(f"overlong: cache={cache} is more than max_completion_length={max_completion_length}")
    free = max_completion_length - cache

    def score(size: int) -> Score:
        if size <= free:
            return Score(0.0, pluralize(size, "token"))
        if size > max_completion_length:
            return Score(-1.0, f"{pluralize(size, 'token')}, over the limit")
        return Score((free - size) / cache, f"{pluralize(size - free, 'token')} into the last {cache}")

    return [score(len(ids)) for ids in sampled_ids("overlong", completion_ids)]


@reward(skip_gold_check=COUNTS_SAMPLED)
def reasoning_share(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    standard_size: NonNegativeInt,
    think_open_id: NonNegativeInt,
    think_close_id: NonNegativeInt,
    target: Annotated[float, Field(ge=0, le=1)] = 1.0,
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    """The share of reasoning tokens among the tokens sampled while thinking, or how near it is to a target.

    A completion whose text begins with the opening tag, and whose sampled ids do not, began to think in the prompt.

    >>> turns, ids = ["<think>a b</think>c", "d"], [[90, 10, 111, 91, 12], [13]]
    >>> reasoning_share(turns, ids, standard_size=100, think_open_id=90, think_close_id=91, target=0.5)
    [0.6666666666666666, None]
    """
    wanted = Fraction(str(target))
    scores = []
    for completion, ids in zip(completions, sampled_ids("reasoning_share", completion_ids), strict=True):
        thinking = turn_text(completion).startswith(think_tags[0]) and list(ids[:1]) != [think_open_id]
        tokens = reasoning_tokens = 0
        for token in ids:
            # A token belongs to the region in which it was chosen: a closing tag was chosen while thinking.
            tokens += thinking
            reasoning_tokens += thinking and token >= standard_size
            thinking = token == think_open_id or (thinking and token != think_close_id)
        if not tokens:
            scores.append(Score(None, "no thinking"))
            continue
        # Exact until the end, so that with the target 1 the score is the share to the last digit.
        distance = abs(Fraction(reasoning_tokens, tokens) - wanted)
        value = float(1 - distance / max(wanted, 1 - wanted))
        scores.append(Score(value, f"{reasoning_tokens} of {tokens} thinking tokens"))
    return scores
