"""Warnings of a comparison: everything in which the arms differ that is not under test, as far as the runs tell."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import Comparison
from rlvr_vocab.analysis.compare.runs import (
    ComparedArm,
    ComparedRun,
    KeyDifference,
    problem_of,
    runs_with_equal_seeds,
    safe_line,
)
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import is_finished
from rlvr_vocab.record.results import HeldOutMetric
from rlvr_vocab.text import listed, pluralize

# Below it, lengths of completions alone make the difference between runs of one configuration.
_SAME_BUDGET = 0.05
# Standard errors: reached by luck alone in one comparison of a hundred.
_SIGNIFICANT = 2.58
_ENOUGH_SEEDS = 3
_LONGEST_VALUE = 60
# Of the checkpoint, and the grader, which must be the same.
_NO_SAMPLING = ("grader", "weights", "base_weights", "files", "checkpoint", "problems", "problems_sha256")


def comparison_warnings(
    arms: Sequence[ComparedArm], differences: Sequence[KeyDifference], comparisons: Sequence[Comparison]
) -> list[str]:
    """What a reader must know before believing the difference; the baseline is the first arm.

    Args:
        differences: in the configurations, the key under test apart.
    """
    runs = [run for arm in arms for run in arm.runs]
    checks: tuple[Iterator[str], ...] = (
        _copies(runs),
        (f"{run.folder} is damaged: {line}." for run in runs for line in run.damage),
        _configuration(differences),
        _unfinished(runs),
        _seeds(arms),
        _unequal(arms, "tokens trained on", lambda run: run.last("num_tokens"), _SAME_BUDGET),
        _unequal(arms, "steps", lambda run: run.steps, 0.0),
        _sampling_settings(runs),
        *(_data(arms[0], arm) for arm in arms[1:]),
        _left_out(runs, comparisons),
        *(_before(arms[0], arm) for arm in arms[1:]),
        _best_of(runs),
        _surroundings(runs),
    )
    return list(dict.fromkeys(map(safe_line, chain(*checks))))


def _copies(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Another seed gives other answers, once something was trained, and no run logs the seconds of another one."""
    found: dict[tuple[str, ...], str] = {}
    for what, content_of in (("answers", _answers), ("logged rows, seconds among them", _logged)):
        alike: dict[Hashable, list[str]] = defaultdict(list)
        for run in runs:
            alike[content_of(run)].append(run.folder)
        for content, folders in alike.items():
            if content and len(folders) > 1:
                found.setdefault(tuple(folders), what)
    for same, what in found.items():
        yield (
            f"{listed(same)} have the same {what}, as copies of one run do. The figures take them for {len(same)} "
            "runs: if they are one, interval and verdict are wrong."
        )


def _answers(run: ComparedRun) -> Hashable:
    """All answers, word for word; nothing of those before training, which runs of one seed have in common."""
    if run.before_training:
        return ()
    return tuple(sorted((*problem_of(answer), answer.completion) for answer in run.answers))


def _logged(run: ComparedRun) -> Hashable:
    return repr(run.rows) if any("step_time" in row for row in run.rows) else None


def _configuration(differences: Sequence[KeyDifference]) -> Iterator[str]:
    for each in differences:
        yield (
            f"The configurations also differ in {each.key} ({_values(each)}): that may be what makes the difference."
        )


def _values(difference: KeyDifference) -> str:
    shown = (value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…" for value in difference.values)
    return " and ".join(dict.fromkeys(shown))


def _unfinished(runs: Sequence[ComparedRun]) -> Iterator[str]:
    for run in runs:
        if run.summary is None:
            yield f"{run.folder} has no summary.json: it has not come to its end."
        elif not is_finished(run.summary):
            yield f"{run.folder} is not finished."


def _seeds(arms: Sequence[ComparedArm]) -> Iterator[str]:
    seeds = {arm.name: {run.seed for run in arm.runs} for arm in arms}
    for name, has in seeds.items():
        missing = set().union(*seeds.values()) - has
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
    """Different settings of `rlvr-vocab evaluate`, except those of the checkpoint and of the split by seed."""
    if len({run.from_evaluate for run in runs}) > 1:
        own = [run.folder for run in runs if not run.from_evaluate]
        yield f"The results of {listed(own)} are what a run measured itself, the others those of rlvr-vocab evaluate."
    known = [run.sampling_settings for run in runs if run.sampling_settings is not None]
    for name in dict.fromkeys(name for each in known for name in each if name not in _NO_SAMPLING):
        values = dict.fromkeys(str(each.get(name)) for each in known)
        if len(values) > 1:
            yield f"The answers were sampled with different {name} ({' and '.join(values)})."


def _data(baseline: ComparedArm, arm: ComparedArm) -> Iterator[str]:
    for one, two in runs_with_equal_seeds(baseline, arm):
        held_out = [{problem_of(answer) for answer in run.answers} for run in (one, two)]
        differing = len(held_out[0] ^ held_out[1])
        if differing:
            yield (
                f"{one.folder} and {two.folder} (seed {one.seed}) were not measured on the same problems: "
                f"{pluralize(differing, 'is', 'are')} only in one of them, and left out."
            )
        yield from _prompt_order(one, two)


def _left_out(runs: Sequence[ComparedRun], comparisons: Sequence[Comparison]) -> Iterator[str]:
    ungraded = sum(answer.score is None for run in runs for answer in run.answers)
    if ungraded:
        yield f"{pluralize(ungraded, 'answer')} without a grade, since the gold answer cannot be read: not counted."
    for found in comparisons:
        runs_in = len(found.baseline_scores) + len(found.other_scores)
        if found.paired and found.left_out_runs:
            yield (
                f"{found.left_out_runs} of {pluralize(runs_in + found.left_out_runs, 'run')} without a partner in "
                f"{found.other} against {found.baseline}: not counted."
            )
        elif not found.paired and found.left_out:
            yield f"{pluralize(found.left_out, 'problem')} not answered by all runs: not counted."


def _before(baseline: ComparedArm, arm: ComparedArm) -> Iterator[str]:
    known = [_measured_before(each) for each in (baseline, arm)]
    if not all(known):
        return
    means = [mean(value for value, _ in each) for each in known]
    variance = sum(sum(variance for _, variance in each) / len(each) ** 2 for each in known)
    if abs(means[1] - means[0]) > _SIGNIFICANT * math.sqrt(variance):
        measure = HeldOutMetric.of(arm.runs[0].grader)
        how = "was right in" if measure.is_share else "had a reward of"
        yield (
            f"Before training {arm.name} {how} {measure.value(means[1])} and {baseline.name} "
            f"{how.removeprefix('was right ')} {measure.value(means[0])}: more than luck. The arms did not begin alike."
        )


def _measured_before(arm: ComparedArm) -> list[tuple[float, float]]:
    """What was measured before training and its variance, of the runs that know both.

    The variance of an accuracy is as if each problem were new, which makes it rather too large.
    """
    known = []
    for run in arm.runs:
        summary = run.summary or {}
        value, _ = HeldOutMetric.of(run.grader).of_run(summary)
        count, deviation = summary.get("held_out_problems"), summary.get("reward_std_before")
        if value is None or not count:
            continue
        if HeldOutMetric.of(run.grader).is_share:
            known.append((value, max(value * (1 - value), 1 / count) / count))
        elif deviation is not None:
            known.append((value, deviation**2 / count))
    return known


def _best_of(runs: Sequence[ComparedRun]) -> Iterator[str]:
    chosen = [run.folder for run in runs if run.selects_best]
    if chosen:
        yield (
            f"{listed(chosen)} kept the best checkpoint instead of the last: whichever arm was measured more often is "
            "flattered."
        )


def _surroundings(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run.environment for run in runs if run.environment is not None]
    commits = dict.fromkeys(str(each["commit"])[:10] for each in known if each.get("commit"))
    if len(commits) > 1:
        yield f"The runs come from different versions of the code (commits {listed(commits)})."
    packages = {name for each in known for name in each.get("versions", {})}
    for name in sorted(packages):
        versions = dict.fromkeys(str(each.get("versions", {}).get(name)) for each in known)
        if len(versions) > 1:
            yield f"The runs used different versions of {name} ({listed(versions)})."
    machines = dict.fromkeys(_machine(each) for each in known)
    if len(machines) > 1:
        yield f"The runs ran on different hardware ({'; '.join(machines)}): seconds cannot be compared."


def _machine(environment: Any) -> str:
    gpus = environment.get("gpus") or []
    cores = environment.get("processor_cores")
    return listed(gpus) if gpus else f"no GPU, {pluralize(cores, 'processor core') if cores else 'cores not known'}"


def _prompt_order(one: ComparedRun, two: ComparedRun) -> Iterator[str]:
    """Whether two runs saw the same prompts at the first, middle and last step that both kept."""
    runs = f"{one.folder} and {two.folder} (seed {one.seed})"
    steps = sorted({*one.logged_steps} & {*two.logged_steps})
    if not (one.logged_steps and two.logged_steps):
        return
    if not steps:
        yield f"{runs} may have seen other problems: they kept completions of no step that is the same."
        return
    try:
        differ = any(one.prompts_at(at) != two.prompts_at(at) for at in (steps[0], steps[len(steps) // 2], steps[-1]))
    except UserError as error:
        yield f"{runs} may have seen other problems: {error}."
        return
    if differ:
        yield f"{runs} saw other problems, or in another order."
