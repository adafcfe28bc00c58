"""What of the differences between arms could not be looked at, since runs have not recorded it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rlvr_vocab.analysis.compare.stories import ArmStory, RunStory, one_line, pairs_of
from rlvr_vocab.errors import UserError

# What is missing, of which run that is so, what therefore nobody knows.
_MISSING: tuple[tuple[str, Callable[[RunStory], bool], str], ...] = (
    ("environment.json", lambda run: run.environment is None, "the code, the package versions and the hardware"),
    ("commit", lambda run: run.environment is not None and not run.environment.get("commit"), "the code"),
    ("metrics.jsonl", lambda run: not run.rows, "the tokens trained on"),
    (
        "accuracy before training",
        lambda run: (run.summary or {}).get("accuracy_before") is None,
        "how they began",
    ),
)


def unchecked_of(arms: Sequence[ArmStory]) -> list[str]:
    """One sentence for each thing."""
    runs = [run for arm in arms for run in arm.runs]
    found = [*_not_recorded(runs), *_not_said(runs)]
    for arm in arms[1:]:
        found += [why for one, two in pairs_of(arms[0], arm) if (why := _why_no_order(one, two))]
    return list(dict.fromkeys(map(one_line, found)))


def _not_recorded(runs: Sequence[RunStory]) -> Iterator[str]:
    for what, is_missing, unknown in _MISSING:
        missing = [run.folder for run in runs if is_missing(run)]
        if missing:
            yield f"{unknown}: no {what} in {', '.join(missing)}"


def _not_said(runs: Sequence[RunStory]) -> Iterator[str]:
    """What a run measures itself is asked as its configuration says."""
    silent = [run.folder for run in runs if run.from_evaluate and run.asked is None]
    if silent:
        yield f"how the answers were sampled: no settings.json beside those of {', '.join(silent)}"


def looked_at(one: RunStory, two: RunStory) -> list[int]:
    """The steps whose prompts tell whether two runs saw the same ones: first, middle and last of those both kept."""
    return [] if _why_no_order(one, two) else _some(one, two)


def _some(one: RunStory, two: RunStory) -> list[int]:
    steps = sorted({*one.logged_steps} & {*two.logged_steps})
    return list(dict.fromkeys((steps[0], steps[len(steps) // 2], steps[-1]))) if steps else []


def _why_no_order(one: RunStory, two: RunStory) -> str:
    """Why the prompts of two runs cannot be compared; empty where they can."""
    order = f"the problems that {one.folder} and {two.folder} saw, and their order"
    steps = _some(one, two)
    if not steps:
        return f"{order}: they kept completions of no step that is the same"
    try:
        for step in steps:
            one.prompts_at(step), two.prompts_at(step)
    except UserError as error:
        return f"{order}: {error}"
    return ""
