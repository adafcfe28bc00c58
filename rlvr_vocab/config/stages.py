"""The stages of a run as they are written, and as the command-line words that set their keys over the run's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_vocab.config.overrides import quoted
from rlvr_vocab.config.recorded import escaped
from rlvr_vocab.config.resolution import SHARED_KEYS
from rlvr_vocab.config.sections import RunSettings, StageSettings, UntilSettings
from rlvr_vocab.config.values import leaves, read
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean

OVERRIDDEN = ("rewards", "training", "dataset", "generation")
KEYS = ("name", *OVERRIDDEN, "until")
_TWINS = tuple(SHARED_KEYS.values())
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class WrittenStage:
    """A stage before its keys are composed; `files` by their group, `words` as a user would type them."""

    name: str
    until: UntilSettings | None
    files: Mapping[str, str]
    words: tuple[str, ...]

    def all_words(self, section_of: Callable[[str, str], Mapping[str, Any]]) -> list[str]:
        """The stage's keys as words: those of the files that it names, then its own.

        A file is taken key by key, so that it goes over whatever was typed or stands in a recipe for the run.

        Args:
            section_of: what a file says, from its group and name.
        """
        named = [
            word
            for group, name in self.files.items()
            for key, value in section_of(group, name).items()
            if value is not None or key not in _TWINS
            for word in _word(group, key, value)
        ]
        return [*named, *self.words]


def recorded_stage(stage: StageSettings, run: RunSettings) -> dict[str, Any]:
    """A stage as config.yaml keeps it: every key in which it differs from the run, resolved."""
    here, there = stage.run.resolved, run.resolved
    sections = {section: _differing(here[section], there[section]) for section in ("rewards", "training", "dataset")}
    sections["generation"] = _differing(here["model"]["generation_kwargs"], there["model"]["generation_kwargs"])
    until = {"until": asdict(stage.until)} if stage.until is not None else {}
    return {"name": stage.name, **{key: keys for key, keys in sections.items() if keys}, **until}


def _differing(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in here.items() if key not in there or there[key] != value}


@contextmanager
def naming_the_stage(name: str) -> Iterator[None]:
    """Says in which stage something is wrong; nothing of a run in one piece, whose stage has no name."""
    try:
        yield
    except UserError as error:
        if not name:
            raise
        raise UserError(f"stage {name}: {error}") from error


def read_stages(stages: Any) -> list[WrittenStage]:
    """The list under `stages`; None or an empty one is a run in one piece.

    Raises:
        UserError: it is no list of mappings, a name is missing or occurs twice, a key is not a stage's.
    """
    if stages is None:
        return []
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
        raise UserError("stages: expected a list of {name, rewards, training, dataset, generation, until}")
    read_ones = [_read_stage(stage, place) for place, stage in enumerate(stages, start=1)]
    names = [stage.name for stage in read_ones]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"stages: {names.count(name)} of them are called {name}; give each a name of its own")
    return read_ones


def _read_stage(stage: Mapping[str, Any], place: int) -> WrittenStage:
    name = str(stage.get("name") or "")
    if not _NAME.fullmatch(name):
        given = f"{name!r} is no name for a folder" if name else "it has no name"
        raise UserError(f"stages: number {place}: {given}; give it one of letters, digits, - and _")
    with naming_the_stage(name):
        for key in stage:
            if key not in KEYS:
                raise UserError(f"unknown key {key}{did_you_mean(str(key), KEYS)}; a stage has {', '.join(KEYS)}")
        for model_key, training_key in SHARED_KEYS.items():
            both = [(stage.get("generation") or {}).get(model_key), _of_mapping(stage.get("training"), training_key)]
            if None not in both and both[0] != both[1]:
                one, other = f"generation.{model_key}={both[0]}", f"training.{training_key}={both[1]}"
                raise UserError(f"{one} and {other} are the same thing with two values: give {other} alone")
        until = read(UntilSettings | None, stage.get("until"), "until")
        files = {key: stage[key] for key in OVERRIDDEN if key != "generation" and isinstance(stage.get(key), str)}
        own = [key for key in OVERRIDDEN if key not in files and stage.get(key) is not None]
        words = tuple(word for key in own for word in _words(key, stage[key]))
    return WrittenStage(name, until, files, words)


def _of_mapping(section: Any, key: str) -> Any:
    return section.get(key) if isinstance(section, Mapping) else None


def _words(section: str, content: Any) -> Iterator[str]:
    """`training: {learning_rate: 1e-6}` → `training.learning_rate=1e-06`."""
    if isinstance(content, list) and section == "rewards":
        yield f"rewards={hydra_text(content)}"
    elif isinstance(content, Mapping):
        for key, value in leaves(content):
            yield from _word(section, key, value)
    else:
        raise UserError(f"{section}: expected a mapping of keys, got {content!r}")


def _word(section: str, key: str, value: Any) -> Iterator[str]:
    for model_key, training_key in SHARED_KEYS.items():  # one thing under two names: both are set, or they would differ
        if (section, key) in (("generation", model_key), ("training", training_key)):
            yield f"model.generation_kwargs.{model_key}={hydra_text(value)}"
            yield f"training.{training_key}={hydra_text(value)}"
            return
    prefix = "model.generation_kwargs" if section == "generation" else section
    yield f"{prefix}.{key}={hydra_text(value)}"


def hydra_text(value: Any) -> str:
    """A plain value in the grammar of Hydra's overrides.

    >>> hydra_text({"a": [1, None, "x, y"]})
    "{a:[1,null,'x, y']}"
    """
    if isinstance(value, str):
        return quoted(escaped(value))
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{hydra_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(hydra_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)
