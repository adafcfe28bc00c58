"""The layout of a reasoning vocabulary: which ids exist, what each one copies, and `reasoning_vocab.json`."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

LAYOUT_FILE = "reasoning_vocab.json"
LAYOUT_VERSION = 1
Mode = Literal["expand", "replace"]
NO_TAG = -1  # the id of a think tag in a tokenizer that has none as one token: no region ever opens


@dataclass(frozen=True)
class VocabLayout:
    """The ids of an expanded model, as stored in `reasoning_vocab.json` beside its weights.

    Ids `0 … standard_size - 1` are the standard vocabulary; id `standard_size + k` is the reasoning token that copies
    standard token `source_ids[k]`. A baseline has no source ids. `reasoning_rank` is the rank of the copies' deltas in
    training, 0 for none; None gives each copy its own row.
    """

    standard_size: int
    source_ids: tuple[int, ...]
    think_open_id: int
    think_close_id: int
    turn_ids: tuple[int, ...]
    control_ids: tuple[int, ...]
    mode: Mode = "expand"
    preserve_odds: bool = True
    reasoning_rank: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise UserError(f"reasoning mode {self.mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
        outside = next((source for source in self.source_ids if not 0 <= source < self.standard_size), None)
        if outside is not None:
            raise UserError(
                f"source id {outside} is outside the standard vocabulary, whose ids are 0 … {self.standard_size - 1}"
            )

    @property
    def size(self) -> int:
        """Number of reasoning tokens `n`, copies of control ids counted."""
        return len(self.source_ids)

    @property
    def rows(self) -> int:
        """Rows of the embedding that the layout describes."""
        return self.standard_size + self.size

    @property
    def holds_deltas(self) -> bool:
        """Whether a model holds its copies as deltas from their sources while it trains."""
        return self.size > 0 and self.reasoning_rank is not None

    @cached_property
    def copies_each_token_once(self) -> bool:
        """Whether the copies are those of all standard tokens, in their order."""
        return self.source_ids == tuple(range(self.standard_size))

    @cached_property
    def copy_indices(self) -> tuple[int, ...]:
        """For each reasoning token, which copy of its source it is, from 1."""
        counts: dict[int, count[int]] = defaultdict(lambda: count(1))
        return tuple(next(counts[source]) for source in self.source_ids)

    def save(self, folder: str | Path) -> None:
        content: dict[str, Any] = {"version": LAYOUT_VERSION, **asdict(self)}
        if self.size and self.source_ids == tuple(range(self.source_ids[0], self.source_ids[0] + self.size)):
            content["source_ids"] = {"range": [self.source_ids[0], self.source_ids[0] + self.size]}
        if self.reasoning_rank is None:
            del content["reasoning_rank"]
        Path(folder, LAYOUT_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> VocabLayout:
        """Read the layout of a model folder; UserError where it has none that this version reads."""
        path = Path(folder, LAYOUT_FILE)
        if not path.is_file():
            raise UserError(f"{folder} has no {LAYOUT_FILE}: give a folder written by `rlvr-vocab expand` or `train`")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if (version := content.pop("version")) != LAYOUT_VERSION:
                raise ValueError(f"it has version {version}, and this program reads version {LAYOUT_VERSION}")
            if isinstance(content["source_ids"], dict):
                content["source_ids"] = range(*content["source_ids"]["range"])
            for field in ("source_ids", "turn_ids", "control_ids"):
                content[field] = tuple(content[field])
            return cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not a reasoning vocabulary: {error}") from error


def refuse_expanded(base: str) -> None:
    """Raises UserError for a folder with reasoning tokens: they would become standard tokens, open in both regions."""
    folder = Path(base)
    size = VocabLayout.load(folder).size if (folder / LAYOUT_FILE).is_file() else 0
    if size:
        there = f"{base} has a reasoning vocabulary already ({pluralize(size, 'token')})"
        raise UserError(f"{there}: take the model that it was made from")


def refuse_quantized(base: str, quantization: Any) -> None:
    """Raises UserError for a base with a `quantization_config`: copies and merged adapters need its own dtype."""
    if quantization is not None:
        raise UserError(f"{base} is quantized already: name the model that it was made from")
