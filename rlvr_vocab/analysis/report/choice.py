"""Which completions of a run are shown, so that the choice flatters nobody: by rule, and the same each time.

At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one drawn
at random with a fixed seed. Where a prompt was sampled both early and late, its first completion of each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion

MOST_MOMENTS = 5
_SEED = 0
# Files at each end in which a prompt that comes twice is looked for: a run may have left ten thousand.
_LOOKED_THROUGH = 40


@dataclass(frozen=True)
class Chosen:
    """A completion, and why it is shown."""

    why: str
    completion: SampledCompletion


@dataclass(frozen=True)
class Choice:
    """What is shown, and a line for each file that could not be read."""

    early_and_late: tuple[Chosen, ...]
    moments: tuple[Chosen, ...]
    unreadable: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


def choose(files: CompletionFiles, most: int) -> Choice:
    """At most so many completions; of files that can be read."""
    unreadable: list[str] = []
    pair = _early_and_late(files, unreadable) if most >= 2 else ()
    steps = _spread(files.steps, min(MOST_MOMENTS, max(1, (most - len(pair)) // 3)))
    chosen: list[Chosen] = []
    prompts: set[str] = set()
    for step in steps:
        completions = _read(files, step, unreadable)
        prompts.update(each.prompt for each in completions)
        chosen += _of_a_step(completions)
    return Choice(pair, tuple(chosen[: most - len(pair)]), tuple(dict.fromkeys(unreadable)), tuple(sorted(prompts)))


def _spread(steps: Sequence[int], number: int) -> list[int]:
    """So many of the steps, the first and the last among them; the last alone where there is to be one."""
    if number == 1 or len(steps) <= 1:
        return list(steps[-1:])
    return sorted({steps[round(index * (len(steps) - 1) / (number - 1))] for index in range(number)})


def _of_a_step(completions: Sequence[SampledCompletion]) -> Iterator[Chosen]:
    """Highest, lowest, random: three different ones where there are three."""
    scored = [each for each in completions if each.reward == each.reward]
    left = sorted(scored, key=lambda each: each.reward)
    if left:
        yield Chosen("highest reward", left.pop())
    if left:
        yield Chosen("lowest reward", left.pop(0))
    rest = sorted(
        [each for each in completions if each in left or each.reward != each.reward], key=lambda each: each.row
    )
    if rest:
        yield Chosen("drawn at random", random.Random(_SEED).choice(rest))


def _early_and_late(files: CompletionFiles, unreadable: list[str]) -> tuple[Chosen, ...]:
    """The first and the last time that the earliest prompt which comes again was sampled."""
    steps = files.steps
    ends = steps[:_LOOKED_THROUGH], steps[max(len(steps) - _LOOKED_THROUGH, _LOOKED_THROUGH) :]
    later = {prompt: step for step in ends[1] for prompt in _prompts(files, step, unreadable)}
    for step in ends[0]:
        for prompt in _prompts(files, step, unreadable):
            if prompt in later:
                pair = [_first_of(_read(files, at, unreadable), prompt) for at in (step, later[prompt])]
                return tuple(Chosen("the same problem, early and late", each) for each in pair if each is not None)
    return ()


def _prompts(files: CompletionFiles, step: int, unreadable: list[str]) -> list[str]:
    try:
        return list(dict.fromkeys(files.table(step, ["prompt"]).column("prompt").to_pylist()))
    except UserError as error:
        unreadable.append(str(error))
        return []


def _read(files: CompletionFiles, step: int, unreadable: list[str]) -> list[SampledCompletion]:
    try:
        return files.read(step)
    except UserError as error:
        unreadable.append(str(error))
        return []


def _first_of(completions: Sequence[SampledCompletion], prompt: str) -> SampledCompletion | None:
    return next((each for each in completions if each.prompt == prompt), None)
