"""The grader of answers: one of a run's rewards, or their sum, and the score from which an answer is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlvr_vocab.bounds import reaches
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import (
    RewardContext,
    build_rewards,
    code_record,
    declared,
    find_function,
    logged_names,
    required_columns,
)
from rlvr_vocab.rewards.guard import Reward, trial_columns
from rlvr_vocab.rewards.library.answers import accuracy, extracted_answer
from rlvr_vocab.rewards.reward import RewardSpec, is_user_code, traits_by_name, turn_text

# Answers that a reward is given at once; user code has a deadline for each batch.
_BATCH = 64


@dataclass(frozen=True)
class GraderSpec:
    """The settings of a grader: the score is the weighted sum of `functions`, and right from `threshold` on.

    With a threshold, one function alone has the weight 1; with None nothing is right or wrong. `form` is the reward
    that says whether an answer is in format.
    """

    functions: tuple[RewardSpec, ...]
    threshold: float | None
    form: RewardSpec | None = None

    @property
    def name(self) -> str:
        """`accuracy`, or `2 × correctness + 0.5 × boxed`, by the names that the rewards are logged as."""
        pairs = zip(logged_names(self.functions), self.functions, strict=True)
        return " + ".join(name if spec.weight == 1 else f"{spec.weight:g} × {name}" for name, spec in pairs)

    def record(self) -> dict[str, Any]:
        """For records: equal, but for the name, for graders that give the same figures."""
        functions = [
            {**code_record(each.name), "params": dict(each.params), "weight": each.weight} for each in self.functions
        ]
        return {"name": self.name, "functions": functions, "threshold": self.threshold}

    def form_record(self) -> dict[str, Any] | None:
        """The same of `form`."""
        if (form := self.form) is None:
            return None
        return {**code_record(form.name), "params": dict(form.params), "full_mark": form.full_mark}


def grader_spec(
    rewards: Sequence[RewardSpec], asked: Sequence[RewardSpec] | None = None, threshold: float | None = None
) -> GraderSpec:
    """The grader of a run with these rewards; `accuracy` where there are none.

    `asked` are the rewards that grade; a bare name refers to the run's own reward. With None it is the first of the
    run's rewards that measures correctness, else the sum of all that have a weight. A `threshold` of None is the full
    mark of a reward that measures correctness, or of a single user function. Raises UserError if a reward cannot be
    found, or nothing with a weight is asked for.
    """
    given = [replace(spec, adaptive=None) for spec in rewards]
    if asked is not None:
        functions = tuple(replace(_of_the_run(spec, given), adaptive=None) for spec in asked)
        if all(spec.weight == 0 for spec in functions):
            raise UserError("the list of graders is empty, or all their weights are 0: name a reward, or leave it null")
    elif graders := [spec for spec in given if declared(spec).grades] or [*filter(None, map(_shaped, given))]:
        functions = (graders[0],)
    else:
        functions = tuple(spec for spec in given if spec.weight) or (RewardSpec("accuracy"),)
    if threshold is None and len(functions) == 1:
        [only] = functions
        if declared(only).grades or (asked is not None and is_user_code(only.name)):
            threshold = declared(only).full_mark if only.full_mark is None else only.full_mark
    if threshold is not None and len(functions) == 1:
        functions = (replace(functions[0], weight=1.0),)
    # A reward with partial credit, such as `xml_tags`, is the last choice.
    forms = [spec for spec in given if declared(spec).is_format]
    return GraderSpec(functions, threshold, min(forms, key=lambda spec: declared(spec).full_mark != 1.0, default=None))


def _of_the_run(spec: RewardSpec, given: Sequence[RewardSpec]) -> RewardSpec:
    """The run's own reward where a name alone is asked for."""
    if spec != RewardSpec(spec.name):
        return spec
    logged = dict(zip(logged_names(given), given, strict=True))
    alike = (each for each in given if find_function(each.name) is find_function(spec.name))
    return logged[spec.name] if spec.name in logged else next(alike, spec)


def _shaped(spec: RewardSpec) -> RewardSpec | None:
    """The grader whose scores a reward shapes, as `cosine_length` does, where that tells right from wrong."""
    parameter = declared(spec).shapes
    name = str(spec.params.get(parameter, "accuracy")) if parameter else ""
    return RewardSpec(name) if traits_by_name(name).grades else None


@dataclass(frozen=True)
class Grade:
    """The grade of an answer; `score` and `in_format` are None where no reward of the run gives them.

    `answer` is the final answer that `accuracy` read; None where there is none, or it does not grade. `rewards` are
    the scores that `score` is the sum of, by name; empty where it is that of one reward.
    """

    score: float | None
    in_format: bool | None = None
    answer: str | None = None
    rewards: Mapping[str, float | None] = field(default_factory=dict)


class Grader:
    """Grades answers by a `GraderSpec`; with `reads_answers` its grades hold the final answers."""

    def __init__(self, spec: GraderSpec, context: RewardContext) -> None:
        self.spec = spec
        self._parts = build_rewards(spec.functions, context)
        self._format_reward = build_rewards([spec.form], context)[0] if spec.form is not None else None
        self.reads_answers = len(self._parts) == 1 and self._parts[0].function is accuracy
        params = self._parts[0].params
        self._places = {name: params[name] for name in ("think_tags", "answer_from", "decimal_mark") if name in params}

    def check_parameters(self) -> None:
        """Raises UserError where a reward of the library cannot take the values of its parameters."""
        for part in self._parts:
            part.check_parameters()

    def grades(
        self,
        rows: Sequence[Mapping[str, Any]],
        turns: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        environments: Sequence[Any] = (),
    ) -> list[Grade]:
        """The grade of each turn, a text or the messages of a completion with tools, beside the row that it answers.

        `completion_ids` are the ids that rewards get; `environments` those that the turns acted in, None for none.
        """
        found: list[Grade] = []
        for start in range(0, len(turns), _BATCH):
            part = slice(start, start + _BATCH)
            chat = not isinstance(rows[part][0]["prompt"], str)
            completions = [
                [{"role": "assistant", "content": turn}] if chat and isinstance(turn, str) else turn
                for turn in turns[part]
            ]
            columns = trial_columns(rows[part], completions)
            columns["completion_ids"] = [list(ids) for ids in completion_ids[part]]
            if any(each is not None for each in environments[part]):
                columns["environments"] = list(environments[part])
            by_turn = zip(*(reward(**columns) for reward in self._parts), strict=True)
            for turn, in_format, scores in zip(turns[part], self._in_format(columns), by_turn, strict=True):
                answer = extracted_answer(turn_text(turn), **self._places) if self.reads_answers else None
                named = {each.name: score for each, score in zip(self._parts, scores, strict=True) if len(scores) > 1}
                found.append(Grade(weighted_sum(self._parts, scores), in_format, answer, named))
        return found

    def _in_format(self, columns: Mapping[str, Any]) -> Sequence[bool | None]:
        form, spec = self._format_reward, self.spec.form
        if form is None or spec is None or not set(required_columns(spec)) <= columns.keys():
            return [None] * len(columns["completions"])
        return [None if score is None else reaches(score, form.full_mark) for score in form(**columns)]


def weighted_sum(rewards: Sequence[Reward], scores: Sequence[float | None]) -> float | None:
    """The sum over the rewards that score a completion, as in training; None where none does."""
    parts = [reward.weight * score for reward, score in zip(rewards, scores, strict=True) if score is not None]
    return sum(parts) if parts else None
