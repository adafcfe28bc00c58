"""The problems of a run and of its stages, checked against its rewards before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import (
    DatasetSettings,
    RunSettings,
    StageSettings,
    problem_source,
    problem_split,
    prompt_style,
    stage_error_context,
)
from rlvr_vocab.data.answers import cell_text, gold_text
from rlvr_vocab.data.load import ProblemSets, load_problem_sets
from rlvr_vocab.data.problem_key import problem_key
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.files import PROBLEMS, SYSTEM_PROMPT_USED
from rlvr_vocab.record.results import GraderRecord
from rlvr_vocab.runs.data_report import TrainingSet, check_same_problems, data_report, fingerprint_of
from rlvr_vocab.runs.folder import Run
from rlvr_vocab.runs.prompts import require_a_batch
from rlvr_vocab.runs.rewards import dry_run_functions, dry_run_rewards, grader_of_run, needs_gold_answers
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.verify.verifier import COMPARED_AS_TEXT, check_golds

_ROWS_CHECKED, _SHOWN = 1_000, 3


@dataclass(frozen=True)
class RunProblems:
    """The problems of a run.

    Attributes:
        train: the run's own problems to train on; a warm-up takes these.
        held_out: problems that no stage trains on; None for none.
        by_stage: the problems of each stage, one set for a run in one piece.
        training_sets: of each stage, for `problems.json`.
    """

    train: Dataset
    held_out: Dataset | None
    by_stage: tuple[Dataset, ...]
    training_sets: tuple[TrainingSet, ...]

    def report(self, num_fitting: Sequence[int] = ()) -> dict[str, Any]:
        """For `problems.json`; `num_fitting`: how many prompts of each stage fit, once that is known."""
        held_out = [] if self.held_out is None else _pairs(self.held_out)
        return data_report(held_out, self.training_sets, num_fitting or [None] * len(self.training_sets))


def stages_of(settings: RunSettings) -> tuple[StageSettings, ...]:
    """The stages of a run; a run in one piece is one without a name. A budget of tokens is a goal."""
    return tuple(map(_with_budget, settings.stages or (StageSettings("", None, settings),)))


def _with_budget(stage: StageSettings) -> StageSettings:
    tokens = stage.run.training.max_tokens
    if tokens is None:
        return stage
    return replace(stage, until=UntilSettings("num_tokens", above=tokens - 1, window=1))


def load_run_problems(settings: RunSettings, console: Console) -> RunProblems:
    """Load what a run and its stages name, each problem set once.

    Raises:
        UserError: a set cannot be read or is too small, a reward cannot score its problems, or a run that is resumed
            began with others.
    """
    own = _load(settings, console)
    held_out = _measured_on(settings, own.eval, console)
    loaded = {settings.dataset: own}
    with_usable_golds: dict[DatasetSettings, Dataset] = {}
    by_stage: list[Dataset] = []
    training_sets: list[TrainingSet] = []
    for stage in stages_of(settings):
        with stage_error_context(stage.name):
            dataset = stage.run.dataset
            if dataset not in loaded:
                loaded[dataset] = _load(stage.run, console)
            train = loaded[dataset].train
            if dataset != settings.dataset:
                train = _never_held_out(train, own.reserved_keys, stage.name, console)
            fingerprint = fingerprint_of(_pairs(train))
            if needs_gold_answers(stage.run.rewards.functions):
                if dataset not in with_usable_golds:
                    with_usable_golds[dataset] = usable_problems(train, "to train on", console)
                train = with_usable_golds[dataset]
            require_a_batch(train, stage.run.training)
            dry_run_rewards(stage.run, train)
            by_stage.append(train)
            training_sets.append((stage.name, dataset.name, fingerprint))
    problems = RunProblems(own.train, held_out, tuple(by_stage), tuple(training_sets))
    check_same_problems(settings, problems.report())
    return problems


def _load(settings: RunSettings, console: Console) -> ProblemSets:
    dataset = settings.dataset
    sets = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, settings.seed))
    for line in sets.account:
        console.print(line, markup=False)
    return sets


def held_out_problems(settings: RunSettings, console: Console) -> Dataset | None:
    """The held-out problems of a run alone."""
    return _measured_on(settings, _load(settings, console).eval, console)


def _measured_on(settings: RunSettings, held_out: Dataset | None, console: Console) -> Dataset | None:
    """The held-out problems that the grader of the run can grade."""
    if held_out is None:
        return None
    functions = grader_of_run(settings).functions
    usable = usable_problems(held_out, "held out", console) if needs_gold_answers(functions) else held_out
    if not len(usable):
        raise UserError(
            f"no held-out problem has a gold answer that {functions[0].name} can compare with: hold out others, "
            "or set dataset.max_eval_samples=0"
        )
    dry_run_functions(settings, functions, usable, "the held-out problems have")
    return usable


def write_data_report(run: Run, problems: RunProblems, num_fitting: Sequence[int], grader: GraderRecord) -> None:
    """Write `problems.json`: fingerprints and numbers of problems, what grades them, and under which system prompt."""
    used = any(
        _asks_under(stage.run.dataset.system_prompt, rows)
        for stage, rows in zip(stages_of(run.settings), problems.by_stage, strict=True)
    )
    report = problems.report(num_fitting) | {"grader": grader, SYSTEM_PROMPT_USED: used}
    atomic_write(run.folder / PROBLEMS, json_text(report))


def _asks_under(system_prompt: str | None, rows: Dataset) -> bool:
    """Whether one of the first prompts has the system prompt of the configuration, or none, rather than its own."""
    prompts = rows.select(range(min(_ROWS_CHECKED, len(rows))))["prompt"]
    configured = {"role": "system", "content": system_prompt}
    return any(prompt[0]["role"] != "system" or prompt[0] == configured for prompt in prompts)


def _never_held_out(train: Dataset, reserved_keys: frozenset[str], stage: str, console: Console) -> Dataset:
    """Without the problems that the run holds out: a stage may take its own from the same set, cut otherwise."""
    kept = [index for index, text in enumerate(train["problem"]) if problem_key(text) not in reserved_keys]
    if len(kept) == len(train):
        return train
    left_out = len(train) - len(kept)
    console.print(
        f"stage {stage}: left out of training, as the run holds out the same problem: {left_out:,}", markup=False
    )
    return train.select(kept)


def _pairs(rows: Dataset) -> list[tuple[str, str | None]]:
    """Each problem and its solution as text; None without solutions (see `Problem.fingerprinted`)."""
    solutions = rows["solution"] if "solution" in rows.column_names else [None] * len(rows)
    return [(problem, cell_text(solution)) for problem, solution in zip(rows["problem"], solutions, strict=True)]


def usable_problems(rows: Dataset, which: str, console: Console) -> Dataset:
    """The problems whose gold answer can be compared with; all of a set without gold answers.

    Args:
        which: the purpose of the rows, as `held out` or `to train on`.
    """
    if "solution" not in rows.column_names:
        return rows
    golds = list(rows["solution"])
    with progress_bar(console, f"gold answers {which}", len(golds)) as display:
        findings = check_golds(list(map(gold_text, golds)), lambda done, total: display.update(done, total=total))
    shown = [(cell_text(gold) or "")[:40] for gold in golds]
    unusable, by_text_only, ambiguous = findings.unusable, findings.by_text_only, findings.ambiguous
    lines = {
        f"left out {pluralize(len(unusable), 'problem')} {which} whose gold answer nothing can be compared with": [
            f"{shown[index]!r}: {reason}" for index, reason in unusable.items()
        ],
        f"gold answers {which} that only an answer written alike can match, as algebra cannot evaluate them: "
        f"{len(by_text_only):,}": [f"{shown[index]!r}: {reason}" for index, reason in by_text_only.items()],
        f"{pluralize(len(ambiguous), 'gold answer')} {which} {COMPARED_AS_TEXT}": [
            repr(shown[index]) for index in ambiguous
        ],
    }
    for line, examples in lines.items():
        if examples:
            more = "; …" if len(examples) > _SHOWN else ""
            console.print(f"{line} ({'; '.join(examples[:_SHOWN])}{more})", markup=False)
    return rows.select([index for index in range(len(rows)) if index not in unusable]) if unusable else rows
