"""Turns as right as can be, to try reward functions with before a model is loaded: right shape, finite numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.reward_wiring import GRADERS, reward_context, reward_specs, stand_in_context
from rlvr_vocab.exp.typed_sections import RewardFunctionSettings, RewardSettings, RunSettings
from rlvr_vocab.rewards.accuracy import sources_of
from rlvr_vocab.rewards.build import build_rewards, required_columns
from rlvr_vocab.rewards.debug import debug
from rlvr_vocab.rewards.reward import Mark
from rlvr_vocab.rewards.trial import try_out

if TYPE_CHECKING:
    from datasets import Dataset

_ROWS = 8
_STATED = {"box": "\\boxed{%s}", "answer_tag": "<answer>%s</answer>", "hash": "#### %s", "phrase": "The answer is %s."}
_BOX_READERS = (*GRADERS, "boxed", "cosine_length", "exact_match", "multiple_choice", "numeric")


def try_rewards(settings: RunSettings, rows: Dataset) -> None:
    """Refuse a reward function that cannot score the problems of a run, and functions that leave nothing to learn.

    Raises:
        UserError: a function needs a column that is not there, raises, or returns something else than scores; or none
            that has a weight gives a score.
    """
    if all(function.weight == 0 for function in settings.rewards.functions):
        raise UserError("rewards: every weight is 0, so nothing could be learned: give a function another weight")
    require_reward_columns(settings.rewards, rows.column_names, "the problems have")
    trial = [dict(row) for row in rows.select(range(min(_ROWS, len(rows))))]
    turns = [gold_turn(row["solution"], settings.rewards, settings.model.think_tags) for row in trial]
    marks: dict[str, list[Mark]] = {}
    for reward in build_rewards(reward_specs(settings.rewards), stand_in_context(reward_context(settings))):
        if reward.bound.function is not debug:
            tried = try_out(reward.function, trial, turns)
            if reward.weight != 0:
                marks[reward.name] = tried
    require_a_score(marks)


def require_a_score(marks: Mapping[str, Sequence[Mark]]) -> None:
    """Raises UserError where no reward, by name, scored any row of its trial."""
    if marks and all(mark.score is None for each in marks.values() for mark in each):
        rows = len(next(iter(marks.values())))
        reasons = "; ".join(f"{name} gave None{_because(each)}" for name, each in marks.items())
        raise UserError(f"rewards: nothing could be learned, the first {rows} problems have no score: {reasons}")


def _because(marks: Sequence[Mark]) -> str:
    reason = next((mark.reason for mark in marks if mark.reason), "")
    return f" ({reason})" if reason else ""


def require_reward_columns(rewards: RewardSettings, columns: Sequence[str], there: str) -> None:
    """Raises UserError where a reward function cannot do without a column that is not among `columns`."""
    for spec in reward_specs(rewards):
        for column in required_columns(spec):
            if column not in columns:
                listed = ", ".join(name for name in columns if name != "prompt") or "none"
                raise UserError(f"reward {spec.name} needs a column {column!r}; {there} {listed}")


def gold_turn(solution: str, rewards: RewardSettings, think_tags: tuple[str, str]) -> list[dict[str, Any]]:
    r"""An assistant's turn that is as right as can be: some thinking, then the gold answer where rewards look for it.

    With an `xml_*` reward the turn has reasoning and answer elements, else thinking and a `\boxed{…}`.
    """
    opened, closed = think_tags
    in_tag = any(function.name.startswith("xml_") for function in rewards.functions)
    answer = _stated(solution, rewards, in_tag)
    if in_tag:
        text = f"<reasoning>\nWork it out.\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
    else:
        text = f"{opened}\nWork it out.\n{closed}\n{answer}"
    return [{"role": "assistant", "content": text}]


def _stated(solution: str, rewards: RewardSettings, in_tag: bool) -> str:
    """The gold answer at each place where a reward looks first; bare in an answer tag where that is enough."""
    sources = [_sources(function) for function in rewards.functions if function.name in _BOX_READERS]
    if in_tag:
        sources = [each for each in sources if "answer_tag" not in each]
        if not sources:
            return solution
    places = dict.fromkeys(each[0] for each in sources) or ("box",)
    return "\n".join(_STATED[place] % solution for place in places)


def _sources(function: RewardFunctionSettings) -> Sequence[str]:
    """Where a reward looks for the answer, the first place first."""
    return sources_of(function.params.get("answer_from", "box")) if function.name in GRADERS else ("box",)
