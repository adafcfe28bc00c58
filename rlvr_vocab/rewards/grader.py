"""What says how good a model's answers are: one of a run's rewards, or their sum, and from which score one is right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import (
    Reward,
    RewardContext,
    build_rewards,
    find_function,
    logged_names,
    required_columns,
)
from rlvr_vocab.rewards.dry_run import trial_columns
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.library.accuracy import accuracy, extracted_answer
from rlvr_vocab.rewards.reward import RewardSpec, traits_of
from rlvr_vocab.rewards.user_code import is_user_code, source_file

# Answers that a reward is given at once; one of the user's own has a deadline for each batch.
_BATCH = 64


@dataclass(frozen=True)
class GraderSpec:
    """What grades answers, as plain settings.

    Attributes:
        functions: the rewards whose weighted sum is the score; of one that tells right from wrong it is the score.
        threshold: the score from which an answer is right; None where nothing is right or wrong.
        form: the reward that tells whether an answer is in format; None where none does.
    """

    functions: tuple[RewardSpec, ...]
    threshold: float | None
    form: RewardSpec | None = None

    @property
    def takes_one_as_it_is(self) -> bool:
        """Whether the score is that of one reward without its weight, since a threshold tells which is right."""
        return len(self.functions) == 1 and self.threshold is not None

    @property
    def name(self) -> str:
        """`accuracy`, or `2 × correctness + 0.5 × boxed`, by the names that the rewards are logged as."""
        names = logged_names(self.functions)
        if self.takes_one_as_it_is:
            return names[0]
        pairs = zip(names, self.functions, strict=True)
        return " + ".join(name if spec.weight == 1 else f"{spec.weight:g} × {name}" for name, spec in pairs)

    def record(self) -> dict[str, Any]:
        """For the records of runs and evaluations: but for the name, the same of graders that give the same figures."""
        functions = [
            {
                **_code_of(each.name),
                "params": dict(each.params),
                "weight": 1.0 if self.takes_one_as_it_is else each.weight,
            }
            for each in self.functions
        ]
        return {"name": self.name, "functions": functions, "threshold": self.threshold}

    def form_record(self) -> dict[str, Any] | None:
        """The same of what looks at the form."""
        if self.form is None:
            return None
        return {**_code_of(self.form.name), "params": dict(self.form.params), "full_mark": self.form.full_mark}


def grader_spec(
    rewards: Sequence[RewardSpec], asked: Sequence[RewardSpec] | None = None, threshold: float | None = None
) -> GraderSpec:
    """What grades the answers of a run with these rewards; `accuracy` where there are none.

    Args:
        asked: the rewards that grade, by the user's word; a name alone is that of one of the run's. None: the first
            of the run's that grades being right, else the sum of all that have a weight, each with its first.
        threshold: the score from which an answer is right; None: the full mark of a reward that grades being right, or
            of one of the user's own that is asked for by itself.

    Raises:
        UserError: a reward cannot be found, or what is asked for is nothing, or has no weight.
    """
    given = [replace(spec, adaptive=None) for spec in rewards]
    graders = [spec for spec in given if _grades(spec)] or [spec for spec in map(_shaped, given) if spec is not None]
    if asked is not None:
        functions = tuple(replace(_of_the_run(spec, given), adaptive=None) for spec in asked)
        if all(spec.weight == 0 for spec in functions):
            raise UserError("the list of graders is empty, or all their weights are 0: name a reward, or leave it null")
    elif graders:
        functions = (graders[0],)
    else:
        functions = tuple(spec for spec in given if spec.weight) or (RewardSpec("accuracy"),)
    if threshold is None and len(functions) == 1:
        [only] = functions
        named = asked is not None and is_user_code(only.name)
        threshold = _full_mark(only) if named or _grades(only) else None
    # One of the way there, as `xml_tags` is, comes after those that all turns in format earn.
    forms = sorted(filter(is_form, given), key=lambda spec: traits_of(find_function(spec.name)).full_mark != 1.0)
    form = forms[0] if forms else None
    return GraderSpec(functions, threshold, form)


def _of_the_run(spec: RewardSpec, given: Sequence[RewardSpec]) -> RewardSpec:
    """The run's own reward where a name alone is asked for."""
    if spec != RewardSpec(spec.name):
        return spec
    logged = dict(zip(logged_names(given), given, strict=True))
    alike = (each for each in given if find_function(each.name) is find_function(spec.name))
    return logged[spec.name] if spec.name in logged else next(alike, spec)


def _grades(spec: RewardSpec) -> bool:
    return traits_of(find_function(spec.name)).grades


def _shaped(spec: RewardSpec) -> RewardSpec | None:
    """The grader whose scores a reward shapes, as `cosine_length` does, where that tells right from wrong."""
    parameter = traits_of(find_function(spec.name)).shapes
    shaped = spec.params.get(parameter, "accuracy") if parameter else None
    found = RewardSpec(shaped) if isinstance(shaped, str) and shaped in LIBRARY else None
    return found if found is not None and _grades(found) else None


def is_form(spec: RewardSpec) -> bool:
    """Whether a reward declares that it scores the form of a turn."""
    return traits_of(find_function(spec.name)).is_format


def _code_of(name: str) -> dict[str, str]:
    """A function of the library by the first of its names; one of the user's with its file, and what that holds."""
    if name in LIBRARY:
        return {"name": LIBRARY[name].__name__}
    find_function(name)  # which imports its module
    file = source_file(name)
    if file is None:
        return {"name": name}
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"name": name.rpartition(":")[2], "file": file.name, "sha256": content}


def _full_mark(spec: RewardSpec) -> float:
    return traits_of(find_function(spec.name)).full_mark if spec.full_mark is None else spec.full_mark


@dataclass(frozen=True)
class Grade:
    """What an answer is worth.

    Attributes:
        score: None where no reward has one for it.
        in_format: None where no reward of the run looks at the form.
        answer: what `accuracy` takes for the final answer; None where there is none, or nobody looks.
        rewards: the scores that `score` is the sum of, by name; empty where it is that of one reward.
    """

    score: float | None
    in_format: bool | None = None
    answer: str | None = None
    rewards: Mapping[str, float | None] = field(default_factory=dict)


class Grader:
    """Grades answers as a `GraderSpec` says.

    Attributes:
        spec: what it is made from.
        reads_answers: whether its grades hold the final answers.
    """

    def __init__(self, spec: GraderSpec, context: RewardContext) -> None:
        self.spec = spec
        self._parts = build_rewards(spec.functions, context)
        self._form = build_rewards([spec.form], context)[0] if spec.form is not None else None
        function = self._parts[0].function
        self.reads_answers = len(self._parts) == 1 and function is accuracy
        arguments = self._parts[0].arguments({})
        places = {name: arguments[name] for name in ("think_tags", "answer_from") if name in arguments}
        self._read_answer: Callable[[str], str | None] = partial(extracted_answer, **places)

    def check_parameters(self) -> None:
        """Raises UserError where a reward of the library cannot take the values of its parameters."""
        for part in self._parts:
            part.check_parameters()

    def grades(
        self, rows: Sequence[Mapping[str, Any]], turns: Sequence[str], completion_ids: Sequence[Sequence[int]]
    ) -> list[Grade]:
        """The grade of each turn.

        Args:
            rows: the problem that each turn answers, `prompt` and the columns of the data set.
            completion_ids: of each turn what was sampled.
        """
        found = []
        for start in range(0, len(turns), _BATCH):
            part = slice(start, start + _BATCH)
            found += self._batch(rows[part], turns[part], completion_ids[part])
        return found

    def _batch(
        self, rows: Sequence[Mapping[str, Any]], turns: Sequence[str], completion_ids: Sequence[Sequence[int]]
    ) -> list[Grade]:
        columns = trial_columns(rows, _as_messages(turns)) | {"completion_ids": [list(ids) for ids in completion_ids]}
        scores = [part(**columns) for part in self._parts]
        names = [part.name for part in self._parts]
        forms = [None] * len(turns) if self._form is None else self._in_format(self._form, columns)
        return [
            Grade(
                self._total(of_turn),
                in_format,
                self._read_answer(turn) if self.reads_answers else None,
                dict(zip(names, of_turn, strict=True)) if len(names) > 1 else {},
            )
            for turn, in_format, *of_turn in zip(turns, forms, *scores, strict=True)
        ]

    def _in_format(self, form: Reward, columns: dict[str, Any]) -> list[bool | None]:
        """Whether each answer has the full mark of a format reward; None for all where it lacks a column."""
        assert self.spec.form is not None
        if any(column not in columns for column in required_columns(self.spec.form)):
            return [None] * len(columns["completions"])
        return [None if score is None else score >= form.full_mark for score in form(**columns)]

    def _total(self, scores: Sequence[float | None]) -> float | None:
        """The score of the only reward where it tells right from wrong, else the weighted sum, as in training."""
        if self.spec.takes_one_as_it_is:
            return scores[0]
        there = [part.weight * score for part, score in zip(self._parts, scores, strict=True) if score is not None]
        return sum(there) if there else None


def _as_messages(turns: Sequence[str]) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": turn}] for turn in turns]
