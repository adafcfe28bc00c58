"""`--multirun`: the runs that words with several values stand for, in Hydra's grammar."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.types import Glob

from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.compose import (
    CAN_START_FROM_FILE,
    SWEEP_OPTIONS,
    CommandLine,
    Composed,
    compose,
    config_folders,
    parse_command_line,
    resolve,
)
from rlvr_vocab.config.load import with_recipe
from rlvr_vocab.config.overrides import OVERRIDE, group_choices, known_keys, parse_override
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError

NOT_IN_A_NAME = re.compile(r"[^\w.+-]+")
NUMBER = re.compile(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    words: those of a command that starts it alone.
    swept: its value of each key that has several, as `key=value`.
    folder: its `output_dir`.
    """

    words: tuple[str, ...]
    swept: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        return " ".join(self.swept)


def jobs_of(command: str, argv: Sequence[str]) -> list[Job]:
    """The cartesian product of all values, the last key fastest, each run with a folder of its own.

    Where runs that differ in one key alone would have the same `exp_name`, the key and its value are put after it:
    `grpo_baseline_seed1`.

    Args:
        command: train or quickstart.
        argv: the words after it, `--multirun` among them; `--job N` leaves the one run of that number.

    Raises:
        UserError: another command, values that cannot be read, two runs that would write one folder.
    """
    if command not in CAN_START_FROM_FILE:
        raise UserError(f"--multirun is for {' and '.join(CAN_START_FROM_FILE)}: rlvr-vocab {command} runs once")
    line = parse_command_line(command, argv)
    values = values_by_key(without_sweep_options(argv), line, command)
    swept = [place for place, words in enumerate(values) if len(words) > 1]
    configs = {words: config_of(command, words) for words in itertools.product(*values)}
    if line.job is not None and not 0 <= line.job < len(configs):
        raise UserError(f"--job {line.job}: the sweep has {counted(len(configs), 'job')}, 0 to {len(configs) - 1}")
    names = {words: str(resolve(composed)["exp_name"]) for words, composed in configs.items()}
    in_names = [place for place in swept if not named_by(place, names)]
    jobs = []
    for words, composed in configs.items():
        own = words
        if in_names:
            composed.config["exp_name"] = names[words] + "".join(suffix(words[place]) for place in in_names)
            own = (*words, f"exp_name={composed.config['exp_name']}")
        folder = Path(str(resolve(composed)["output_dir"]))
        jobs.append(Job(own, tuple(words[place] for place in swept), folder))
    require_folders_of_their_own(jobs)
    return jobs if line.job is None else [jobs[line.job]]


def without_sweep_options(argv: Sequence[str]) -> list[str]:
    """The words without `--multirun` and `--job N`."""
    left, words = [], iter(argv)
    for word in words:
        if word == "--job":
            next(words, None)
        elif word not in SWEEP_OPTIONS and not word.startswith("--job="):
            left.append(word)
    return left


def values_by_key(argv: Sequence[str], line: CommandLine, command: str) -> list[tuple[str, ...]]:
    """For each key or option its words, one for each value; of a key that is given twice the last counts, as ever."""
    found: dict[str, tuple[str, ...]] = {}
    for place, word in enumerate(argv):
        match = OVERRIDE.fullmatch(word)
        if match is None or match["value"] is None:
            found[f"{place} {word}"] = (word,)
        else:
            found[f"{match['prefix'] or ''}{match['key']}"] = words_of(match, line, command)
    return list(found.values())


def words_of(match: re.Match[str], line: CommandLine, command: str) -> tuple[str, ...]:
    """One word for each value of `key=value`."""
    word, key, value = match[0], match["key"], match["value"]
    if not re.search(r"[,(]", value):  # no sweep goes without
        return (word,)
    try:
        override = parse_override(word, word)
    except UserError:
        if "," not in value and known_keys(command).takes_text(key, value):
            return (word,)
        raise
    if not override.is_sweep_override():
        return (word,)
    if not override.is_discrete_sweep():
        raise UserError(f"cannot read {word!r}: an interval has no end of values; write range(1,4) or 1,2,3")
    names: Sequence[str]
    chosen: object = override.value()
    if isinstance(chosen, Glob):
        group = key in COMMANDS[command].groups
        names = chosen.filter(group_choices(key, config_folders(line))) if group else ()
    else:
        names = list(override.sweep_string_iterator())
    if not names:
        raise UserError(f"cannot read {word!r}: it stands for no value")
    return tuple(f"{override.get_key_element()}={name}" for name in names)


def config_of(command: str, words: Sequence[str]) -> Composed:
    return compose(command, parse_command_line(command, with_recipe(command, words)))


def named_by(place: int, names: dict[tuple[str, ...], str]) -> bool:
    """Whether runs that differ in this word alone have different names."""
    seen = {((*words[:place], *words[place + 1 :]), name) for words, name in names.items()}
    return len(seen) == len(names)


def suffix(word: str) -> str:
    """`_seed1`, `_loss_type_dapo`: what a word adds to the name of its run."""
    key, _, value = word.lstrip("+~").partition("=")
    between = "" if NUMBER.fullmatch(value) else "_"
    return f"_{key.rpartition('.')[2]}{between}{NOT_IN_A_NAME.sub('-', value).strip('-')}"


def require_folders_of_their_own(jobs: Sequence[Job]) -> None:
    first: dict[Path, int] = {}
    for number, job in enumerate(jobs, start=1):
        earlier = first.setdefault(job.folder.absolute(), number)
        if earlier != number:
            raise UserError(
                f"jobs {earlier} and {number} of the sweep would both write {job.folder}: give an output_dir that "
                "tells them apart, such as output_dir='./out/${exp_name}'"
            )
