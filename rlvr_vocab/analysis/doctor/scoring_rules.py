"""Rules on the scoring: a format that cannot be met, timeouts, rows that nothing scores or that were left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import longer_warm_up
from rlvr_vocab.analysis.doctor.reward_scale import declared, is_own, scale_of
from rlvr_vocab.analysis.doctor.reward_words import rewards_line
from rlvr_vocab.analysis.doctor.seen import Seen, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import share, steps
from rlvr_vocab.record.files import COMPLETIONS, PROBLEMS, step_files
from rlvr_vocab.record.metrics import Row, RunFacts, is_number

_OF_FORMAT = re.compile(r"format|tag|xml|think|struct|box", re.IGNORECASE)
_PENALTY = re.compile(r"(^|_)(no|not|without|missing|bad|wrong)_|penalt|punish|violation|forbid|error", re.IGNORECASE)
_OF_THINKING = "think_format"
_LEFT_OUT_LATER = ("unusable_gold_answers", "prompts_too_long")


def format_never_met(seen: Seen) -> list[Finding]:
    """A reward for the format has been 0 for every completion."""
    rows = seen.sampled()
    if not rows or seen.rows_sampled > 10 * len(rows):
        return []
    scale = scale_of(seen.facts, rows[-1])
    for name, weight in scale.weights.items():
        means, spreads = (values(rows, f"rewards/{name}/{figure}") for figure in ("mean", "std"))
        # A penalty is 0 where there is nothing to punish.
        pays = weight > 0 and scale.full_marks[name] > 0 and not (is_own(name) and _PENALTY.search(name))
        of_format = _OF_FORMAT.search(name) if is_own(name) else declared(name).is_format
        if pays and of_format and len(means) == len(rows) and not any(means) and not any(spreads):
            return [_format_zero(seen, name, rows)]
    return []


def _format_zero(seen: Seen, name: str, rows: list[Row]) -> Finding:
    opened, _ = seen.facts.think_tags
    prefilled = prompts_end_in(seen.folder, opened) if is_own(name) or name == _OF_THINKING else False
    told = f"rewards/{name}/mean 0 and rewards/{name}/std 0 in {steps(rows)}"
    if prefilled:
        told += f"; the prompts in {COMPLETIONS}/ end in {opened}"
    return Finding(
        "format_reward_zero",
        f"{name} is 0 for every completion",
        "error",
        told,
        f"the chat template writes {opened} at the end of the prompt, and {name} looks for it in what the model wrote"
        if prefilled
        else f"the model has never written what {name} asks for: the system prompt does not ask for it, or the format "
        f"is too strict to be met by chance"
        + (f"; or the template prefills {opened}, which no completion on disk shows" if prefilled is None else ""),
        _to_meet_a_format(seen.facts, name, prefilled),
        seen.step,
    )


def _to_meet_a_format(facts: RunFacts, name: str, prefilled: bool | None) -> tuple[str, ...]:
    if prefilled is False:
        return (longer_warm_up(facts), rewards_line(facts, {}, more=({"name": "xml_tags"},)))
    # The library's function of that kind sees what the template has opened.
    swapped = (rewards_line(facts, {name: {"name": _OF_THINKING}}),) if is_own(name) else ()
    return (*swapped, "dataset.open_thinking=model")


def prompts_end_in(folder: Path, tag: str) -> bool | None:
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


def verifier_timeouts(seen: Seen) -> list[Finding]:
    """Comparisons run into their deadline again and again."""
    rows = seen.sampled()
    for metric in sorted(
        {key for row in rows for key in row if key.startswith("rewards/") and key.endswith("/timeouts")}
    ):
        counts = [value for value in values(rows, metric) if value > 0]
        if len(counts) < max(2, LIMITS.recurring * len(rows)):
            continue
        name = metric.split("/")[1]
        return [
            Finding(
                "verifier_timeouts",
                f"{name} runs into its deadline",
                "warning",
                f"{metric}: {sum(counts):g} completions in {len(counts)} of {len(rows)} rows, {steps(rows)}",
                "comparing some answers takes longer than the deadline allows, and they score 0 or nothing: hostile or "
                "huge expressions, a slow function of your own, or a deadline that is too short",
                (_with_a_longer_deadline(seen.facts, name),),
                seen.step,
            )
        ]
    return []


def _with_a_longer_deadline(facts: RunFacts, name: str) -> str:
    # One of the library has a deadline for each comparison, one of the user's own for a batch.
    own = is_own(name)
    entry = next((each.more for each in facts.rewards if each.name == name), {})
    given = entry.get("deadline") if own else entry.get("params", {}).get("deadline")
    longer = max(600 if own else 30, 2 * given if is_number(given) else 0)
    return rewards_line(facts, {name: {"deadline": longer} if own else {"params": {"deadline": longer}}})


def rows_unscored(seen: Seen) -> list[Finding]:
    """Completions that were sampled and that a function did not score."""
    rows = seen.sampled()
    if not rows:
        return []
    names = scale_of(seen.facts, rows[-1]).names
    told: list[str] = []
    failing: list[str] = []
    for name in names:
        # Among several functions one of the user's own may pass on rows that are for another.
        may_pass = is_own(name) and len(names) > 1
        failed = [value for value in values(rows, f"rewards/{name}/failures") if value > 0]
        unscored = sum(values(rows, f"rewards/{name}/unscored")) / len(rows)
        before = len(told)
        if len(failed) >= max(2, LIMITS.recurring * len(rows)):
            told.append(f"rewards/{name}/failures {sum(failed):g} in {len(failed)} of {len(rows)} rows")
        elif unscored > LIMITS.unscored and not may_pass:
            told.append(f"rewards/{name}/unscored {share(unscored)} (limit {share(LIMITS.unscored)})")
        failing += [name] * (len(told) - before)
    return [_unscored(seen, f"{', '.join(told)}, {steps(rows)}", failing)] if told else []


def problems_left_out(seen: Seen) -> list[Finding]:
    """Problems that preparation could not use."""
    if seen.rows > 1:
        return []
    for account in _accounts(seen.folder / PROBLEMS):
        given = account.get("left_out")
        reasons = {
            **(given if isinstance(given, dict) else {}),
            **{name: account.get(name) for name in _LEFT_OUT_LATER},
        }
        counts = {reason: count for reason, count in reasons.items() if is_number(count) and count > 0}
        lost, read = sum(counts.values()), account.get("rows_read")
        if read is not None and is_number(read) and lost > LIMITS.left_out * read:
            told = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items())
            told = f"{PROBLEMS}: {lost:,} of {read:,} rows of {account.get('dataset')}: {told}"
            return [_left_out(told, seen.facts, only_prompts=list(counts) == ["prompts_too_long"])]
    return []


def _accounts(path: Path) -> list[dict[str, Any]]:
    """What preparation wrote down of each set; none where it is damaged, which `rlvr-vocab doctor` says."""
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:  # a finding beside a training must not end it
        return []
    accounts = content.get("training") if isinstance(content, dict) else None
    return [each for each in accounts if isinstance(each, dict)] if isinstance(accounts, list) else []


def _unscored(seen: Seen, told: str, failing: list[str]) -> Finding:
    own = [name for name in failing if is_own(name)]
    return Finding(
        "rows_skipped",
        "Rows are skipped",
        "warning",
        told,
        "a reward function fails or gives no score, so what was sampled for these rows is lost (try it with "
        "rlvr-vocab score)",
        (rewards_line(seen.facts, {}, without=own),) if own else _OTHER_ANSWERS,
        seen.step,
    )


def _left_out(told: str, facts: RunFacts, *, only_prompts: bool) -> Finding:
    longer = () if facts.max_prompt_length is None else (f"training.max_prompt_length={2 * facts.max_prompt_length}",)
    return Finding(
        "rows_skipped",
        "Rows are skipped",
        "warning",
        told,
        "prompts are longer than the limit (look with rlvr-vocab check)"
        if only_prompts
        else "columns or the form of the answers are not what the problem set has, or prompts are too long (look with "
        "rlvr-vocab check)",
        longer if only_prompts else (*_OTHER_ANSWERS, *longer),
    )


_OTHER_ANSWERS = tuple(f"dataset.answer_format={form}" for form in ("boxed", "hash", "bare"))
