"""The config.yaml of a run: written, read again, and compared with another configuration."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlvr_vocab.config.values import refuse_impossible_values
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import did_you_mean

RUN_SECTIONS = ("model", "dataset", "training")
# How a run goes about its work, not what it is.
NOT_COMPARED = ("overwrite", "resume", "allow_changes", "max_hours", "report", "on_full_disk", "logging", "output_dir")
ABSENT = "(absent)"


def config_yaml(resolved: Mapping[str, Any]) -> str:
    """The text of a config.yaml for a resolved configuration; `train config=FILE` reads it back unchanged."""
    return OmegaConf.to_yaml(OmegaConf.create(escaped(dict(resolved))))


def escaped(value: Any) -> Any:
    """Text with a literal `${` escaped, so that reading it again does not take it for an interpolation."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
    if isinstance(value, Mapping):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_recorded(path: Path, resolve: bool = False) -> dict[str, Any]:
    """The content of a config.yaml, with keys that came later; a run's folder stands for its config.yaml.

    Raises:
        UserError: where it is missing, unreadable or not the configuration of a run.
    """
    if path.is_dir():
        path = path / "config.yaml"
    if not path.is_file():
        siblings = [str(other) for other in path.parent.parent.glob("*/config.yaml")]
        raise UserError(f"config={path}: no such file{did_you_mean(str(path), siblings)}")
    try:
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=resolve)
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise UserError(f"config={path}: not readable YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in RUN_SECTIONS):
        raise UserError(f"config={path}: not the config.yaml of a run (no {', '.join(RUN_SECTIONS)} in it)")
    if "defaults" in content:
        raise UserError(f"config={path}: a file with a defaults list is given by --config-dir and --config-name")
    recorded = {str(key): value for key, value in content.items()}
    refuse_impossible_values(recorded)
    _add_later_keys(recorded)
    return recorded


def _add_later_keys(config: Mapping[str, Any]) -> None:
    """Say of a run that is older than a key what it was under: the key's default may be something else."""
    model, dataset, training, stages = config["model"], config["dataset"], config["training"], config.get("stages")
    of_stages = [stage.get("training") for stage in stages or () if isinstance(stage, Mapping)]
    pulled = any(each.get("beta") for each in (training, *of_stages) if isinstance(each, Mapping))
    copies = model.get("reasoning_vocab_size") or model.get("source_ids")
    training.setdefault("kl_over", "ids" if pulled and copies else "text")
    training.setdefault("placebo", False)
    training.setdefault("hidden_bits", None)
    training.setdefault("dynamic_sampling", False)
    training.setdefault("max_rounds", 8)
    model.setdefault("reasoning_rows", "independent" if copies else "low_rank")
    dataset.setdefault("tasks", None)
    dataset.setdefault("num_problems", None)
    model.setdefault("reasoning_rank", 16)
    model.setdefault("hidden_bits", None)
    for section, later in (
        (config.get("warmup"), {"planted_bits": None}),
        (dataset.get("generator"), {"modulus": None, "terms": None, "partial_sums": "whole"}),
    ):
        if isinstance(section, dict):
            section.update({key: value for key, value in later.items() if key not in section})


def required_value(config: Mapping[str, Any], key: str, folder: Path) -> Any:
    """The value of a dotted key in the configuration of a run; raises UserError where somebody has taken it out."""
    value: Any = config
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise UserError(f"{folder}/config.yaml is not whole: it lacks {key}")
        value = value[name]
    return value


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value in one, value in other) where two configurations differ, bookkeeping left out."""
    for name in [*one, *(name for name in other if name not in one)]:
        key = f"{prefix}{name}"
        here, there = one.get(name, ABSENT), other.get(name, ABSENT)
        if key in NOT_COMPARED:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            yield from differences(here, there, f"{key}.")
        elif here != there and not _says_nothing(here, there):
            yield key, here, there


def _says_nothing(one: Any, other: Any) -> bool:
    """Whether a section that one configuration is too old to have is left at its nulls in the other."""
    section = other if one == ABSENT else one
    return ABSENT in (one, other) and isinstance(section, Mapping) and all(each is None for each in section.values())
