"""The stages of a run as they are written, and what each sets over the run's own configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rlvr_vocab.config.recorded import escaped
from rlvr_vocab.config.sections import RunSettings, StageSettings, UntilSettings, stage_error_context
from rlvr_vocab.config.values import read
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import did_you_mean

# model.generation_kwargs.<key> -> the same thing as training.<key>
SHARED_KEYS = {"max_new_tokens": "max_completion_length", "temperature": "temperature"}
OVERRIDDEN = ("rewards", "training", "dataset", "generation")
KEYS = ("name", *OVERRIDDEN, "until")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class WrittenStage:
    """A stage before its keys are put over the run's: `sections` holds a file of the group, by its name, or keys."""

    name: str
    until: UntilSettings | None
    sections: Mapping[str, Any]

    def over(self, section_of: Callable[[str, str], Mapping[str, Any]]) -> dict[str, Any]:
        """What it sets over the configuration of the run; limit and temperature under both of their names.

        Args:
            section_of: what a file says, from its group and name; it goes over whatever stands for the run.
        """
        found: dict[str, Any] = {}
        for section, content in self.sections.items():
            if isinstance(content, str):
                content = dict(section_of(section, content))
                for key in SHARED_KEYS.values() if section == "training" else ():
                    if str(content.get(key)).startswith("${"):  # the file does not say
                        del content[key]
            elif section == "rewards" and isinstance(content, list):
                content = {"functions": escaped(content)}
            elif isinstance(content, Mapping):
                content = escaped(content)
            else:
                raise UserError(f"{section}: expected a mapping of keys, got {content!r}")
            found[section] = content
        generation, training = found.pop("generation", {}), found.get("training", {})
        for model_key, training_key in SHARED_KEYS.items():
            one, other = generation.get(model_key), training.get(training_key)
            if None not in (one, other) and one != other:
                raise UserError(
                    f"generation.{model_key}={one} and training.{training_key}={other} are the same thing with two "
                    f"values: give training.{training_key} alone"
                )
            if one is not None or other is not None:
                generation[model_key] = training[training_key] = other if one is None else one
        model = {"model": {"generation_kwargs": generation}} if generation else {}
        return {**found, **({"training": training} if training else {}), **model}


def recorded_stage(stage: StageSettings, run: RunSettings) -> dict[str, Any]:
    """A stage as config.yaml keeps it: every key in which it differs from the run, resolved."""
    here, there = stage.run.resolved, run.resolved
    sections = {section: _differing(here[section], there[section]) for section in ("rewards", "training", "dataset")}
    sections["generation"] = _differing(here["model"]["generation_kwargs"], there["model"]["generation_kwargs"])
    until = {"until": asdict(stage.until)} if stage.until is not None else {}
    return {"name": stage.name, **{key: keys for key, keys in sections.items() if keys}, **until}


def _differing(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in here.items() if key not in there or there[key] != value}


def read_stages(stages: Any) -> list[WrittenStage]:
    """The list under `stages`; None or an empty one is a run in one piece.

    Raises:
        UserError: it is no list of mappings, a name is missing or occurs twice, a key is not a stage's.
    """
    if stages is None:
        return []
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
        raise UserError("stages: expected a list of {name, rewards, training, dataset, generation, until}")
    found = [_read_stage(stage, place) for place, stage in enumerate(stages, start=1)]
    names = [stage.name for stage in found]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"stages: {names.count(name)} of them are called {name}; give each a name of its own")
    return found


def _read_stage(stage: Mapping[str, Any], place: int) -> WrittenStage:
    name = str(stage.get("name") or "")
    if not _NAME.fullmatch(name):
        given = f"{name!r} is no name for a folder" if name else "it has no name"
        raise UserError(f"stages: number {place}: {given}; give it one of letters, digits, - and _")
    with stage_error_context(name):
        for key in stage:
            if key not in KEYS:
                raise UserError(f"unknown key {key}{did_you_mean(str(key), KEYS)}; a stage has {', '.join(KEYS)}")
        until = read(UntilSettings | None, stage.get("until"), "until")
    return WrittenStage(name, until, {key: stage[key] for key in OVERRIDDEN if stage.get(key) is not None})
