"""Rewards for style (repetition, sameness within a group, forbidden patterns), and one that prints a batch."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations, groupby, islice
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import COUNTS_SAMPLED, THINK_TAGS, Tags, Unit, after_thinking, parts, turn_text
from rlvr_vocab.text import short_text

_SHINGLE = 3
_MOST_WORDS = 20_000  # that a text is compared by
_SEARCHED = 20_000  # characters, from the start: a user's pattern may take quadratic time


@reward(full_mark=0.0, skip_gold_check=COUNTS_SAMPLED, aliases=("get_repetition_penalty_reward",))  # TRL's name
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
    for items in parts("repetition", completions, completion_ids, unit):
        total = len(items) - ngram_size + 1
        if total < 1:
            scores.append(Score(0.0, "too short to repeat itself"))
            continue
        ngrams = zip(*(islice(items, start, None) for start in range(ngram_size)), strict=False)
        repeated = total - len(set(ngrams))
        value = repeated / total * max_penalty if repeated else 0.0
        scores.append(Score(value, f"{repeated} of {total} {ngram_size}-grams repeated"))
    return scores


@reward(full_mark=0.0, skip_gold_check="it compares the completions of one prompt, and here there is one")
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
    texts = map(turn_text, completions)
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
    """Every three words in a row."""
    words = text.lower().split(maxsplit=_MOST_WORDS)[:_MOST_WORDS]
    return {tuple(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))}


@reward(full_mark=0.0)
def forbidden_text(
    completions: Sequence[Any],
    *,
    patterns: Annotated[Mapping[str, NonNegativeFloat], Field(min_length=1)],
    at_most: PositiveInt = 1,
    where: Literal["answer", "thinking", "all"] = "all",
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""A penalty for each pattern that occurs, as often as it does, up to `at_most` times.

    The first 20,000 characters are searched. A pattern that backtracks, like `(a+)+b`, can take for ever.

    >>> forbidden_text(["Sure! As an AI, sure!", "42"], patterns={"(?i)sure": 0.25, "As an AI": 0.5}, at_most=2)
    [-1.0, 0.0]
    """
    compiled = [(_compiled(pattern), penalty) for pattern, penalty in patterns.items()]
    scores = []
    for completion in completions:
        text = _part(turn_text(completion), where, think_tags)[:_SEARCHED]
        counts = [sum(1 for _ in islice(pattern.finditer(text), at_most)) for pattern, _ in compiled]
        cost = sum(count * penalty for count, (_, penalty) in zip(counts, compiled, strict=True))
        found = [short_text(repr(pattern)) for count, pattern in zip(counts, patterns, strict=True) if count]
        scores.append(Score(-cost if cost else 0.0, f"found {', '.join(found)}" if found else "nothing forbidden"))
    return scores


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise UserError(f"forbidden_text: {pattern!r:.60} is not a regular expression: {error}") from error


def _part(turn: str, where: str, think_tags: tuple[str, str]) -> str:
    """The part of a turn that is searched; one that never stops thinking has no answer."""
    if where == "all":
        return turn
    answer = after_thinking(turn, think_tags)
    if where == "answer":
        return answer or ""
    return turn if answer is None else turn[: len(turn) - len(answer)]


_calls = itertools.count()


@reward(skip_gold_check="it judges nothing", dry_run=False)
def debug(
    completions: Sequence[Any],
    prompts: Sequence[Any] | None = None,
    *,
    samples: PositiveInt = 1,
    every: PositiveInt = 1,
    **columns: Any,
) -> list[Score]:
    """1 for everything; prints `samples` completions of every `every`-th batch, with their columns, to standard error.

    A reward that is the same for all changes no advantage, so it may stand beside others.

    >>> debug(["<think>6 * 7</think>42", "43"], prompts=["6 * 7?"] * 2, solution=["42"] * 2)
    [1.0, 1.0]
    """
    number_shown = min(samples, len(completions)) if next(_calls) % every == 0 else 0
    texts = {"prompt": prompts, "completion": [turn_text(completion) for completion in completions]}
    for row in range(number_shown):
        print(f"debug {row + 1} of {len(completions)}", file=sys.stderr)
        for name, column in (texts | columns).items():
            if name != "think_tags" and isinstance(column, list | tuple) and len(column) == len(completions):
                cell = column[row] if name in texts and isinstance(column[row], str) else repr(column[row])
                print(f"  {name}: {short_text(cell, 2_000 if name in texts else 200, keep_end=True)}", file=sys.stderr)
    return [Score(1.0, "shown" if row < number_shown else "not shown") for row in range(len(completions))]
