"""`train --multirun`: the runs of a sweep, one after another, each in its own process.

Hydra's grammar gives the values. Hydra's own launcher trains all runs in one process and checks each when it starts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ValueType
from hydra.errors import HydraException

from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.config.load import OF_A_RUN, as_mapping, compose
from rlvr_vocab.errors import RESUME_ME, STARTED_BY_MULTIRUN, STOP_SIGNALS, UserError
from rlvr_vocab.text import pluralize

Words = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its command-line arguments, those that differ between jobs, and its `output_dir`."""

    words: Words
    swept: Words
    folder: Path

    def __str__(self) -> str:
        return " ".join(self.swept)


def jobs_of(command: str, argv: Sequence[str]) -> list[Job]:
    """The cartesian product of all values, the last key fastest, each run with its own folder.

    If runs that differ in one key have the same `exp_name`, the key and its value are appended to it:
    `grpo_baseline_seed1`. `--job N` keeps only the run of that number.

    Raises UserError: another command, values that cannot be read, two runs that would write one folder.
    """
    if command not in OF_A_RUN:
        raise UserError(f"--multirun is for {' and '.join(OF_A_RUN)}: rlvr-vocab {command} runs once")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--job", type=int)
    options, words = parser.parse_known_args(list(argv))
    keys = [word.partition("=")[0] if "=" in word else f"{place} {word}" for place, word in enumerate(words)]
    values = dict(zip(keys, map(_values, words), strict=True))  # the last value of a repeated key counts
    runs = list(dict.fromkeys(itertools.product(*values.values())))
    if options.job is not None and not 0 <= options.job < len(runs):
        raise UserError(f"--job {options.job}: the sweep has {pluralize(len(runs), 'job')}, 0 to {len(runs) - 1}")
    swept = [place for place, choices in enumerate(values.values()) if len(choices) > 1]
    names = {run: _composed(command, run, "exp_name") for run in runs}
    in_name = [place for place in swept if not _tells_apart(names, place)]
    jobs: list[Job] = []
    for run in runs:
        name = names[run] + "".join(_suffix(run[place]) for place in in_name)
        named = (*run, f"exp_name={name}") if in_name else run
        folder = Path(_composed(command, named, "output_dir"))
        if any(folder.absolute() == job.folder.absolute() for job in jobs):
            raise UserError(f"several runs of the sweep would write {folder}: set output_dir='./out/${{exp_name}}'")
        jobs.append(Job(named, tuple(run[place] for place in swept), folder))
    return jobs if options.job is None else [jobs[options.job]]


def _values(word: str) -> Words:
    """One argument for each value of `key=value`; text outside Hydra's grammar is a single value."""
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return (word,)
    if not override.is_sweep_override():
        return (word,)
    if override.value_type in (ValueType.INTERVAL_SWEEP, ValueType.GLOB_CHOICE_SWEEP):
        raise UserError(f"cannot read {word!r}: write its values, as in 1,2,3 or range(1,4)")
    values = override.sweep_string_iterator()  # which escapes the colon of file.py:name
    return tuple(f"{override.get_key_element()}={value.replace(chr(92) + ':', ':')}" for value in values)


def _composed(command: str, words: Words, key: str) -> str:
    return str(as_mapping(compose(parse_command_line(command, words)).config, resolve=True, complete=True)[key])


def _tells_apart(names: dict[Words, str], place: int) -> bool:
    """Whether runs that differ only in this argument have different names."""
    return len({((*run[:place], *run[place + 1 :]), name) for run, name in names.items()}) == len(names)


def _suffix(word: str) -> str:
    """The part of a run's name for one argument: `_seed1`, `_loss_type_dapo`."""
    key, _, value = word.lstrip("+~").partition("=")
    value = re.sub(r"[^\w.+-]+", "-", value).strip("-")
    return f"_{key.rpartition('.')[2]}{'' if value.lstrip('+-')[:1].isdigit() else '_'}{value}"


def run_jobs(command: str, jobs: Sequence[Job]) -> int:
    """Run all. After a failed run the next one starts; a signal is passed to the run and ends the sweep.

    Returns 75 after a signal or a run that stopped early, else the exit code of the first failed run, 0 without one.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--multirun starts one process for each run: on several GPUs use slurm/sweep.sh, or --job N")
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, STARTED_BY_MULTIRUN: "1"}
    started: list[subprocess.Popen[bytes]] = []
    signals: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        for run in started[-1:]:
            run.send_signal(number)

    for each in STOP_SIGNALS:
        signal.signal(each, pass_on)
    codes: list[int] = []
    for number, job in enumerate(jobs, start=1):
        if signals:
            break
        print(f"job {number} of {len(jobs)}: {job} -> {job.folder}", flush=True)
        words = [sys.executable, "-P", "-m", "rlvr_vocab.cli", command, *job.words]
        started.append(subprocess.Popen(words, env=environment))
        code = started[-1].wait()
        codes.append(code if code >= 0 else 128 - code)
    outcomes = {0: "finished", RESUME_ME: "interrupted", None: "not started"}
    for job, result in itertools.zip_longest(jobs, codes):
        print(f"{outcomes.get(result, f'failed (exit code {result})')}: {job} -> {job.folder}", flush=True)
    if signals and (len(codes) < len(jobs) or codes[-1] != 0):
        return RESUME_ME
    return next((code for code in codes if code not in (0, RESUME_ME)), max(codes))
