"""Findings on the scores: groups without spread, one function above the others, and what cannot be scored."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.doctor.definition import (
    NO_SIGNAL,
    NOTHING_LEARNED,
    Symptom,
    finding,
    larger_groups,
    longer_warm_up,
)
from rlvr_vocab.analysis.doctor.finding import GUIDE, QUICKSTART, Threshold, figure, share, steps, typed
from rlvr_vocab.analysis.doctor.history import BEGINNING, History, mean, median, recurs, values
from rlvr_vocab.analysis.doctor.reward_scale import Scale, declared, is_own, scale_of, scale_seen
from rlvr_vocab.analysis.doctor.reward_words import rewards_line, without_own
from rlvr_vocab.record.files import COMPLETIONS, PROBLEMS, step_files
from rlvr_vocab.record.metrics import Row, RunFacts, is_number

GROUPS_ALIKE = Threshold(0.9, "share of completions", "`frac_reward_zero_std`: nine of ten groups teach nothing", GUIDE)
REWARD_STD = Threshold(0.1, "× the largest weight", "`reward_std`: the rewards hardly differ over the batch", GUIDE)
WITHIN = Threshold(
    0.1,
    "× `reward_std`",
    "`groups/reward_std`: the rewards differ between problems and hardly within a group; healthy runs have 0.9",
)
_SPREADS = ("frac_reward_zero_std", "reward_std", "groups/reward_std")


@finding(
    severity="error",
    title="The problems are too hard: whole groups get no reward",
    cause="the model never succeeds, so no completion of a group is better than another; or right answers are not "
    "recognised (read the best completions with rlvr-vocab samples)",
    metrics="`frac_reward_zero_std`, `reward_std`, `groups/reward_std`, and a `reward` near 0",
    explains=NOTHING_LEARNED,
)
def groups_too_hard(history: History) -> Symptom | None:
    """Groups without spread, because no completion succeeds, nor did at the beginning."""
    if not _is_too_hard(history):
        return None
    facts = history.facts
    tags = rewards_line(facts, {}, more=({"name": "xml_tags"},))
    return Symptom(_spreads_in_words(history), (larger_groups(facts), longer_warm_up(facts), tags))


@finding(
    severity="error",
    title="The problems are too easy: whole groups get the full reward",
    cause="the model solved these problems before training, so nothing is left to compare",
    metrics="the same, and a `reward` near its full mark",
    explains=NOTHING_LEARNED,
)
def groups_too_easy(history: History) -> Symptom | None:
    """Groups without spread, because all succeed, and did so from the beginning."""
    if not _is_too_easy(history):
        return None
    digits = history.facts.arithmetic_digits
    harder = (f"dataset.generator.digits={1 + digits}",) if digits else ()
    return Symptom(_spreads_in_words(history), (*harder, "dataset=deepscaler", "dataset=math"))


@finding(
    severity="error",
    title="The reward never varies within a group",
    cause="the reward does not depend on what the completion says: it returns a constant, or looks at the problem "
    "alone (try it with rlvr-vocab score)",
    metrics="the same, and any other `reward`; a function of your own that gives everything the same score",
    explains=NOTHING_LEARNED,
)
def reward_never_varies(history: History) -> Symptom | None:
    """Groups without spread, because the reward does not look at the completion, and never did."""
    alike = _without_spread(history)
    if alike is None or not _never_had_spread(history):
        return None
    reward, scale = alike
    if scale.is_near_zero(reward) or scale.is_near_full(reward):
        constant = _is_constant(history.sampled.recent()) and any(map(is_own, scale.names))
        if not constant or not (_is_too_hard(history) or _is_too_easy(history)):
            return None
    return Symptom(_spreads_in_words(history), without_own(history.facts) or ("rewards=accuracy",))


def _is_too_hard(history: History) -> bool:
    """Whether no completion succeeds; what was lost is not too hard, and a single first row may be 0 by luck."""
    alike, first = _without_spread(history), values(history.sampled.earliest(BEGINNING), history.reward)
    if alike is None or not first:
        return False
    reward, scale = alike
    return all(map(scale.is_near_zero, (reward, sum(first) / len(first), max(first) / 2)))


def _is_too_easy(history: History) -> bool:
    """Whether all succeed; what was learned is no longer too easy."""
    alike, first = _without_spread(history), history.first_reward
    if alike is None or not _never_had_spread(history):
        return False
    reward, scale = alike
    return scale.is_near_full(reward) and scale.is_near_full(first.mean if first else 0.0)


def _without_spread(history: History) -> tuple[float, Scale] | None:
    """Mean reward of the last rows and its scale, where the rewards of a group hardly differ."""
    rows = history.sampled.recent()
    reward = mean(rows, history.reward)
    return (reward, scale_seen(history, rows[-1])) if reward is not None and _are_alike(history, rows) else None


def _never_had_spread(history: History) -> bool:
    return _are_alike(history, history.sampled.beginning())


def _are_alike(history: History, rows: list[Row]) -> bool:
    """Whether the rewards of a group hardly differ."""
    alike, spread, within = (mean(rows, name) for name in _SPREADS)
    if alike is not None and alike >= GROUPS_ALIKE:
        return True
    if spread is None:
        return False
    # Scaled by the batch, a group without spread is not logged as one.
    narrow = within is not None and within < WITHIN * spread
    return narrow or spread < REWARD_STD * scale_of(history.facts, rows[-1]).largest


def _is_constant(rows: list[Row]) -> bool:
    """Whether every completion of every row got the same reward."""
    return len(set(values(rows, "reward"))) == 1 and set(values(rows, "reward_std")) == {0.0}


def _spreads_in_words(history: History) -> str:
    rows = history.sampled.recent()
    alike, spread, within = (mean(rows, name) for name in _SPREADS)
    parts = [f"{history.reward} {figure(mean(rows, history.reward) or 0.0)}"]
    if alike is not None:
        parts.append(f"{share(alike)} of completions in groups of equal rewards (limit {share(GROUPS_ALIKE)})")
    if spread is not None:
        parts.append(f"reward_std {figure(spread)} (limit {figure(REWARD_STD)} × the largest weight)")
    if within is not None:
        parts.append(f"groups/reward_std {figure(within)} (limit {figure(WITHIN)} × reward_std)")
    return f"{steps(rows)}, means: {', '.join(parts)}"


DOMINANCE = Threshold(20, "× in weight × std", "the other one decides less than a twentieth of an advantage")
DROWNED_STD = Threshold(
    0.15, "std of the drowned reward", "a reward that hardly varies, being met, has nothing to say", QUICKSTART
)


@finding(severity="warning", metrics="weight × `rewards/<name>/std`", explains=("reward_flat",))
def reward_dominated(history: History) -> Symptom | None:
    """One function decides the advantages, although another varies."""
    rows = history.sampled.recent()
    weights = scale_of(history.facts, rows[-1]).weights if rows else {}
    stds = {
        name: std
        for name, weight in weights.items()
        if (std := median(rows, f"rewards/{name}/std")) is not None and weight
    }
    pulls = {name: abs(weights[name]) * std for name, std in stds.items()}
    if len(pulls) < 2:
        return None
    first = max(pulls, key=lambda name: pulls[name])
    drowned = [name for name, std in stds.items() if std >= DROWNED_STD and DOMINANCE * pulls[name] < pulls[first]]
    if not drowned:
        return None
    told = ", ".join(f"{name} {figure(pull)}" for name, pull in pulls.items())
    fair = {"weight": float(typed(weights[first] * pulls[drowned[0]] / pulls[first]))}
    return Symptom(
        f"{steps(rows)}, weight × standard deviation: {told}; {' and '.join(drowned)} less than 1/{DOMINANCE:g} of "
        f"{first}",
        (rewards_line(history.facts, {first: fair}),),
        cause=f"the scores of {first} are spread wider than its weight allows for",
        title=f"The reward is decided by {first} alone",
    )


_OF_FORMAT = re.compile(r"format|tag|xml|think|struct|box", re.IGNORECASE)
_PENALTY = re.compile(r"(^|_)(no|not|without|missing|bad|wrong)_|penalt|punish|violation|forbid|error", re.IGNORECASE)
_OF_THINKING = "think_format"


@finding(
    severity="error",
    metrics="`rewards/<name>/mean` of a function that is named after a format, tags, boxes or thinking; penalties, "
    "whose full mark is 0, are none",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def format_reward_zero(history: History) -> Symptom | None:
    """A reward for a format is 0 for every completion; whether the template prefills the tag is read from the prompts
    in `completions/`."""
    rows = history.sampled.recent()
    if not rows or history.sampled.count > 10 * len(rows):
        return None
    scale = scale_of(history.facts, rows[-1])
    for name, weight in scale.weights.items():
        means, spreads = (values(rows, f"rewards/{name}/{metric}") for metric in ("mean", "std"))
        # A penalty is 0 where there is nothing to punish.
        pays = weight > 0 and scale.full_marks[name] > 0 and not (is_own(name) and _PENALTY.search(name))
        of_format = _OF_FORMAT.search(name) if is_own(name) else declared(name).is_format
        if pays and of_format and len(means) == len(rows) and not any(means) and not any(spreads):
            return _format_never_met(history, name, rows)
    return None


def _format_never_met(history: History, name: str, rows: list[Row]) -> Symptom:
    facts, (opened, _) = history.facts, history.facts.think_tags
    prefilled = _prompts_end_in(history.folder, opened) if is_own(name) or name == _OF_THINKING else False
    told = f"rewards/{name}/mean 0 and rewards/{name}/std 0 in {steps(rows)}"
    title = f"{name} is 0 for every completion"
    if prefilled:
        told += f"; the prompts in {COMPLETIONS}/ end in {opened}"
        cause = f"the chat template writes {opened} at the end of the prompt, and {name} looks for it in what the "
        cause += "model wrote"
    else:
        cause = f"the model has never written what {name} asks for: the system prompt does not ask for it, or the "
        cause += "format is too strict to be met by chance"
        if prefilled is None:
            cause += f"; or the template prefills {opened}, which no completion on disk shows"
    if prefilled is False:
        tags = rewards_line(facts, {}, more=({"name": "xml_tags"},))
        return Symptom(told, (longer_warm_up(facts), tags), cause, title)
    # The library's function of that kind sees what the template has opened.
    swapped = (rewards_line(facts, {name: {"name": _OF_THINKING}}),) if is_own(name) else ()
    return Symptom(told, (*swapped, "dataset.open_thinking=model"), cause, title)


def _prompts_end_in(folder: Path, tag: str) -> bool | None:
    """Whether the run's prompts open the thinking themselves; None where no completions can be read."""
    files = step_files(folder / COMPLETIONS)
    if not files:
        return None
    # Only here: no other rule needs it, and it takes a while to import.
    import pyarrow
    import pyarrow.parquet

    try:
        prompts = pyarrow.parquet.read_table(files[0], columns=["prompt"])["prompt"].to_pylist()
    except (OSError, KeyError, pyarrow.ArrowException):  # a finding beside a training must not end it
        return None
    return bool(prompts) and all(str(prompt).rstrip().endswith(tag) for prompt in prompts)


@finding(
    severity="warning",
    cause="comparing some answers takes longer than the deadline allows, and they score 0 or nothing: hostile or huge "
    "expressions, a slow function of your own, or a deadline that is too short",
    metrics="`rewards/<name>/timeouts`",
    explains=(*NO_SIGNAL, "reward_flat", "steps_slow", "rows_skipped"),
)
def verifier_timeouts(history: History) -> Symptom | None:
    """Comparisons run into their deadline again and again."""
    rows = history.sampled.recent()
    for metric in sorted({key for row in rows for key in row if re.match(r"rewards/.*/timeouts$", key)}):
        counts = [value for value in values(rows, metric) if value > 0]
        if recurs(len(counts), rows):
            name = metric.split("/")[1]
            return Symptom(
                f"{metric}: {sum(counts):g} completions in {len(counts)} of {len(rows)} rows, {steps(rows)}",
                (_with_a_longer_deadline(history.facts, name),),
                title=f"{name} runs into its deadline",
            )
    return None


def _with_a_longer_deadline(facts: RunFacts, name: str) -> str:
    # One of the library has a deadline for each comparison, one of the user's own for a batch.
    own = is_own(name)
    entry = next((each.more for each in facts.rewards if each.name == name), {})
    given = entry.get("deadline") if own else entry.get("params", {}).get("deadline")
    longer = max(600 if own else 30, 2 * given if is_number(given) else 0)
    return rewards_line(facts, {name: {"deadline": longer} if own else {"params": {"deadline": longer}}})


UNSCORED = Threshold(0.05, "share of rows", "one row in twenty sampled for nothing")
LEFT_OUT = Threshold(0.1, "share of problems", "the rest may be another set than the one meant")
_LEFT_OUT_LATER = ("unusable_gold_answers", "prompts_too_long")
_OTHER_ANSWERS = tuple(f"dataset.answer_format={form}" for form in ("boxed", "hash", "bare"))


@finding(
    severity="warning",
    title="Rows are skipped",
    metrics="`rewards/<name>/failures`, `rewards/<name>/unscored`, `problems.json`",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def rows_skipped(history: History) -> Symptom | None:
    """Completions without a score, or problems that preparation left out."""
    return _problems_left_out(history) if history.rows.count == 1 else _completions_unscored(history)


def _completions_unscored(history: History) -> Symptom | None:
    rows = history.sampled.recent()
    names = scale_of(history.facts, rows[-1]).names if rows else ()
    told: dict[str, str] = {}
    for name in names:
        # Among several functions one of the user's own may pass on rows that are for another.
        may_pass = is_own(name) and len(names) > 1
        failed = [value for value in values(rows, f"rewards/{name}/failures") if value > 0]
        unscored = sum(values(rows, f"rewards/{name}/unscored")) / len(rows)
        if recurs(len(failed), rows):
            told[name] = f"rewards/{name}/failures {sum(failed):g} in {len(failed)} of {len(rows)} rows"
        elif unscored > UNSCORED and not may_pass:
            told[name] = f"rewards/{name}/unscored {share(unscored)} (limit {share(UNSCORED)})"
    if not told:
        return None
    own = [name for name in told if is_own(name)]
    return Symptom(
        f"{', '.join(told.values())}, {steps(rows)}",
        (rewards_line(history.facts, {}, without=own),) if own else _OTHER_ANSWERS,
        cause="a reward function fails or gives no score, so what was sampled for these rows is lost (try it with "
        "rlvr-vocab score)",
    )


def _problems_left_out(history: History) -> Symptom | None:
    for account in _accounts(history.folder / PROBLEMS):
        given = account.get("left_out")
        reasons = {
            **(given if isinstance(given, dict) else {}),
            **{name: account.get(name) for name in _LEFT_OUT_LATER},
        }
        counts = {reason: count for reason, count in reasons.items() if is_number(count) and count > 0}
        lost, read = sum(counts.values()), account.get("rows_read")
        if not is_number(read) or lost <= LEFT_OUT * read:
            continue
        told = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items())
        only_prompts = list(counts) == ["prompts_too_long"]
        limit = history.facts.max_prompt_length
        longer = () if limit is None else (f"training.max_prompt_length={2 * limit}",)
        return Symptom(
            f"{PROBLEMS}: {lost:,} of {read:,} rows of {account.get('dataset')}: {told}",
            longer if only_prompts else (*_OTHER_ANSWERS, *longer),
            cause="prompts are longer than the limit (look with rlvr-vocab check)"
            if only_prompts
            else "columns or the form of the answers are not what the problem set has, or prompts are too long (look "
            "with rlvr-vocab check)",
            step=None,
        )
    return None


def _accounts(path: Path) -> list[dict[str, Any]]:
    """What preparation wrote down of each set; none where it is damaged, which `rlvr-vocab doctor` says."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:  # a finding beside a training must not end it
        return []
    accounts = content.get("training") if isinstance(content, dict) else None
    return [each for each in accounts if isinstance(each, dict)] if isinstance(accounts, list) else []
