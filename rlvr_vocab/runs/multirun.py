"""`train --multirun`: the runs of a sweep, one after another, each in its own process.

Hydra's grammar gives the values. Hydra's own launcher would train all of them in one process, and only there find an
error in the last.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob
from hydra.errors import HydraException

from rlvr_vocab.config.compose import CAN_START_FROM_FILE, as_mapping, compose, group_choices, parse_command_line
from rlvr_vocab.errors import OUT_OF_ROOM, RESUME_ME, STARTED_BY_MULTIRUN, UserError, stop_signals
from rlvr_vocab.text import pluralize

_PACKAGE = str(Path(__file__).parents[2])
_ENDED = {0: "finished", RESUME_ME: "interrupted", OUT_OF_ROOM: "failed (disk or memory full)"}
_POLL_SECONDS = 0.5
_NUMBER = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")
_NOT_IN_A_NAME = re.compile(r"[^\w.+-]+")
Words = tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    words: those of a command that starts it alone.
    swept: its value of each key that has several, as `key=value`.
    folder: its `output_dir`.
    """

    words: Words
    swept: Words
    folder: Path

    def __str__(self) -> str:
        return " ".join(self.swept)


def jobs_of(command: str, argv: Sequence[str]) -> list[Job]:
    """The cartesian product of all values, the last key fastest, each run with a folder of its own.

    Where runs that differ in one key alone would have the same `exp_name`, the key and its value are put after it:
    `grpo_baseline_seed1`. `--job N` leaves the one run of that number.

    Raises:
        UserError: another command, values that cannot be read, two runs that would write one folder.
    """
    if command not in CAN_START_FROM_FILE:
        raise UserError(f"--multirun is for {' and '.join(CAN_START_FROM_FILE)}: rlvr-vocab {command} runs once")
    line = parse_command_line(command, argv)
    values: dict[str, Words] = {}  # of a key that is given twice the last counts
    for word in re.sub(r"(^|\0)(--multirun|-m|--job(=|\0)\d+)(?=\0|$)", "", "\0".join(argv)).split("\0"):
        if word:
            values[word.partition("=")[0]] = _values(word, line.folders)
    runs = list(dict.fromkeys(itertools.product(*values.values())))
    if line.job is not None and not 0 <= line.job < len(runs):
        raise UserError(f"--job {line.job}: the sweep has {pluralize(len(runs), 'job')}, 0 to {len(runs) - 1}")
    swept = [place for place, words in enumerate(values.values()) if len(words) > 1]
    names = {words: _value(command, words, "exp_name") for words in runs}
    in_names = [place for place in swept if not _named_by(place, names)]
    jobs: list[Job] = []
    for words in runs:
        name = names[words] + "".join(_suffix(words[place]) for place in in_names)
        own = (*words, f"exp_name={name}") if in_names else words
        jobs.append(Job(own, tuple(words[place] for place in swept), Path(_value(command, own, "output_dir"))))
    folders = [job.folder.absolute() for job in jobs]
    for number, folder in enumerate(folders):
        if (first := folders.index(folder)) < number:
            raise UserError(
                f"jobs {first + 1} and {number + 1} of the sweep would both write {jobs[number].folder}: give an "
                "output_dir for each, such as output_dir='./out/${exp_name}'"
            )
    return jobs if line.job is None else [jobs[line.job]]


def _values(word: str, folders: Sequence[Path]) -> Words:
    """One word for each value of `key=value`; text that is not in Hydra's grammar is one value."""
    if not re.search(r"=.*[,(]", word, re.DOTALL):  # no sweep goes without
        return (word,)
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:
        return (word,)
    if not override.is_sweep_override():
        return (word,)
    if not override.is_discrete_sweep():
        raise UserError(f"cannot read {word!r}: an interval has no end of values; write range(1,4) or 1,2,3")
    chosen: object = override.value()
    key = override.get_key_element()
    if isinstance(chosen, Glob):
        names = chosen.filter(group_choices(key, folders))
    else:
        names = list(override.sweep_string_iterator())
    if not names:
        raise UserError(f"cannot read {word!r}: it stands for no value")
    return tuple(f"{key}={name}" for name in names)


def _value(command: str, words: Words, key: str) -> str:
    line = parse_command_line(command, words)
    return str(as_mapping(compose(line).config, resolve=True, complete=True)[key])


def _named_by(place: int, names: dict[Words, str]) -> bool:
    """Whether runs that differ in this word alone have different names."""
    return len({((*words[:place], *words[place + 1 :]), name) for words, name in names.items()}) == len(names)


def _suffix(word: str) -> str:
    """The part of a run's name for one word: `_seed1`, `_loss_type_dapo`."""
    key, _, value = word.lstrip("+~").partition("=")
    between = "" if _NUMBER.fullmatch(value) else "_"
    return f"_{key.rpartition('.')[2]}{between}{_NOT_IN_A_NAME.sub('-', value).strip('-')}"


def run_jobs(command: str, jobs: Sequence[Job]) -> int:
    """Run all; a run that fails does not keep the next from starting, a signal does.

    Returns:
        0 where all have finished; 75 where a signal stopped the sweep, or a run stopped by itself; else the exit code
        of the first that failed.

    Raises:
        UserError: under a launcher, each of whose processes would start all the runs.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "--multirun starts its runs itself, each in one process: slurm/sweep.sh runs a sweep on several GPUs, and "
            "--job N is one run of it"
        )
    codes: list[int] = []
    stop_signals.defer_signals = True
    for number, job in enumerate(jobs, start=1):
        if stop_signals.reason is not None:
            break
        print(f"job {number} of {len(jobs)}: {job} -> {job.folder}", flush=True)
        codes.append(_run(command, job))
    _print_outcome(jobs, codes)
    failed = [code for code in codes if code not in (0, RESUME_ME)]
    if stop_signals.reason is not None and (len(codes) < len(jobs) or codes[-1] != 0):
        return RESUME_ME
    return failed[0] if failed else max(codes)


def _run(command: str, job: Job) -> int:
    """The exit code of a run; a signal that this process receives is passed on to it, once."""
    path = os.pathsep.join([_PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, STARTED_BY_MULTIRUN: "1"}
    run = subprocess.Popen([sys.executable, "-P", "-m", "rlvr_vocab.cli", command, *job.words], env=environment)
    stop_signals.at_once = run.kill
    passed_on = False
    while True:
        try:
            code = run.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if stop_signals.reason is not None and not passed_on:
                run.send_signal(signal.Signals[stop_signals.reason])
                passed_on = True
        else:
            return code if code >= 0 else 128 - code


def _print_outcome(jobs: Sequence[Job], codes: Sequence[int]) -> None:
    finished = codes.count(0)
    lines = [f"{finished} of {pluralize(len(jobs), 'job')} finished:"]
    ended = [_ENDED.get(code, f"failed (exit code {code})") for code in codes]
    ended += ["not started"] * (len(jobs) - len(codes))
    lines += [
        f"  {number}  {job.folder}  {end}  {job}" for number, (job, end) in enumerate(zip(jobs, ended, strict=True), 1)
    ]
    if finished < len(jobs):
        lines.append("The same command shows what has finished and goes on with the others.")
    elif any(not word.startswith("seed=") for job in jobs for word in job.swept):  # else there is one arm only
        lines.append(shlex.join(["rlvr-vocab", "compare", f"runs=[{','.join(str(job.folder) for job in jobs)}]"]))
    print("\n".join(lines), flush=True)
