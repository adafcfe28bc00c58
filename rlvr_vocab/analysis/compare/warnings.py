"""Warnings of a comparison: everything in which the arms differ besides the key under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.analysis.compare.result import ComparedArm, ComparedRun, problem_of
from rlvr_vocab.record.files import is_finished
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import listed, pluralize, visible_text

# Below it, lengths of completions alone make the difference between runs of one configuration.
_SAME_BUDGET = 0.05
_ENOUGH_SEEDS = 3
_LONGEST_VALUE = 60
# Settings of `rlvr-vocab evaluate` that belong to the checkpoint or the problems; the grader must be the same.
_NO_SAMPLING = ("grader", "weights", "base_weights", "files", "checkpoint", "problems", "problems_sha256")


def comparison_warnings(
    arms: Sequence[ComparedArm], differences: Mapping[str, tuple[str, ...]], comparisons: Sequence[Comparison]
) -> tuple[str, ...]:
    """A sentence on each; the baseline is the first arm, and `differences` are those of the other keys."""
    runs = [run for arm in arms for run in arm.runs]
    found = chain(
        (f"{run.folder} is damaged: {line}." for run in runs for line in run.damage),
        (f"The configurations also differ in {key} ({_values(values)})." for key, values in differences.items()),
        _unfinished(runs),
        _seeds(arms),
        _unequal(arms, "tokens trained on", lambda run: run.last("num_tokens"), _SAME_BUDGET),
        _unequal(arms, "steps", lambda run: run.steps, 0.0),
        _sampling_settings(runs),
        chain.from_iterable(_problems(arms[0], arm) for arm in arms[1:]),
        _left_out(runs, comparisons),
        _environments(runs),
    )
    return tuple(dict.fromkeys(visible_text(without_secrets(line)) for line in found))


def _values(values: Sequence[str]) -> str:
    shown = (value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…" for value in values)
    return " and ".join(dict.fromkeys(shown))


def _unfinished(runs: Sequence[ComparedRun]) -> Iterator[str]:
    for run in runs:
        if not is_finished(run.summary):
            yield f"{run.folder} is not finished{'' if run.summary else ': it has no summary.json'}."
        if run.selects_best:
            yield f"{run.folder} kept its best checkpoint, not the last: the arm measured more often is flattered."


def _seeds(arms: Sequence[ComparedArm]) -> Iterator[str]:
    seeds = {arm.name: {run.seed for run in arm.runs} for arm in arms}
    for name, own in seeds.items():
        missing = set().union(*seeds.values()) - own
        if missing:
            yield f"{name} has no run with seed {listed(sorted(missing, key=str))}, which another arm has."
    fewest = min(map(len, seeds.values()))
    if 1 < fewest < _ENOUGH_SEEDS:
        yield f"An arm has {pluralize(fewest, 'run')} only: with three, much smaller differences can be shown."


def _unequal(
    arms: Sequence[ComparedArm], name: str, figure: Callable[[ComparedRun], float | None], same: float
) -> Iterator[str]:
    known = {arm.name: [value for run in arm.runs if (value := figure(run)) is not None] for arm in arms}
    means = {arm: mean(values) for arm, values in known.items() if values}
    if len(means) > 1 and max(means.values()) > (1 + same) * min(means.values()):
        shown = ", ".join(f"{arm}: {value:,.0f}" for arm, value in means.items())
        yield f"The arms differ in {name} ({shown} on average): one had more to learn from."


def _sampling_settings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    own = [run.folder for run in runs if run.sampling_settings is None]
    if 0 < len(own) < len(runs):
        yield f"The results of {listed(own)} were measured by the run itself, the others by rlvr-vocab evaluate."
    known = [run.sampling_settings for run in runs if run.sampling_settings is not None]
    for name in dict.fromkeys(name for each in known for name in each if name not in _NO_SAMPLING):
        values = dict.fromkeys(str(each.get(name)) for each in known)
        if len(values) > 1:
            yield f"The answers were sampled with different {name} ({' and '.join(values)})."


def _problems(baseline: ComparedArm, arm: ComparedArm) -> Iterator[str]:
    """Other held-out or training problems of two runs with one seed; `problems.json` has fingerprints of the latter."""
    by_seed = {run.seed: run for run in arm.runs}
    for one, two in ((run, by_seed[run.seed]) for run in baseline.runs if run.seed in by_seed):
        runs = f"{one.folder} and {two.folder} (seed {one.seed})"
        held_out = [{problem_of(answer) for answer in run.answers} for run in (one, two)]
        differing = len(held_out[0] ^ held_out[1])
        if differing:
            yield (
                f"{runs} were not measured on the same problems: {pluralize(differing, 'is', 'are')} only in one of "
                "them, and left out."
            )
        trained = [[each["sha256"] for each in run.problems["training"]] for run in (one, two) if run.problems]
        if len(trained) == 2 and trained[0] != trained[1]:
            yield f"{runs} were trained on other problems, or in another order."


def _left_out(runs: Sequence[ComparedRun], comparisons: Sequence[Comparison]) -> Iterator[str]:
    ungraded = sum(answer.score is None for run in runs for answer in run.answers)
    if ungraded:
        yield f"{pluralize(ungraded, 'answer')} without a grade, since the gold answer cannot be read: not counted."
    for found in comparisons:
        if found.paired and found.left_out_runs:
            all_runs = pluralize(sum(found.counts) + found.left_out_runs, "run")
            yield (
                f"{found.left_out_runs} of {all_runs} without a partner in {found.other} against {found.baseline}: "
                "not counted."
            )
        elif not found.paired and found.left_out:
            yield f"{pluralize(found.left_out, 'problem')} not answered by all runs: not counted."


def _environments(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run.environment for run in runs if run.environment is not None]
    commits = dict.fromkeys(str(each["commit"])[:10] for each in known if each.get("commit"))
    if len(commits) > 1:
        yield f"The runs come from different versions of the code (commits {listed(commits)})."
    for name in sorted({name for each in known for name in each.get("versions", {})}):
        versions = dict.fromkeys(str(each.get("versions", {}).get(name)) for each in known)
        if len(versions) > 1:
            yield f"The runs used different versions of {name} ({listed(versions)})."
    machines = dict.fromkeys(map(_machine, known))
    if len(machines) > 1:
        yield f"The runs ran on different hardware ({'; '.join(machines)}): seconds cannot be compared."


def _machine(environment: Any) -> str:
    gpus, cores = environment.get("gpus"), environment.get("processor_cores")
    return listed(gpus) if gpus else f"no GPU, {pluralize(cores, 'processor core') if cores else 'cores not known'}"
