"""Rewards for the manner of a text: repetition within it, sameness within a group, patterns that shall not occur."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations, groupby, islice
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.parameters import number, one_of, shown, whole_number
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import COUNTS_SAMPLED, THINK_TAGS, after_thinking, parts, turn_text

WHERE = ("answer", "thinking", "all")
_SHINGLE = 3
_MOST_WORDS = 20_000  # that a text is compared by
_SEARCHED = 20_000  # characters, from the start: a user's pattern may take quadratic time


def repetition_score(items: Sequence[Hashable], ngram_size: int, max_penalty: float) -> Score:
    """Which share of the n-grams of a sequence are repetitions of others."""
    if len(items) < ngram_size:
        return Score(0.0, "too short to repeat itself")
    ngrams = zip(*(islice(items, start, None) for start in range(ngram_size)), strict=False)
    total = len(items) - ngram_size + 1
    repeated = total - len(set(ngrams))
    return Score(
        repeated / total * max_penalty if repeated else 0.0, f"{repeated} of {total} {ngram_size}-grams repeated"
    )


def diversity_scores(texts: Sequence[str], penalty: float, threshold: float) -> list[Score]:
    """For each text of a group, how many of the others are nearly the same."""
    others = len(texts) - 1
    return [
        Score(-penalty * count / others if count else 0.0, f"{count} near-duplicates in a group of {len(texts)}")
        for count in _near_duplicates(texts, threshold)
    ]


def forbidden_score(
    turn: str,
    patterns: Sequence[tuple[re.Pattern[str], float]],
    at_most: int,
    where: str,
    think_tags: tuple[str, str],
) -> Score:
    """What the patterns that occur in a turn cost, each as often as it occurs, up to `at_most` times."""
    text = _part(turn, where, think_tags)[:_SEARCHED]
    counts = [sum(1 for _ in islice(pattern.finditer(text), at_most)) for pattern, _ in patterns]
    cost = sum(count * penalty for count, (_, penalty) in zip(counts, patterns, strict=True))
    found = [shown(pattern.pattern) for count, (pattern, _) in zip(counts, patterns, strict=True) if count]
    return Score(-cost if cost else 0.0, f"found {', '.join(found)}" if found else "nothing forbidden")


@reward(full_mark=0.0, skip_gold_check=COUNTS_SAMPLED, aliases=("get_repetition_penalty_reward",))  # TRL's name
def repetition(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None = None,
    ngram_size: int = 3,
    max_penalty: float = -1.0,
    unit: str = "tokens",
    **_columns: Any,
) -> list[Score]:
    """A penalty for repeating oneself: `max_penalty * (1 - different n-grams / n-grams)`.

    From "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373), appendix C.2. With tokens it is
    TRL's `get_repetition_penalty_reward`. A reasoning token and its source are different tokens that read the same:
    with a reasoning vocabulary, take words.

    Args:
        ngram_size: length of the n-grams.
        max_penalty: what a text of nothing but repetition approaches; 0 or less.
        unit: `tokens` that were sampled, or `words` or `characters` of the text.

    Example:
        >>> repetition(["one two three four", "no no no no no"], ngram_size=2, unit="words")
        [0.0, -0.75]
    """
    whole_number("repetition", "ngram_size", ngram_size, least=1)
    number("repetition", "max_penalty", max_penalty, most=0)
    sequences = parts("repetition", completions, completion_ids, unit)
    return [repetition_score(items, ngram_size, max_penalty) for items in sequences]


@reward(
    full_mark=0.0,
    skip_gold_check="it compares the completions of one prompt, and here there is one",
    wanted=("prompts",),  # without them all rows are taken for completions of one
)
def diversity(
    completions: Sequence[Any],
    prompts: Sequence[Any] | None = None,
    penalty: float = 1.0,
    threshold: float = 0.9,
    **_columns: Any,
) -> list[Score]:
    """A penalty for being nearly the same as other completions of the same prompt.

    The score is `-penalty * near-duplicates / (group size - 1)`. Two texts are near-duplicates where their sets of
    three words in a row, upper and lower case alike, have a Jaccard index of `threshold` or more.

    Args:
        prompts: prompts of the completions. Equal ones side by side make a group, as TRL's trainers arrange them;
            groups that are spread over several processes are compared within each. None for one group.
        penalty: what a completion costs that all others repeat.
        threshold: from which similarity on, above 0 and up to 1.

    Example:
        >>> texts = ["six times seven is 42", "Six times  seven is 42", "seven sixes", "six times seven is 42"]
        >>> diversity(texts, prompts=["6 * 7?"] * 3 + ["7 * 6?"])
        [-0.5, -0.5, 0.0, 0.0]
    """
    number("diversity", "penalty", penalty, least=0)
    number("diversity", "threshold", threshold, most=1)
    if threshold <= 0:
        raise UserError(f"diversity: threshold={threshold} must be above 0: every two texts reach 0")
    sizes = [len(completions)] if prompts is None else [len(list(group)) for _, group in groupby(prompts)]
    texts = iter([turn_text(completion) for completion in completions])
    return [score for size in sizes for score in diversity_scores(list(islice(texts, size)), penalty, threshold)]


@reward(full_mark=0.0)
def forbidden_text(
    completions: Sequence[Any],
    patterns: Mapping[str, float] | None = None,
    at_most: int = 1,
    where: str = "all",
    think_tags: tuple[str, str] = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""A penalty for each pattern that occurs, as often as it does, up to `at_most` times.

    The first 20,000 characters are searched. A pattern that backtracks, like `(a+)+b`, can take for ever even on
    short texts: nothing here can stop it.

    Args:
        patterns: regular expressions in Python's syntax and what an occurrence costs, 0 or more.
        at_most: how many occurrences of one pattern count.
        where: `answer`, what stands after the thinking; `thinking`, what stands before; or `all`.

    Example:
        >>> forbidden_text(["Sure! As an AI, sure!", "42"], patterns={"(?i)sure": 0.25, "As an AI": 0.5}, at_most=2)
        [-1.0, 0.0]
    """
    whole_number("forbidden_text", "at_most", at_most, least=1)
    one_of("forbidden_text", "where", where, WHERE)
    compiled = _compiled(patterns)
    return [forbidden_score(turn_text(completion), compiled, at_most, where, think_tags) for completion in completions]


def _near_duplicates(texts: Sequence[str], threshold: float) -> list[int]:
    """How many others each text resembles."""
    shingles = [_shingles(text) for text in texts]
    counts = [0] * len(texts)
    for (one, first), (other, second) in combinations(enumerate(shingles), 2):
        shared = len(first & second)
        if shared >= threshold * (len(first) + len(second) - shared):
            counts[one] += 1
            counts[other] += 1
    return counts


def _shingles(text: str) -> set[tuple[str, ...]]:
    """Every three words in a row."""
    words = text.lower().split(maxsplit=_MOST_WORDS)[:_MOST_WORDS]
    return {tuple(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))}


def _part(turn: str, where: str, think_tags: tuple[str, str]) -> str:
    """The part of a turn that is searched; one that never stops thinking has no answer."""
    if where == "all":
        return turn
    answer = after_thinking(turn, think_tags)
    if where == "answer":
        return answer or ""
    return turn if answer is None else turn[: len(turn) - len(answer)]


def _compiled(patterns: Mapping[str, float] | None) -> list[tuple[re.Pattern[str], float]]:
    if not isinstance(patterns, Mapping) or not patterns:
        raise UserError("forbidden_text: patterns is missing: give {pattern: penalty, …}")
    compiled = []
    for pattern, penalty in patterns.items():
        cost = number("forbidden_text", f"penalty of {shown(pattern)}", penalty, least=0)
        try:
            compiled.append((re.compile(str(pattern)), cost))
        except (re.error, OverflowError) as error:
            raise UserError(f"forbidden_text: {shown(pattern)} is not a regular expression: {error}") from error
    return compiled
