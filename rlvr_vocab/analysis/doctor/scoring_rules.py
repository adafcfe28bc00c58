"""Rules on the scoring: a format that cannot be met, timeouts, rows that nothing scores or that were left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.reward_scale import asked_as, is_own, scale_of
from rlvr_vocab.analysis.doctor.seen import Seen, values
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import share, steps
from rlvr_vocab.analysis.record import Row
from rlvr_vocab.vocab.run_places import COMPLETIONS, step_files

_OF_FORMAT = re.compile(r"format|tag|xml|think|struct", re.IGNORECASE)
PROBLEMS = "problems.json"
_LEFT_OUT_LATER = ("unusable_gold_answers", "prompts_too_long")


def format_never_met(seen: Seen) -> list[Finding]:
    """A reward for the format has been 0 for every completion."""
    rows = seen.recent()
    for name in scale_of(seen.facts, rows[-1]).names if rows and seen.rows <= 10 * len(rows) else ():
        means = values(rows, f"rewards/{name}/mean")
        spreads = values(rows, f"rewards/{name}/std")
        if _OF_FORMAT.search(name) and len(means) == len(rows) and not any(means) and not any(spreads):
            return [_format_zero(seen, name, rows)]
    return []


def _format_zero(seen: Seen, name: str, rows: list[Row]) -> Finding:
    opened, _ = seen.facts.think_tags
    prefilled = prompts_end_in(seen.folder, opened)
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
        ("rewards=format", "dataset.open_thinking=model")
        if prefilled is not False
        else ("rewards=xml", "warmup.max_steps=400"),
        seen.step,
    )


def prompts_end_in(folder: Path, tag: str) -> bool | None:
    """Whether the run's prompts open the thinking themselves; None where no completions are on disk."""
    files = step_files(folder / COMPLETIONS)
    if not files:
        return None
    # Only here: no other rule needs it, and it takes a while to import.
    import pyarrow.parquet

    prompts = pyarrow.parquet.read_table(files[0], columns=["prompt"])["prompt"].to_pylist()
    return bool(prompts) and all(str(prompt).rstrip().endswith(tag) for prompt in prompts)


def verifier_timeouts(seen: Seen) -> list[Finding]:
    """Comparisons run into their deadline again and again."""
    rows = seen.recent()
    for metric in sorted(
        {key for row in rows for key in row if key.startswith("rewards/") and key.endswith("/timeouts")}
    ):
        counts = [value for value in values(rows, metric) if value > 0]
        if not counts or len(counts) < LIMITS.recurring * len(rows):
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
                (_with_a_longer_deadline(asked_as(seen.facts, name), is_own(name)),),
                seen.step,
            )
        ]
    return []


def _with_a_longer_deadline(name: str, own: bool) -> str:
    # One of the library has a deadline for each comparison, one of the user's own for a batch.
    deadline = "deadline:600" if own else "params:{deadline:30}"
    return f'"rewards=[{{name:{name},{deadline}}}]"'


def rows_unscored(seen: Seen) -> list[Finding]:
    """Completions that were sampled and that a function did not score."""
    rows = seen.recent()
    if not rows:
        return []
    names = scale_of(seen.facts, rows[-1]).names
    told = []
    for name in names:
        # Among several functions one of the user's own may pass on rows that are for another.
        may_pass = is_own(name) and len(names) > 1
        failed = [value for value in values(rows, f"rewards/{name}/failures") if value > 0]
        unscored = sum(values(rows, f"rewards/{name}/unscored")) / len(rows)
        if failed and len(failed) >= LIMITS.recurring * len(rows):
            told.append(f"rewards/{name}/failures {sum(failed):g} in {len(failed)} of {len(rows)} rows")
        elif unscored > LIMITS.unscored and not may_pass:
            told.append(f"rewards/{name}/unscored {share(unscored)} (limit {share(LIMITS.unscored)})")
    return [_skipped(seen, f"{', '.join(told)}, {steps(rows)}", "scored")] if told else []


def problems_left_out(seen: Seen) -> list[Finding]:
    """Problems that preparation could not use."""
    path = seen.folder / PROBLEMS
    if seen.rows > 1 or not path.is_file():
        return []
    for account in json.loads(path.read_text(encoding="utf-8")).get("training", []):
        reasons = {**account["left_out"], **{reason: account.get(reason, 0) for reason in _LEFT_OUT_LATER}}
        lost, read = sum(reasons.values()), account["rows_read"]
        if lost > LIMITS.left_out * read:
            told = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in reasons.items() if count)
            return [
                _skipped(seen, f"{PROBLEMS}: {lost:,} of {read:,} rows of {account['dataset']}: {told}", "prepared")
            ]
    return []


def _skipped(seen: Seen, told: str, what: str) -> Finding:
    return Finding(
        "rows_skipped",
        "Rows are skipped",
        "warning",
        told,
        "a reward function fails or gives no score, so what was sampled for these rows is lost (try it with "
        "rlvr-vocab score)"
        if what == "scored"
        else "columns or the form of the answers are not what the problem set has, or prompts are too long (look with "
        "rlvr-vocab check)",
        ("rewards=accuracy",)
        if what == "scored"
        else ("dataset.answer_format=boxed", "training.max_prompt_length=1024"),
        seen.step if what == "scored" else None,
    )
