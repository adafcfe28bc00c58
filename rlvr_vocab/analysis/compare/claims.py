"""What the runs of a comparison show: each line is computed from their files, or names what would measure it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean
from typing import Any, Literal

from rlvr_vocab.analysis.compare.comparison import p_text
from rlvr_vocab.analysis.compare.runs import ComparedRun, ComparisonResult, problem_of
from rlvr_vocab.data.problem_key import hashes, problem_key
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.record.results import grader_text
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.statistics import share_interval
from rlvr_vocab.text import listed, pluralize, short_text, visible_text

# Name, figure of a run, the share below which a difference is that of equal runs (lengths of completions, other work on
# the machine), and how it is written.
_BUDGETS = (
    ("tokens sampled", attrgetter("tokens"), 0.05, "{:,.0f}".format),
    ("tokens trained on", attrgetter("tokens_trained"), 0.05, "{:,.0f}".format),
    ("steps", attrgetter("record.steps"), 0.0, "{:,.0f}".format),
    ("wall time of GRPO", attrgetter("grpo_seconds"), 0.2, "{:,.1f} seconds".format),
)
# A grader that errs on more gold answers can make up the effects that comparisons show.
_GRADER_ERRORS = 0.01
# Settings of `rlvr-vocab evaluate` that belong to the checkpoint, the problems or the grading.
_NO_SAMPLING = ("grader", "format", "weights", "base_weights", "files", "checkpoint", "problems", "problems_sha256")
_MOST_NAMED = 10  # runs
FigureOf = Callable[[ComparedRun], float | None]
_Lists = defaultdict[str, list[str]]


@dataclass(frozen=True)
class Claim:
    """One line: `text` is all that the files show, `flags` what weakens the comparison.

    commands: those that would measure what is not measured, or, at the end, that make the runs again.
    """

    name: str
    status: Literal["ok", "flag", "not measured"]
    text: str
    flags: tuple[str, ...]
    commands: tuple[str, ...]
    figures: Mapping[str, Any]


def claims_of(compared: ComparisonResult) -> tuple[Claim, ...]:
    """The lines in their order, without secrets."""
    lines = [_arms(compared), *(_budget(compared, *each) for each in _BUDGETS), _rates(compared), _problems(compared)]
    lines += [_grader(compared), _effect(compared), _tried(compared), _thoughts(compared), _copies(compared)]
    thrown_away = any(run.tokens != run.tokens_trained for run in compared.runs)
    has_copies = any(run.has_copies for run in compared.runs)
    shown = {"tokens trained on": thrown_away, "meaning of the copies": has_copies}
    return tuple(line for line in (*lines, _reproduced(compared)) if shown.get(line.name, True))


def _line(
    name: str,
    text: str,
    flags: Sequence[str] = (),
    missing: Mapping[str, str] | None = None,
    commands: Sequence[str] = (),
    *,
    figures: Mapping[str, Any],
) -> Claim:
    """A line; `missing` has the command for each run, or each thing, that is not measured."""
    if missing:
        text = f"{text} Not measured: {_first([*missing])}. This would measure it:".lstrip()
        commands = [*missing.values(), *commands]
    [[text], flags, commands] = (
        tuple(dict.fromkeys(visible_text(without_secrets(each)) for each in part)) for part in ([text], flags, commands)
    )
    return Claim(name, "flag" if flags else "not measured" if missing else "ok", text, flags, commands, figures)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _arms(compared: ComparisonResult) -> Claim:
    seeds = {arm.name: [run.seed for run in arm.runs] for arm in compared.arms}
    flags = [
        f"The configurations differ in {key} ({' and '.join(dict.fromkeys(map(short_text, values)))})."
        for key, values in compared.differences.items()
    ]
    flags += [f"{run.folder} is not finished." for run in compared.runs if not run.record.is_finished]
    flags += [f"{name} has one seed: the variance over seeds is unknown." for name in seeds if len(seeds[name]) == 1]
    for name, own in seeds.items():
        if missing := {seed for each in seeds.values() for seed in each} - {*own}:
            flags.append(f"{name} has no run with seed {listed(sorted(missing, key=str))}, which another arm has.")
    if fewest := [name for name, own in seeds.items() if len(own) == 2]:
        flags.append(
            f"Fewer than three seeds ({listed(fewest)}) hardly show the variance over seeds: the interval takes it as "
            "they show it; the smallest effect allows for other pairs of seeds, and can be far larger."
        )
    text, values = f"{compared.key} is under test.", dict[str, float]()
    for arm in compared.arms:
        values |= {run.folder: mean(run.results.scores) for run in arm.runs}
        runs = (f"seed {run.seed}: {compared.metric.value(values[run.folder])} ({run.folder})" for run in arm.runs)
        text += f" {arm.name}{f' ({arm.value})' * (arm.value not in arm.name)}: {', '.join(runs)}."
    return _line("arms", text, flags, figures={"seeds": seeds, "values": values})


def _budget(compared: ComparisonResult, name: str, of: FigureOf, same: float, shown: Callable[[float], str]) -> Claim:
    values = {arm.name: [of(run) or None for run in arm.runs] for arm in compared.arms}
    known = {arm: [value for value in each if value is not None] for arm, each in values.items()}
    means = {arm: mean(each) for arm, each in known.items() if each}
    text, flags = "; ".join(f"{arm}: {shown(value)}" for arm, value in means.items()), []
    if means and max(means.values()) > (1 + same) * min(means.values()):
        flags.append(f"The arms differ in {name} ({text} on average): their budgets are not equal.")
    missing = {run.folder: run.commands["train"] for run in compared.runs if not of(run)}
    return _line(name, f"{text} (mean of a run)." * bool(text), flags, missing, figures={"mean": means, "runs": values})


def _rates(compared: ComparisonResult) -> Claim:
    """The learning rates at which the configuration of each arm was trained, compared or not."""
    trained = {arm.name: [run.record.facts.learning_rate for run in arm.runs] for arm in compared.arms}
    for run in compared.tried:
        trained.get(run.arm or "", []).append(run.learning_rate)
    rates = {arm: {rate: own.count(rate) for rate in sorted({*own})} for arm, own in trained.items()}
    counts, flags = {len(own) for own in rates.values()}, []
    shown = {arm: [f"{rate:g} in {pluralize(n, 'run')}" for rate, n in own.items()] for arm, own in rates.items()}
    found = [f"{arm}: {', '.join(each)}" for arm, each in shown.items()]
    text = f"{'; '.join(found)}; of the compared runs and those in {compared.looked_in}."
    if compared.key == "training.learning_rate":
        text = f"The learning rate is under test. {text}"
    elif counts == {1}:
        used = {rate for own in rates.values() for rate in own}
        rate = f"one rate for all arms, {min(used):g}" if len(used) == 1 else "one rate for each arm"
        flags.append(f"No search of the learning rate was found ({rate}): an arm may do better at its own best rate.")
    elif len(counts) > 1:
        flags.append(f"The search of the learning rate was not equal ({'; '.join(found)}): one arm had more chances.")
    return _line("learning rates tried", text, flags, figures={"runs_by_rate": rates})


# --- the problems, their grading, and the effect ---


def _problems(compared: ComparisonResult) -> Claim:
    asked = [{answer.prompt for answer in run.answers} for run in compared.runs]
    key_of = {prompt: hashes([problem_key(prompt)]) for prompt in set().union(*asked)}
    missing, trained_on, example = dict[str, str](), dict[str, int](), ""
    for run, prompts in zip(compared.runs, asked, strict=True):
        trained = (run.problems or {}).get("keys", {}).get("trained")
        if trained is None:
            missing[f"overlap with the training of {run.folder}"] = run.commands["problems"]
        else:
            keys = {*trained.split()}
            shared = sorted(each for each in prompts if key_of[each] in keys)
            trained_on[run.folder], example = len(shared), example or "".join(shared[:1])
    flags = [*_other_problems(compared)]
    if leaked := [f"{number:,} of {run}" for run, number in trained_on.items() if number]:
        flags.append(
            f"Held-out problems were trained on ({_first(leaked)}), such as {short_text(example)!r}: accuracy on them "
            "does not measure what was learned."
        )
    runs = f"{len(trained_on) - len(leaked):,} of {pluralize(len(asked), 'run')} trained on none of their own"
    text = f"{len(key_of):,} different ones ({compared.measured}); {runs}."
    figures = {"different": len(key_of), "of_run": list(map(len, asked)), "trained_on": trained_on}
    return _line("held-out problems", text, flags, missing, figures=figures)


def _other_problems(compared: ComparisonResult) -> Iterator[str]:
    """A sentence where runs with one seed had other problems, where rows repeat one, or were answered otherwise."""
    baseline, *others = compared.arms
    for one, two in ((one, two) for arm in others for one in baseline.runs for two in arm.runs if one.seed == two.seed):
        runs = f"{one.folder} and {two.folder} (seed {one.seed})"
        held_out = [{problem_of(answer) for answer in run.answers} for run in (one, two)]
        if differing := len(held_out[0] ^ held_out[1]):
            only = pluralize(differing, "is", "are")
            yield f"{runs} were not measured on the same problems: {only} only in one of them, and left out."
        trained = [[each["sha256"] for each in run.problems.get("training", ())] for run in (one, two) if run.problems]
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
        if name not in (*_NO_SAMPLING, "command"):
            yield f"The answers were sampled with different {name} ({values})."


def _grader(compared: ComparisonResult) -> Claim:
    found, flags, text = compared.grader_errors, list[str](), f"{grader_text(compared.runs[0].grader)}."
    if ungraded := sum(answer.score is None for run in compared.runs for answer in run.answers):
        answers = pluralize(ungraded, "answer")
        flags.append(f"{answers} without a grade, since the gold answer cannot be read: not counted.")
    if isinstance(found, str):
        missing = {f"its errors, since {found}": compared.runs[0].commands["grader"]}
        return _line("grader", text, flags, missing, figures={})
    figures = dict[str, Any]()
    for name, what in (("rejected", "gold answers"), ("accepted", "gold answers of other problems")):
        wrong = f"{name.removesuffix('ed')}s"
        share = share_interval([float(each) for each in found[name]])
        if share is not None:
            figures[name] = {"answers": sum(found[name]), "of": share.problems}
            interval = f"{100 * share.low:.1f} to {100 * share.high:.1f} %"
            text += f" It {wrong} {sum(found[name]):,} of {share.problems:,} {what} ({interval})."
            if share.estimate > _GRADER_ERRORS:
                such = f", such as {listed(found['examples'])}" if name == "accepted" else ""
                flags.append(f"The grader {wrong} {share.estimate:.1%} of {what}{such}.")
    text += f' They stand in turns like "{found["turn"]}": errors on wordings of a model are not measured by it.'
    return _line("grader", text, flags, figures=figures)


def _effect(compared: ComparisonResult) -> Claim:
    best, text = [run.folder for run in compared.runs if run.selects_best], ""
    flags = [f"{run} kept its best checkpoint, which favours the arm that was measured more often." for run in best]
    for found in compared.comparisons:
        runs = f"{pluralize(len(found.other_scores), 'pair')} of runs with one seed"
        if not found.paired:
            runs = f"{len(found.other_scores)} against {pluralize(len(found.baseline_scores), 'run')}, not paired"
        interval = f"{100 * found.confidence:g} % interval {found.interval}"
        text += f"{found.other} less {found.baseline}: {found.metric.difference(found.difference)}, {interval}"
        text += f", on {pluralize(found.problems, 'problem')}, {runs}"
        if found.verdict == "one run each":
            flags.append(f"The effect of {found.other} is that between single models, not between arms.")
        else:
            holm = f" after Holm for {found.comparisons} comparisons" if found.comparisons > 1 else ""
            text += f"; {p_text(found.adjusted_p)}{holm}; smallest effect at a power of {found.power:g}: {found.effect}"
        text += ". "
    return _line("effect", text.rstrip(), flags, figures={"comparisons": compared.as_json()["comparisons"]})


def _tried(compared: ComparisonResult) -> Claim:
    """Runs of these problems and models that are not compared; those of a compared configuration are a flag."""
    rates = {arm.name: {run.record.facts.learning_rate for run in arm.runs} for arm in compared.arms}
    left_out = [run.folder for run in compared.tried if run.learning_rate in rates.get(run.arm or "", ())]
    unfinished, value = sum(not run.is_finished for run in compared.tried), compared.metric.value
    found = {run.folder: "no result" if run.value is None else value(run.value) for run in compared.tried}
    text = f"{pluralize(len(found), 'other run')} of these problems and models in {compared.looked_in}"
    if found:
        text += f", {unfinished:,} not finished: {_first([f'{run} ({outcome})' for run, outcome in found.items()])}"
    flags = []
    if left_out:
        runs = pluralize(len(left_out), "run")
        flags.append(f"{runs} of a compared configuration left out of the comparison: {_first(left_out)}.")
    figures = {"unfinished": unfinished, "left_out": left_out, "runs": list(map(vars, compared.tried))}
    return _line("tried and not reported", f"{text}.", flags, figures=figures)


# --- thoughts and copies, and how to do it again ---


def _thoughts(compared: ComparisonResult) -> Claim:
    by_sentence, reading, missing = _Lists(list), _Lists(list), dict[str, str]()
    for run in compared.runs:
        for row in run.record.thoughts or _declarations(run):
            by_sentence[row["sentence"]].append(run.folder)
            if row["reads"] and (row["declared"] in (None, "nothing", "words") or not row.get("agrees", True)):
                reading[row["name"]].append(f"{run.folder}: {row['sentence']}")
            if row["reads"] is None and row["declared"] is None:
                missing[run.folder] = run.commands["thoughts"]
    where = {name: _first(runs) for name, runs in reading.items()}
    flags = [f"Reward {name} reads the thought, so training shapes it ({each})." for name, each in where.items()]
    text = " ".join(f"{sentence} ({pluralize(len(runs), 'run')})." for sentence, runs in by_sentence.items())
    return _line("rewards and the thought", text, flags, missing, figures={"runs_by_sentence": by_sentence})


def _declarations(run: ComparedRun) -> Iterator[Row]:
    """A row for each reward of the last stage of a run that measured none."""
    for each in [run.record.facts, *run.record.facts.stages][-1].rewards:
        declaration = f"that it reads {each.reads_thought} of the thought" if each.reads_thought else "nothing"
        sentence = f"{each.name} declares {declaration}; not measured"
        yield {"name": each.name, "declared": each.reads_thought, "reads": None, "sentence": sentence}


def _copies(compared: ComparisonResult) -> Claim:
    """The verdicts of `rlvr-vocab probe` on the runs with reasoning tokens."""
    runs = [run for run in compared.runs if run.has_copies]
    probed = {run.folder: str(run.probe["sentence"]) for run in runs if run.probe is not None}
    missing = {run.folder: run.commands["copies"] for run in runs if run.probe is None}
    text = " ".join(f"{folder}: {sentence}" for folder, sentence in probed.items())
    return _line("meaning of the copies", text, (), missing, figures={"sentences": probed})


def _reproduced(compared: ComparisonResult) -> Claim:
    known = [run.environment for run in compared.runs if run.environment is not None]
    versions = [{"the code": (each.get("commit") or "unknown")[:10], **each.get("versions", {})} for each in known]
    flags = [f"The runs used different versions of {name} ({values})." for name, values in _differing(versions)]
    text = f"{', '.join(f'{name} {value}' for name, value in versions[0].items())}." if versions else ""
    missing = {run.folder: run.commands["train"] for run in compared.runs if run.environment is None}
    commands = [*(command for run in compared.runs for command in run.typed), compared.command]
    return _line("to do it again", text, flags, missing, commands, figures={"versions": versions[:1]})


def _differing(records: Sequence[Row | None]) -> Iterator[tuple[str, str]]:
    """The keys in which records differ, each with its values; without those of runs that have none."""
    known = [record for record in records if record is not None]
    for name in dict.fromkeys(name for each in known for name in each):
        values = dict.fromkeys(str(each.get(name)) for each in known)
        if len(values) > 1:
            yield name, listed(values)
