"""Whether a run's configuration takes what the doctor suggests: it is typed over it, composed and checked."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rlvr_vocab.checks.run import check_configuration, check_rewards
from rlvr_vocab.config.command_sections import keys_without_use
from rlvr_vocab.config.compose import CommandLine, compose, compose_section
from rlvr_vocab.config.load import read_run
from rlvr_vocab.config.recorded import CONF, read_recorded
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.stages import SHARED_KEYS, read_stages
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import RunFacts, RunRecord
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.runs.record import run_record


def checked_record(folder: Path) -> RunRecord:
    """The record of a run, which knows what remedies its configuration accepts.

    Raises:
        UserError: it is no run, or a file of it cannot be read.
    """
    record = run_record(folder)
    return replace(record, facts=checked_facts(record.facts, folder))


def checked_facts(facts: RunFacts, folder: Path) -> RunFacts:
    """The facts of a run and of its stages, with what remedies their configurations accept."""
    stages = tuple(replace(stage, takes=accepts(folder, stage.stage)) for stage in facts.stages)
    return replace(facts, stages=stages, takes=accepts(folder))


def accepts(folder: Path, stage: str = "") -> Callable[[str], bool]:
    """Tells of a line whether it changes the configuration of the run in a folder, or of its stage, and is accepted.

    What is wrong with that configuration without the line, such as a package that is missing here, is no reason
    against it. Where it composes no more, being older or written by hand, nothing can be tried, and every line is told
    to change it.
    """
    outcome = cache(lambda line: _outcome(folder, stage, shlex.split(line)))

    def takes(line: str) -> bool:
        (now, wrong), (then, refused) = outcome(""), outcome(line)
        return now is None or (then is not None and then != now and refused in ("", wrong))

    return takes


def _outcome(folder: Path, stage: str, words: Sequence[str]) -> tuple[Mapping[str, Any] | None, str]:
    """The resolved configuration with these words over it, and what is wrong with it."""
    resolved = None
    try:
        plain = compose("train", CommandLine(config_file=folder))
        composed = compose("train", CommandLine((*words, *_twins(words)), config_file=folder))
        written = read_stages(read_recorded(folder)["stages"])
        over = next((each.over(_recorded_section) for each in written if each.name == stage), {})
        config = OmegaConf.merge(plain.config, over, {"stages": None})
        for key in composed.given:
            OmegaConf.update(config, key, OmegaConf.select(composed.config, key), force_add=True)
        assert isinstance(config, DictConfig)
        run = read_run(replace(composed, config=config), RunSettings)
        resolved = run.resolved
        for fault in keys_without_use(run, composed.given):
            raise UserError(fault)
        check_configuration(run)
        if all(function.name in LIBRARY for function in run.rewards.functions):  # no code of the user's is loaded here
            check_rewards(run.rewards)
    except UserError as error:
        return resolved, str(error)
    return resolved, ""


def _twins(words: Sequence[str]) -> list[str]:
    """The same values under the model's names, which a stage may have set."""
    twins = {f"training.{training}": f"model.generation_kwargs.{model}" for model, training in SHARED_KEYS.items()}
    typed = [word.partition("=") for word in words]
    return [f"{twins[key]}={value}" for key, _, value in typed if key in twins]


def _recorded_section(group: str, name: str) -> Mapping[str, Any]:
    return compose_section(group, name, [CONF])
