"""Rewards for length, repetition and diversity."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import combinations, groupby, islice
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from rlvr_vocab.data.source import DecimalMark
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import LIBRARY, THINK_TAGS, Score, Tags, assistant_text, reward
from rlvr_vocab.text import nearest_and_all, pluralize

Unit = Literal["tokens", "words", "characters"]
_COUNTS_IDS = "it counts sampled tokens, and a made-up turn has none"
_PASSING_SCORE = 0.5
_SHINGLE = 3
_MOST_WORDS = 20_000  # that a text is compared by


def _parts(
    reward: str, completions: Sequence[Any], completion_ids: Sequence[Sequence[int]] | None, unit: Unit
) -> list[Sequence[Hashable]]:
    """Each completion as a sequence of its sampled tokens, its words in lower case, or its characters."""
    if unit == "tokens":
        if completion_ids is None:
            raise UserError(f"{reward}: completion_ids is missing: it counts sampled tokens, which a trainer passes")
        return list(completion_ids)
    texts = [assistant_text(completion) for completion in completions]
    return [text.lower().split() for text in texts] if unit == "words" else list(texts)


@reward(skip_gold_check=_COUNTS_IDS, reads_thought="length")
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
    for size in map(len, _parts("length", completions, completion_ids, unit)):
        distance = max(shortest - size, size - (math.inf if longest is None else longest), 0)
        side = "" if not distance else ", too short" if size < shortest else ", too long"
        scores.append(Score(max(0.0, 1.0 - distance / falloff), f"{size} {unit}{side}"))
    return scores


@reward(
    shapes="grader",
    reads_thought="length",  # graders that read words give penalties, which are never right
    verifies=True,
    answer_in="box",
    skip_gold_check=f"{_COUNTS_IDS}; its grader can be tried by itself",
    aliases=("get_cosine_scaled_reward",),  # TRL's name
)
def cosine_length(
    completions: Sequence[Any],
    solution: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    *,
    max_completion_length: PositiveInt,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    exceed_penalty: float | None = None,
    grader: str = "accuracy",
    think_tags: Tags = THINK_TAGS,
    decimal_mark: DecimalMark = "point",
    **columns: Any,
) -> list[Score]:
    r"""Correctness shaped by length: right answers earn more the shorter they are, wrong ones lose more.

    From "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373), appendix C.1; values as in TRL.

    >>> turns, ids = ["7", "7", "8", "8"], [[0] * 0, [0] * 50, [0] * 50, [0] * 100]
    >>> [round(s, 3) for s in cosine_length(turns, ["7"] * 4, ids, max_completion_length=100, grader="numeric")]
    [1.0, 0.75, -0.75, -0.5]
    """
    if grader not in LIBRARY:
        raise UserError(f"cosine_length: grader={grader} is unknown{nearest_and_all(grader, sorted(LIBRARY))}")
    notation = {"think_tags": think_tags, "decimal_mark": decimal_mark}
    grades = LIBRARY[grader](completions=completions, solution=solution, **notation, **columns)

    def score(given: float | None, size: int) -> Score:
        if given is None:
            return Score(None, "not graded")
        right = given > _PASSING_SCORE
        reason = f"{'right' if right else 'wrong'}, {size} of {max_completion_length} tokens"
        if exceed_penalty is not None and size >= max_completion_length:
            return Score(exceed_penalty, f"{reason}, too long")
        at_the_limit, at_once = (min_value_correct, max_value_correct) if right else (max_value_wrong, min_value_wrong)
        progress = min(size / max_completion_length, 1.0)  # past the limit the cosine would climb again
        return Score(at_the_limit + 0.5 * (at_once - at_the_limit) * (1.0 + math.cos(math.pi * progress)), reason)

    return list(map(score, grades, map(len, completion_ids)))


@reward(full_mark=0.0, skip_gold_check=_COUNTS_IDS, reads_thought="length", aliases=("get_soft_overlong_punishment",))
def overlong(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
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
        value = 0.0 if size <= free else -1.0 if size > max_completion_length else (free - size) / cache
        return Score(value, f"{pluralize(size, 'token')}, free up to {free}")

    return [score(len(ids)) for ids in completion_ids]


@reward(full_mark=0.0, skip_gold_check=_COUNTS_IDS, reads_thought="words", aliases=("get_repetition_penalty_reward",))
def repetition(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    *,
    ngram_size: PositiveInt = 3,
    max_penalty: Annotated[float, Field(le=0)] = -1.0,
    unit: Unit = "tokens",
    **_columns: Any,
) -> list[Score]:
    """A penalty for repeating oneself: `max_penalty * (1 - different n-grams / n-grams)`.

    From "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373), appendix C.2. With a reasoning
    vocabulary, take words: a reasoning token and its source are different tokens that read the same.

    >>> repetition(["one two three four", "no no no no no"], ngram_size=2, unit="words")
    [0.0, -0.75]
    """
    scores = []
    for items in _parts("repetition", completions, completion_ids, unit):
        total = len(items) - ngram_size + 1
        if total < 1:
            scores.append(Score(0.0, "too short to repeat itself"))
            continue
        ngrams = zip(*(islice(items, start, None) for start in range(ngram_size)), strict=False)
        repeated = total - len(set(ngrams))
        value = repeated / total * max_penalty if repeated else 0.0
        scores.append(Score(value, f"{repeated} of {total} {ngram_size}-grams repeated"))
    return scores


@reward(full_mark=0.0, skip_gold_check="it compares the completions of one prompt", reads_thought="words")
def diversity(
    completions: Sequence[Any],
    prompts: Sequence[Any],
    *,
    penalty: NonNegativeFloat = 1.0,
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9,
    **_columns: Any,
) -> list[Score]:
    """A penalty for being nearly the same as other completions of the same prompt.
    The score is `-penalty * near-duplicates / (group size - 1)`. Two texts are near-duplicates where their sets of
    three words in a row have a Jaccard index of `threshold` or more. Equal prompts side by side make a group.

    >>> texts = ["six times seven is 42", "Six times  seven is 42", "seven sixes", "six times seven is 42"]
    >>> diversity(texts, prompts=["6 * 7?"] * 3 + ["7 * 6?"])
    [-0.5, -0.5, 0.0, 0.0]
    """
    texts = map(assistant_text, completions)
    scores = []
    for size in [len(list(group)) for _, group in groupby(prompts)]:
        shingles = [_shingles(text) for text in islice(texts, size)]
        counts = [0] * size
        for (one, first), (other, second) in combinations(enumerate(shingles), 2):
            shared = len(first & second)
            if shared >= threshold * (len(first) + len(second) - shared):
                counts[one] += 1
                counts[other] += 1
        for count in counts:
            value = -penalty * count / (size - 1) if count else 0.0
            scores.append(Score(value, f"{count} near-duplicates in a group of {size}"))
    return scores


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split(maxsplit=_MOST_WORDS)[:_MOST_WORDS]
    return {tuple(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))}
