"""A reward that judges nothing and shows what reward functions are given."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from rlvr_vocab.rewards.parameters import whole_number
from rlvr_vocab.rewards.reward import Score, reward
from rlvr_vocab.rewards.turns import turn_text
from rlvr_vocab.text import printable

_calls = itertools.count()
_LONGEST_TEXT, _LONGEST_COLUMN = 2_000, 200


@reward(skip_gold_check="it judges nothing", dry_run=False)
def debug(
    completions: Sequence[Any],
    prompts: Sequence[Any] | None = None,
    samples: int = 1,
    every: int = 1,
    **columns: Any,
) -> list[Score]:
    """1 for everything; prints the first completions of a batch and their columns to standard error.

    A reward that is the same for all changes no advantage, so it may stand beside others.

    Args:
        samples: how many completions of a batch are shown.
        every: show the first batch of this process and then every so many.

    Example:
        >>> debug(["<think>6 * 7</think>42", "43"], prompts=["6 * 7?"] * 2, solution=["42"] * 2)
        [1.0, 1.0]
    """
    whole_number("debug", "samples", samples, least=1)
    whole_number("debug", "every", every, least=1)
    number_shown = samples if next(_calls) % every == 0 else 0
    # Columns of one value per completion; think tags are two for all.
    shown = {"prompt": prompts, "completion": [turn_text(completion) for completion in completions], **columns}
    per_completion = {
        name: column
        for name, column in shown.items()
        if isinstance(column, list | tuple) and len(column) == len(completions) and name != "think_tags"
    }
    for row in range(min(number_shown, len(completions))):
        lines = [f"{name}: {_shown(name, column[row])}" for name, column in per_completion.items()]
        print(f"debug {row + 1} of {len(completions)}", *lines, sep="\n  ", file=sys.stderr)
    return [Score(1.0, "shown" if row < number_shown else "not shown") for row in range(len(completions))]


def _shown(name: str, value: Any) -> str:
    """A cell on one line of a terminal: prompts and completions at some length, other columns as Python writes them."""
    if name not in ("prompt", "completion"):
        return printable(repr(value), _LONGEST_COLUMN)
    return printable(value if isinstance(value, str) else repr(value), _LONGEST_TEXT)
