"""The problems of a run and of its stages, checked against its rewards before a model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import (
    DatasetSettings,
    RewardSettings,
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
from rlvr_vocab.runs.problem_account import fingerprint_of, problem_account
from rlvr_vocab.runs.prompts import require_a_batch
from rlvr_vocab.runs.rewards import dry_run_grader, dry_run_rewards, grader_of_run, needs_gold_answers
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.text import pluralize
from rlvr_vocab.training.settings import UntilSettings
from rlvr_vocab.verify.golds import COMPARED_AS_TEXT, GoldReport, check_golds

_LOOKED_AT = 1_000


@dataclass(frozen=True)
class RunProblems:
    """What a run trains on, stage by stage, and what it is measured on.

    Attributes:
        train: the run's own problems to train on; a warm-up takes these.
        held_out: problems that no stage trains on; None for none.
        by_stage: the problems of each stage, one set for a run in one piece.
        trained_on: name, problem set and fingerprint of what each stage trains on.
    """

    train: Dataset
    held_out: Dataset | None
    by_stage: tuple[Dataset, ...]
    trained_on: tuple[tuple[str, str, str], ...]

    def account(self, fitting: Sequence[int] = ()) -> dict[str, Any]:
        """For `problems.json`; `fitting`: how many prompts of each stage fit, once that is known."""
        return problem_account([] if self.held_out is None else _pairs(self.held_out), self.trained_on, fitting)


def stages_of(settings: RunSettings) -> tuple[StageSettings, ...]:
    """The stages of a run; the one without a name that a run in one piece is. A budget of tokens is a goal."""
    return tuple(map(_with_budget, settings.stages or (StageSettings("", None, settings),)))


def _with_budget(stage: StageSettings) -> StageSettings:
    tokens = stage.run.training.max_tokens
    if tokens is None:
        return stage
    return replace(stage, until=UntilSettings("num_tokens", above=tokens - 1, window=1))


def load_run_problems(settings: RunSettings, console: Console) -> RunProblems:
    """Load what a run and its stages name, each problem set once.

    Raises:
        UserError: a set cannot be read or is too small, or a reward cannot score its problems.
    """
    own = _load(settings, console)
    held_out = _measured_on(settings, own.eval, console)
    loaded = {settings.dataset: own}
    with_usable_golds: dict[DatasetSettings, Dataset] = {}
    by_stage, trained_on = [], []
    for stage in stages_of(settings):
        with stage_error_context(stage.name):
            dataset = stage.run.dataset
            if dataset not in loaded:
                loaded[dataset] = _load(stage.run, console)
            train = loaded[dataset].train
            if dataset != settings.dataset:
                train = _never_held_out(train, own.reserved_keys, stage.name, console)
            fingerprint = fingerprint_of(_pairs(train))
            if needs_gold_answers(stage.run.rewards):
                if dataset not in with_usable_golds:
                    with_usable_golds[dataset] = usable_problems(train, "to train on", console)
                train = with_usable_golds[dataset]
            require_a_batch(train, stage.run.training)
            dry_run_rewards(stage.run, train)
            by_stage.append(train)
            trained_on.append((stage.name, loaded[dataset].report.source, fingerprint))
    return RunProblems(own.train, held_out, tuple(by_stage), tuple(trained_on))


def _load(settings: RunSettings, console: Console) -> ProblemSets:
    dataset = settings.dataset
    sets = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, settings.seed))
    for line in sets.report.lines():
        console.print(line, markup=False)
    return sets


def held_out_problems(settings: RunSettings, console: Console) -> Dataset | None:
    """What a run was measured on, without a look at what it trained on."""
    return _measured_on(settings, _load(settings, console).eval, console)


def _measured_on(settings: RunSettings, held_out: Dataset | None, console: Console) -> Dataset | None:
    """The held-out problems that the grader of the run can grade."""
    if held_out is None:
        return None
    grader = RewardSettings(grader_of_run(settings).functions)
    usable = usable_problems(held_out, "held out", console) if needs_gold_answers(grader) else held_out
    if not len(usable):
        raise UserError(
            f"no held-out problem has a gold answer that {grader.functions[0].name} can compare with: hold out others, "
            "or set dataset.max_eval_samples=0"
        )
    dry_run_grader(settings, grader, usable)
    return usable


def uses_system_prompt(settings: RunSettings, problems: RunProblems) -> bool:
    """Whether a problem among the first of each stage is asked under `dataset.system_prompt`, or under none."""
    for stage, rows in zip(stages_of(settings), problems.by_stage, strict=True):
        own = {"role": "system", "content": stage.run.dataset.system_prompt}
        prompts = rows.select(range(min(_LOOKED_AT, len(rows))))["prompt"]
        if any(prompt[0]["role"] != "system" or prompt[0] == own for prompt in prompts):
            return True
    return False


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


_SHOWN = 3


def usable_problems(rows: Dataset, which: str, console: Console) -> Dataset:
    """The problems whose gold answer can be compared with; all of a set without gold answers.

    Args:
        which: what the rows are for, in words.
    """
    if "solution" not in rows.column_names:
        return rows
    golds = list(rows["solution"])
    texts = [gold_text(gold) for gold in golds]
    with progress_bar(console, f"gold answers {which}", len(golds)) as display:
        findings = check_golds(texts, lambda done, total: display.update(done, total=total))
    for line in finding_lines([cell_text(gold) or "" for gold in golds], findings, which):
        console.print(line, markup=False)
    if not findings.unusable:
        return rows
    return rows.select([index for index in range(len(rows)) if index not in findings.unusable])


def finding_lines(golds: list[str], findings: GoldReport, which: str) -> list[str]:
    """What was found, with the first of each kind."""
    lines = []
    if unusable := findings.unusable:
        left_out = pluralize(len(unusable), "problem")
        lines.append(f"left out {left_out} {which} whose gold answer nothing can be compared with: "
                     + _examples(golds, unusable))  # fmt: skip
    if by_text_only := findings.by_text_only:
        lines.append(f"gold answers {which} that only an answer written alike can match, as algebra cannot evaluate "
                     f"them: {len(by_text_only):,} ({_examples(golds, by_text_only)})")  # fmt: skip
    if ambiguous := findings.ambiguous:
        shown = ", ".join(repr(golds[index][:40]) for index in list(ambiguous)[:_SHOWN])
        lines.append(f"{pluralize(len(ambiguous), 'gold answer')} {which} {COMPARED_AS_TEXT} "
                     f"({shown}{', …' * (len(ambiguous) > _SHOWN)})")  # fmt: skip
    return lines


def _examples(golds: list[str], reasons: Mapping[int, str]) -> str:
    shown = [f"{golds[index][:40]!r}: {reason}" for index, reason in list(reasons.items())[:_SHOWN]]
    return "; ".join(shown) + ("; …" if len(reasons) > _SHOWN else "")
