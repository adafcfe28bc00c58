"""Which dotted keys a command knows, read off the typed sections and TRL's field list."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.grpo_fields import GRPO_FIELDS
from rlvr_vocab.exp.look_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.exp.removed_keys import removed_key_line
from rlvr_vocab.exp.typed_sections import (
    CheckSettings,
    EvaluateSettings,
    ExpandSettings,
    GenerateSettings,
    MergeSettings,
    RunSettings,
    ScoreSettings,
    TrainingSettings,
)
from rlvr_vocab.nearest import nearest_keys

COMMAND_SETTINGS: dict[str, type] = {
    "train": RunSettings,
    "quickstart": RunSettings,
    "check": CheckSettings,
    "score": ScoreSettings,
    "evaluate": EvaluateSettings,
    "generate": GenerateSettings,
    "merge": MergeSettings,
    "expand": ExpandSettings,
    "doctor": DoctorSettings,
    "samples": SamplesSettings,
    "report": ReportSettings,
    "compare": CompareSettings,
}
NOT_KEYS = ("resolved", "training.grpo")
TEXT = {str, Path, type(None)}
REFUSED_FIELDS = tuple(name for name in GRPO_FIELDS if removed_key_line(name) is not None)


@dataclass(frozen=True)
class KnownKeys:
    """sections: keys that hold keys; leaves: key -> annotation of its value; free: anything below goes."""

    command: str
    sections: frozenset[str]
    leaves: Mapping[str, Any]
    free: frozenset[str]

    def check(self, key: str, where: str = "") -> None:
        """Raises UserError where `key` is unknown, with the nearest known one."""
        if key in self.sections or key in self.leaves or self.is_free(key):
            return
        removed = removed_key_line(key)
        if removed and self.command in ("train", "quickstart"):
            raise UserError(removed + where)
        nearest = nearest_keys(key, [*self.leaves, *self.sections])
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "see"
        listing = "" if nearest else f" rlvr-vocab {self.command} --help"
        raise UserError(f"unknown key {key}{where}; {hint}{listing}")

    def is_free(self, key: str) -> bool:
        parts = key.split(".")
        return any(".".join(parts[:depth]) in self.free for depth in range(1, len(parts)))

    def takes_text(self, key: str, value: str) -> bool:
        """Whether the value is plain text, whatever characters it holds; in brackets it is a list where that may be."""
        kinds = set(alternatives(self.leaves.get(key)))
        lists = {kind for kind in kinds if get_origin(kind) is tuple}
        return bool(kinds & {str, Path}) and kinds - lists <= TEXT and not (lists and value.startswith("["))

    def unknown_in(self, config: Mapping[str, Any]) -> Iterator[str]:
        """The dotted keys of a composed configuration that nothing reads."""
        for key in dotted_keys(config, self.sections):
            if key not in self.sections and key not in self.leaves and not self.is_free(key):
                yield key


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def dotted_keys(config: Mapping[str, Any], sections: frozenset[str], prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        key = f"{prefix}{name}"
        yield key
        if key in sections and isinstance(value, Mapping):
            yield from dotted_keys(value, sections, f"{key}.")


def annotated_keys(section: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, annotation) of a dataclass and of the dataclasses in it."""
    hints = get_type_hints(section)
    for field in fields(section):
        key = f"{prefix}{field.name}"
        if key in NOT_KEYS:
            continue
        yield key, hints[field.name]
        for part in alternatives(hints[field.name]):
            if is_dataclass(part) and isinstance(part, type):
                yield from annotated_keys(part, f"{key}.")
            if part is TrainingSettings:
                yield from ((f"{key}.{name}", grpo_annotation(name)) for name in GRPO_FIELDS)


def grpo_annotation(name: str) -> Any:
    """str where every value is text, dict where it may be a mapping, else Any."""
    field = GRPO_FIELDS[name]
    if field.kinds == ("str",) and not field.choices:
        return str | None if field.optional else str
    return dict if "dict" in field.kinds else Any


def known_keys(command: str) -> KnownKeys:
    annotated = dict(annotated_keys(COMMAND_SETTINGS[command]))
    for name in REFUSED_FIELDS:
        annotated.pop(f"training.{name}", None)
    sections = {key for key, kind in annotated.items() if any(is_dataclass(part) for part in alternatives(kind))}
    free = {key for key, kind in annotated.items() if dict in {get_origin(p) or p for p in alternatives(kind)}}
    leaves = {key: kind for key, kind in annotated.items() if key not in sections}
    return KnownKeys(command, frozenset(sections), leaves, frozenset(free))
