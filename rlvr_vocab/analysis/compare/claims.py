"""The claims of a comparison: each line is computed from the files of its runs, or names what would measure it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from rlvr_vocab.analysis.compare.comparison import Comparison, p_text
from rlvr_vocab.analysis.compare.runs import ComparedRun, ComparisonResult, GraderError, problem_of
from rlvr_vocab.data.problem_key import hashes, problem_key
from rlvr_vocab.record.files import COMPLETIONS, FINAL_MODEL
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.record.results import grader_text
from rlvr_vocab.rewards.reward import traits_by_name
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.statistics import Interval
from rlvr_vocab.terminal import clock
from rlvr_vocab.text import listed, pluralize, short_text, visible_text

# Below these, lengths of completions, or other work on the machine, make the difference between equal runs.
_SAME_TOKENS, _SAME_SECONDS = 0.05, 0.2
# A grader that errs on more gold answers can make up the effects that comparisons show.
_GRADER_ERRORS = 0.01
# Settings of `rlvr-vocab evaluate` that belong to the checkpoint, the problems or the grading.
_NO_SAMPLING = (
    *("grader", "format", "weights", "base_weights", "files", "checkpoint", "problems", "problems_sha256"),
    "command",
)
_MOST_NAMED = 10  # runs
Status = Literal["ok", "flag", "not measured"]


@dataclass(frozen=True)
class Claim:
    """One line: `text` is all that the files show.

    flags: sentences on what weakens the comparison; commands: each would measure a part that is not measured.
    listing: commands that make the runs again; figures: the numbers, for JSON.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    listing: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return "flag" if self.flags else "not measured" if self.commands else "ok"

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, **vars(self)}


def claims_of(compared: ComparisonResult) -> tuple[Claim, ...]:
    """The lines in their order, as they can be shown: without secrets, each sentence once."""
    time = "wall time of GRPO"
    lines = [
        _arms(compared),
        _budget(compared, "tokens sampled", lambda run: run.tokens, _SAME_TOKENS, "{:,.0f}".format),
        _budget(compared, "tokens trained on", _tokens_trained, _SAME_TOKENS, "{:,.0f}".format),
        _budget(compared, "steps", lambda run: run.record.steps or None, 0.0, "{:,.0f}".format),
        _budget(compared, time, lambda run: run.grpo_seconds, _SAME_SECONDS, clock),
        _rates(compared),
        _problems(compared),
        _grader(compared),
        _effect(compared),
        _tried(compared),
        _thoughts(compared),
        _copies(compared),
        _reproduced(compared),
    ]
    return tuple(map(_shown, filter(None, lines)))


def _shown(claim: Claim) -> Claim:
    def clean(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(visible_text(without_secrets(line)) for line in lines))

    [text] = clean([claim.text])
    return replace(
        claim, text=text, flags=clean(claim.flags), commands=clean(claim.commands), listing=clean(claim.listing)
    )


# --- the arms and their budgets ---


def _arms(compared: ComparisonResult) -> Claim:
    seeds = {arm.name: [run.seed for run in arm.runs] for arm in compared.arms}
    flags = [
        f"The configurations differ in {key} ({' and '.join(dict.fromkeys(map(short_text, values)))})."
        for key, values in compared.differences.items()
    ]
    flags += [f"{run.folder} is not finished." for run in compared.runs if not run.record.is_finished]
    for name, own in seeds.items():
        if len(own) == 1:
            flags.append(f"{name} has one seed ({own[0]}): the variance over seeds is unknown.")
        if missing := {seed for each in seeds.values() for seed in each} - {*own}:
            flags.append(f"{name} has no run with seed {listed(sorted(missing, key=str))}, which another arm has.")
    if fewest := [name for name, own in seeds.items() if len(own) == 2]:
        flags.append(
            f"Fewer than three seeds ({listed(fewest)}) hardly show the variance over seeds: the interval takes it as "
            "they show it; the smallest effect allows for other pairs of seeds, and can be far larger."
        )
    parts = [
        f"{name}: {pluralize(len(own), 'run')}, seed{'s' * (len(own) > 1)} {listed(own)}" for name, own in seeds.items()
    ]
    arms = [{"name": arm.name, "value": arm.value, "seeds": seeds[arm.name]} for arm in compared.arms]
    text = f"{compared.key} is under test. {'; '.join(parts)}."
    return Claim("arms", text, tuple(flags), figures={"key": compared.key, "arms": arms})


def _tokens_trained(run: ComparedRun) -> float | None:
    return None if run.tokens is None else run.tokens - run.tokens_thrown_away


def _budget(
    compared: ComparisonResult,
    name: str,
    figure: Callable[[ComparedRun], float | None],
    same: float,
    shown: Callable[[float], str],
) -> Claim | None:
    """A budget by arm; None for the tokens trained on where they are those sampled."""
    if name == "tokens trained on" and not any(run.tokens_thrown_away for run in compared.runs):
        return None
    values = {arm.name: [figure(run) for run in arm.runs] for arm in compared.arms}
    known = {arm: [value for value in each if value is not None] for arm, each in values.items()}
    means = {arm: mean(each) for arm, each in known.items() if each}
    text = "; ".join(f"{arm}: {shown(value)}" for arm, value in means.items())
    flags = list[str]()
    if len(means) > 1 and max(means.values()) > (1 + same) * min(means.values()):
        flags.append(f"The arms differ in {name} ({text} on average): their budgets are not equal.")
    unknown = [run for run in compared.runs if figure(run) is None]
    commands = [run.repeat if run.record.is_finished else run.command("train") for run in unknown]
    figures = {"mean": means, "runs": values}
    return Claim(name, f"{text} (mean of a run)." * bool(text), tuple(flags), tuple(commands), figures=figures)


def _rates(compared: ComparisonResult) -> Claim:
    """The learning rates at which the configuration of each arm was trained, compared or not."""
    name, rates = "learning rates tried", dict[str, dict[float, int]]()
    if compared.key == "training.learning_rate":
        return Claim(name, "The learning rate is under test.")
    for arm in compared.arms:
        trained = [run.record.facts.learning_rate for run in arm.runs]
        trained += [run.learning_rate for run in compared.tried if run.arm == arm.name]
        rates[arm.name] = {rate: trained.count(rate) for rate in sorted(set(trained))}
    shown = {arm: [f"{rate:g} ({pluralize(runs, 'run')})" for rate, runs in own.items()] for arm, own in rates.items()}
    text = "; ".join(f"{arm}: {', '.join(each)}" for arm, each in shown.items())
    counts, flags = {arm: len(own) for arm, own in rates.items()}, []
    used = {rate for own in rates.values() for rate in own}
    if max(counts.values()) == 1:
        of_each = f"one rate, {next(iter(used)):g}, for all arms" if len(used) == 1 else "one rate for each arm"
        flags.append(f"No search of the learning rate was found ({of_each}): each arm may do better at its best rate.")
    elif len(set(counts.values())) > 1:
        numbers = ", ".join(f"{arm}: {pluralize(number, 'rate')}" for arm, number in counts.items())
        flags.append(f"The search of the learning rate was not equal ({numbers}): one arm had more chances.")
    return Claim(name, f"{text}. Looked for in {compared.looked_in}.", tuple(flags), figures={"runs_by_rate": rates})


# --- the problems and their grading ---


def _problems(compared: ComparisonResult) -> Claim:
    flags, commands, leaked = list[str](), list[str](), dict[str, int | None]()
    asked = [{answer.prompt for answer in run.answers} for run in compared.runs]
    key_of = {prompt: hashes([problem_key(prompt)]) for prompt in set().union(*asked)}
    for run, prompts in zip(compared.runs, asked, strict=True):
        trained = ((run.problems or {}).get("keys") or {}).get("trained")
        shared = None if trained is None else sorted(each for each in prompts if key_of[each] in {*trained.split()})
        leaked[run.folder] = None if shared is None else len(shared)
        if shared is None:
            against = [f"against={run.answers_file}", "against_problem_column=prompt"]
            commands.append(run.command("check", "model.name=null", *against))
        elif shared:
            flags.append(
                f"{run.folder} was trained on {len(shared):,} of its {pluralize(len(prompts), 'held-out problem')}, "
                f"such as {short_text(shared[0])!r}: its accuracy there does not measure what it learned."
            )
    sizes = {len(prompts) for prompts in asked}
    each = f"{min(sizes):,}" if len(sizes) == 1 else f"{min(sizes):,} to {max(sizes):,}"
    text = f"{len(key_of):,} different ones, {each} for each run ({compared.measured})."
    known = [number for number in leaked.values() if number is not None]
    if known and not any(known):
        text += f" In {len(known):,} of {pluralize(len(leaked), 'run')} none of them is among the training problems."
    flags += dict.fromkeys(_other_problems(compared))
    figures = {"different": len(key_of), "by_run": dict(zip(leaked, map(len, asked), strict=True)), "leaked": leaked}
    return Claim("held-out problems", text, tuple(flags), tuple(commands), figures=figures)


def _other_problems(compared: ComparisonResult) -> Iterator[str]:
    """A sentence where runs with one seed had other problems, where rows repeat one, or were answered otherwise."""
    baseline, *others = compared.arms
    for one, two in ((one, two) for arm in others for one in baseline.runs for two in arm.runs if one.seed == two.seed):
        runs = f"{one.folder} and {two.folder} (seed {one.seed})"
        held_out = [{problem_of(answer) for answer in run.answers} for run in (one, two)]
        if differing := len(held_out[0] ^ held_out[1]):
            only = pluralize(differing, "is", "are")
            yield f"{runs} were not measured on the same problems: {only} only in one of them, and left out."
        trained = [[each["sha256"] for each in run.problems["training"]] for run in (one, two) if run.problems]
        if len(trained) == 2 and trained[0] != trained[1]:
            yield f"{runs} were trained on other problems, or in another order."
    for run in compared.runs:
        rows, problems = len({answer.problem for answer in run.answers}), len({*map(problem_of, run.answers)})
        if problems < rows:
            yield f"The {rows:,} held-out rows hold {pluralize(problems, 'different problem')}: each counts once."
    for found in compared.comparisons:
        if not found.paired and found.left_out:
            yield f"{pluralize(found.left_out, 'problem')} not answered by all runs: not counted."
    for name, values in _differing([run.sampling_settings for run in compared.runs]):
        if name not in _NO_SAMPLING:
            yield f"The answers were sampled with different {name} ({values})."


def _grader(compared: ComparisonResult) -> Claim:
    found, flags = compared.grader_error, []
    if ungraded := sum(answer.score is None for run in compared.runs for answer in run.answers):
        flags.append(
            f"{pluralize(ungraded, 'answer')} without a grade, since the gold answer cannot be read: not counted."
        )
    text = grader_text(compared.runs[0].grader)
    if not isinstance(found, GraderError):
        return Claim("grader", f"{text}: {found}.", tuple(flags), (compared.score_command,))
    accepted, false = found.accepted, found.false_accepts
    text += f'. In made-up turns like "{found.turn}" it accepts {_of(accepted)} gold answers'
    if false is not None:
        text += f", and {_of(false)} gold answers of other problems in their place"
    text += ". Its errors on the wordings of a model are not measured by this."
    if accepted.estimate < 1 - _GRADER_ERRORS:
        flags.append(f"The grader rejects {1 - accepted.estimate:.1%} of the gold answers.")
    if false is not None and false.estimate > _GRADER_ERRORS:
        pairs = ", ".join(f"{short_text(other)} for {short_text(gold)}" for gold, other in found.examples)
        flags.append(f"The grader accepts {false.estimate:.1%} of the answers to other problems ({pairs}).")
    figures = {"accepted": vars(accepted), "false_accepts": None if false is None else vars(false)}
    return Claim("grader", text, tuple(flags), figures=figures)


def _of(share: Interval) -> str:
    """`59 of 60 (91.1 to 99.7 %)`"""
    interval = f"{100 * share.low:.1f} to {100 * share.high:.1f} %"
    return f"{share.estimate * share.problems:,.0f} of {share.problems:,} ({interval})"


# --- the effect ---


def _effect(compared: ComparisonResult) -> Claim:
    flags = [
        f"{run.folder} kept its best checkpoint, which favours the arm that was measured more often."
        for run in compared.runs
        if run.selects_best
    ]
    if single := [found.other for found in compared.comparisons if found.verdict == "one run each"]:
        flags.append(f"The effect of {listed(single)} is that between single models, not between arms.")
    text = " ".join(f"{_effect_text(found)}." for found in compared.comparisons)
    names = (
        *(
            "baseline",
            "other",
            "difference",
            "low",
            "high",
            "confidence",
            "p",
            "adjusted_p",
            "smallest_effect",
            "power",
        ),
        *("paired", "problems", "baseline_scores", "other_scores", "verdict"),
    )
    figures = {"comparisons": [{name: getattr(found, name) for name in names} for found in compared.comparisons]}
    return Claim("effect", text, tuple(flags), figures=figures)


def _effect_text(found: Comparison) -> str:
    runs = f"{pluralize(len(found.other_scores), 'pair')} of runs with one seed"
    if not found.paired:
        runs = f"{len(found.other_scores)} against {pluralize(len(found.baseline_scores), 'run')}, not paired"
    interval = f"{100 * found.confidence:g} % interval {found.interval}"
    text = f"{found.other} less {found.baseline}: {found.metric.difference(found.difference)}, {interval}"
    text += f", on {pluralize(found.problems, 'problem')}, {runs}"
    if found.verdict == "one run each":
        return text
    after = f" (Holm, {found.comparisons} comparisons)" if found.comparisons > 1 else ""
    return f"{text}; {p_text(found.adjusted_p)}{after}; smallest effect at a power of {found.power:g}: {found.effect}"


def _tried(compared: ComparisonResult) -> Claim:
    """Runs of these datasets and models that are not compared; those of a compared configuration are a flag."""
    rates = {arm.name: {run.record.facts.learning_rate for run in arm.runs} for arm in compared.arms}
    left_out = [run for run in compared.tried if run.learning_rate in rates.get(run.arm or "", ())]
    unfinished = sum(not run.is_finished for run in compared.tried)
    text = f"{pluralize(len(compared.tried), 'other run')} of these problems and models in {compared.looked_in}"
    if compared.tried:
        shown = [
            f"{run.folder} ({'not finished' if not run.is_finished else _value(compared, run.value)})"
            for run in compared.tried
        ]
        text += f", {unfinished:,} not finished: {_first(shown)}"
    flags = list[str]()
    if left_out:
        names = _first([run.folder for run in left_out])
        flags.append(
            f"{pluralize(len(left_out), 'run')} of a compared configuration left out of the comparison: {names}."
        )
    figures = {"others": len(compared.tried), "unfinished": unfinished, "runs": [vars(run) for run in compared.tried]}
    return Claim("tried and not reported", f"{text}.", tuple(flags), figures=figures)


def _value(compared: ComparisonResult, value: float | None) -> str:
    return "not measured" if value is None else compared.metric.value(value)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# --- thoughts and copies ---


def _thoughts(compared: ComparisonResult) -> Claim:
    rewards, flags, commands = dict[str, list[tuple[str, Row]]](), list[str](), list[str]()
    for run in compared.runs:
        rows = _thought_rows(run)
        if run.thoughts is None and any(row["declared"] is None for row in rows):
            recorded = run.command("score", f"completions={run.folder}/{COMPLETIONS}")
            commands.append(recorded if Path(run.folder, COMPLETIONS).is_dir() else run.repeat)
        for row in rows:
            rewards.setdefault(row["name"], []).append((run.folder, row))
    for name, of_runs in rewards.items():
        reading = {folder: row for folder, row in of_runs if row.get("reads")}
        declared = {row["declared"] for row in reading.values()}
        where = _first([f"{folder}{_share(row)}" for folder, row in reading.items()])
        if "nothing" in declared:
            flags.append(f"Reward {name} is declared to read nothing of the thought, and reads it ({where}).")
        elif not declared <= {"form", "length"}:
            flags.append(f"Reward {name} reads the thought ({where}): training shows the model what to write there.")
    text = "; ".join(_reading(name, [row for _, row in of_runs]) for name, of_runs in rewards.items())
    figures = {name: [{"run": folder, **row} for folder, row in of_runs] for name, of_runs in rewards.items()}
    return Claim("rewards and the thought", f"{text}.", tuple(flags), tuple(commands), figures={"rewards": figures})


def _thought_rows(run: ComparedRun) -> Sequence[Row]:
    """A row for each reward of the last stage: as it was measured, else with its declaration alone."""
    if run.thoughts is not None:
        rows: Sequence[Row] = run.thoughts["rewards"]
        return rows
    facts = run.record.facts
    return [{"name": each.name, "declared": _declared(each.name)} for each in [facts, *facts.stages][-1].rewards]


def _declared(name: str) -> str | None:
    reads = traits_by_name(name).reads_thought
    return reads if isinstance(reads, str) else None  # that of a judge depends on its parameters


def _reading(name: str, rows: Sequence[Row]) -> str:
    declared = next((f", declared to read {row['declared']}" for row in rows if row["declared"]), "")
    measured = [row["reads"] for row in rows if row.get("reads") is not None]
    if not measured:
        return f"{name}{declared or ', not declared'}, not measured"
    what = "the thought" if any(measured) else "nothing of the thought"
    return f"{name}{declared}, reads {what} in {sum(measured) or len(measured)} of {pluralize(len(rows), 'run')}"


def _share(row: Row) -> str:
    return "" if row.get("share") is None else f": {row['share']:.0%} of its variance"


def _copies(compared: ComparisonResult) -> Claim | None:
    """The verdicts of `rlvr-vocab probe`; None for a comparison without reasoning tokens."""
    runs = [run for run in compared.runs if run.has_copies]
    if not runs:
        return None
    probed = {run.folder: run.probe for run in runs if run.probe is not None}
    text = " ".join(f"{folder}: {probe['sentence']}" for folder, probe in probed.items())
    commands = tuple(
        shlex.join(["rlvr-vocab", "probe", f"run={run.folder}"])
        if Path(run.folder, FINAL_MODEL).is_dir()
        else run.repeat
        for run in runs
        if run.probe is None
    )
    verdicts = {folder: {key: probe[key] for key in ("verdict", "sentence")} for folder, probe in probed.items()}
    return Claim("meaning of the copies", text, (), commands, figures={"verdicts": verdicts})


# --- to do it again ---


def _reproduced(compared: ComparisonResult) -> Claim:
    known = [run.environment for run in compared.runs if run.environment is not None]
    versions = [{"the code": str(each.get("commit"))[:10], **each.get("versions", {})} for each in known]
    flags = tuple(f"The runs used different versions of {name} ({values})." for name, values in _differing(versions))
    text = ", ".join(f"{name} {value}" for name, value in versions[0].items()) if versions else ""
    listing = [command for run in compared.runs for command in run.typed]
    commands = tuple(run.repeat for run in compared.runs if run.environment is None)
    return Claim("to do it again", text, flags, commands, (*listing, compared.command), {"versions": versions[:1]})


def _differing(records: Sequence[Row | None]) -> Iterator[tuple[str, str]]:
    """The keys in which records differ, each with its values; without those of runs that have none."""
    known = [record for record in records if record is not None]
    for name in dict.fromkeys(name for each in known for name in each):
        values = dict.fromkeys(str(each.get(name)) for each in known)
        if len(values) > 1:
            yield name, listed(values)
