"""From settings to what the rewards room takes; imports no torch, so that functions are checked before models load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rlvr_vocab.config.sections import RewardSettings, RunSettings
from rlvr_vocab.rewards.accuracy import extracted_answer
from rlvr_vocab.rewards.build import BuiltReward, RewardContext, RewardSpec, build_rewards
from rlvr_vocab.rewards.turns import THINK_TAGS

if TYPE_CHECKING:
    from rlvr_vocab.vocab.layout import VocabLayout


from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_vocab.config.sections import RewardFunctionSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.accuracy import sources_of
from rlvr_vocab.rewards.build import required_columns
from rlvr_vocab.rewards.debug import debug
from rlvr_vocab.rewards.reward import Mark
from rlvr_vocab.rewards.trial import try_out

if TYPE_CHECKING:
    from datasets import Dataset

# Functions that compare with a gold answer through the verifier.
GRADERS = ("accuracy", "accuracy_reward")
VERIFYING = (*GRADERS, "cosine_length")


def reward_specs(rewards: RewardSettings) -> list[RewardSpec]:
    return [
        RewardSpec(
            function.name, function.weight, function.params, function.adaptive, function.full_mark, function.deadline
        )
        for function in rewards.functions
    ]


def reward_context(settings: RunSettings, layout: VocabLayout | None = None) -> RewardContext:
    """What reward functions may ask for of a run; without a layout, the ids of its vocabulary are not yet known."""
    return RewardContext(
        think_tags=settings.model.think_tags,
        standard_size=None if layout is None else layout.standard_size,
        think_open_id=None if layout is None else layout.think_open_id,
        think_close_id=None if layout is None else layout.think_close_id,
        max_completion_length=settings.training.grpo["max_completion_length"],
    )


def stand_in_context(context: RewardContext) -> RewardContext:
    """What is not known before a model is loaded, filled in: to call a function, any values will do."""
    return RewardContext(context.think_tags or THINK_TAGS, 1_000, 1, 2, context.max_completion_length or 1_000)


def grader_of(rewards: RewardSettings | None, think_tags: tuple[str, str]) -> BuiltReward:
    """What tells right answers from wrong ones in a run: its own accuracy where it has one, else the plain one."""
    [grader] = build_rewards([grader_spec(rewards)], RewardContext(think_tags=think_tags))
    return grader


def grader_spec(rewards: RewardSettings | None) -> RewardSpec:
    given = [] if rewards is None else reward_specs(rewards)
    specs = [replace(spec, adaptation=None) for spec in given if spec.name in GRADERS]
    return specs[0] if specs else RewardSpec("accuracy")


def answer_reader(grader: BuiltReward) -> Callable[[str], str | None]:
    """What a grader takes for the final answer of a turn; None where the turn has none."""
    arguments = grader.bound.arguments({})
    given = {name: arguments[name] for name in ("think_tags", "answer_from") if name in arguments}
    return partial(extracted_answer, **given)


def needs_gold_answers(rewards: RewardSettings) -> bool:
    """Whether a function compares with the gold answer through the verifier."""
    return any(function.name in VERIFYING for function in rewards.functions)


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
