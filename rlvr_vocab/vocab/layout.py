"""The layout of a reasoning vocabulary: which ids exist, what each one copies, and `reasoning_vocab.json`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import pluralize

LAYOUT_FILE = "reasoning_vocab.json"
LAYOUT_VERSION = 1
Mode = Literal["expand", "replace"]


@dataclass(frozen=True)
class VocabLayout:
    """The ids of an expanded model, as stored in `reasoning_vocab.json` beside its weights.

    Ids `0 … standard_size - 1` are the standard vocabulary; id `standard_size + k` is the reasoning token that
    copies standard token `source_ids[k]`. A baseline has no source ids.

    Attributes:
        reasoning_rank: rank of the copied rows' deltas in training, 0 for none; None: rows of their own.
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
        seen: Counter[int] = Counter()
        result = []
        for source in self.source_ids:
            seen[source] += 1
            result.append(seen[source])
        return tuple(result)

    def save(self, folder: str | Path) -> None:
        content: dict[str, Any] = {"version": LAYOUT_VERSION, **asdict(self)}
        content["source_ids"] = _packed(self.source_ids)
        if self.reasoning_rank is None:
            del content["reasoning_rank"]
        Path(folder, LAYOUT_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> VocabLayout:
        """Read the layout of a model folder.

        Raises:
            UserError: the folder has no layout, or one that this version cannot read.
        """
        path = Path(folder, LAYOUT_FILE)
        if not path.is_file():
            raise UserError(f"{folder} has no {LAYOUT_FILE}: give a folder written by `rlvr-vocab expand` or `train`")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            version = content.pop("version")
            if version != LAYOUT_VERSION:
                raise UserError(f"{path} has version {version}, this program reads version {LAYOUT_VERSION}")
            content["source_ids"] = _unpacked(content["source_ids"])
            for field in ("turn_ids", "control_ids"):
                content[field] = tuple(content[field])
            return cls(**content)
        except UserError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path} is not a reasoning vocabulary: {error}") from error


def refuse_expanded(base: str) -> None:
    """Raises UserError for a folder with reasoning tokens, which would become standard ones, open everywhere."""
    folder = Path(base)
    size = VocabLayout.load(folder).size if (folder / LAYOUT_FILE).is_file() else 0
    if size:
        raise UserError(
            f"{base} has a reasoning vocabulary already ({pluralize(size, 'token')}), and would be expanded twice: "
            "take the model that it was made from",
            about="base",
        )


def default_source_ids(size: int, standard_size: int, multiplicity: int) -> tuple[int, ...]:
    """`source_ids[k] = k mod V`, refused past `multiplicity` copies of the whole vocabulary."""
    if size > multiplicity * standard_size:
        raise UserError(
            f"{size} reasoning tokens are more than multiplicity {multiplicity} × {standard_size} standard tokens: "
            f"at most {multiplicity * standard_size}",
            about="size",
        )
    return tuple(k % standard_size for k in range(size))


def _packed(ids: Sequence[int]) -> dict[str, list[int]] | list[int]:
    if ids and list(ids) == list(range(ids[0], ids[0] + len(ids))):
        return {"range": [ids[0], ids[0] + len(ids)]}
    return list(ids)


def _unpacked(ids: dict[str, list[int]] | list[int]) -> tuple[int, ...]:
    if isinstance(ids, dict):
        start, end = ids["range"]
        return tuple(range(start, end))
    return tuple(ids)


def refuse_quantized(base: str, quantization: Any) -> None:
    """Rows are copied in the base's own type, and a trained adapter is merged into weights of that type.

    Args:
        quantization: `quantization_config` of the base's configuration; None where it has none.
    """
    if quantization is not None:
        raise UserError(f"{base} is quantized already: name the model that it was made from", about="quantized base")
