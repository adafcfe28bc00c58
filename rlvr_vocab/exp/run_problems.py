"""The problems of a run and of its stages, checked against its rewards before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.data import ProblemSets, held_out_keys, load_problem_sets
from rlvr_vocab.exp.data_wiring import problem_source, problem_split, prompt_style
from rlvr_vocab.exp.gold_answers import usable_problems
from rlvr_vocab.exp.problem_account import StageAccount
from rlvr_vocab.exp.prompt_lengths import require_a_batch
from rlvr_vocab.exp.reward_trial import try_rewards
from rlvr_vocab.exp.reward_wiring import needs_gold_answers
from rlvr_vocab.exp.stage_words import naming_the_stage
from rlvr_vocab.exp.typed_sections import DatasetSettings, RunSettings, StageSettings


@dataclass(frozen=True)
class RunProblems:
    """What a run trains on, stage by stage, and what it is measured on.

    Attributes:
        train: the run's own problems to train on; a warm-up takes these.
        held_out: problems that no stage trains on; None for none.
        by_stage: the problems of each stage, one set for a run in one piece.
        accounts: what became of the rows that each stage names.
        unusable_held_out: held-out problems whose gold answer nothing can be compared with: they are not measured on.
    """

    train: Dataset
    held_out: Dataset | None
    by_stage: tuple[Dataset, ...]
    accounts: tuple[StageAccount, ...]
    unusable_held_out: int


def stages_of(settings: RunSettings) -> tuple[StageSettings, ...]:
    """The stages of a run; the one without a name that a run in one piece is."""
    return settings.stages or (StageSettings("", None, settings),)


def load_run_problems(settings: RunSettings, console: Console) -> RunProblems:
    """Load what a run and its stages name, each problem set once.

    Raises:
        UserError: a set cannot be read or is too small, or a reward cannot score its problems.
    """
    own = _load(settings, console)
    loaded = {settings.dataset: own}
    with_usable_golds: dict[DatasetSettings, Dataset] = {}
    by_stage, accounts = [], []
    for stage in stages_of(settings):
        with naming_the_stage(stage.name):
            dataset = stage.run.dataset
            if dataset not in loaded:
                loaded[dataset] = _load(stage.run, console)
            train = divided = loaded[dataset].train
            if dataset != settings.dataset:
                train = _never_held_out(train, settings)
            allowed = train
            if needs_gold_answers(stage.run.rewards):
                if dataset not in with_usable_golds:
                    with_usable_golds[dataset] = usable_problems(train, "to train on", console)
                train = with_usable_golds[dataset]
            require_a_batch(train, stage.run.training)
            try_rewards(stage.run, train)
            by_stage.append(train)
            held_out, unusable = len(divided) - len(allowed), len(allowed) - len(train)
            accounts.append(StageAccount(loaded[dataset].report, held_out, unusable))
    measured_on = 0 if own.eval is None else len(own.eval)
    return RunProblems(own.train, own.eval, tuple(by_stage), tuple(accounts), own.report.eval_rows - measured_on)


def _load(settings: RunSettings, console: Console) -> ProblemSets:
    dataset = settings.dataset
    sets = load_problem_sets(problem_source(dataset), prompt_style(dataset), problem_split(dataset, settings.seed))
    for line in sets.report.lines():
        console.print(line, markup=False)
    return sets if sets.eval is None else replace(sets, eval=usable_problems(sets.eval, "held out", console))


def _never_held_out(train: Dataset, settings: RunSettings) -> Dataset:
    """Without the problems that the run holds out: a stage may take its own from the same set, cut otherwise."""
    held_out = held_out_keys(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
    keys = (" ".join(prompt[-1]["content"].split()) for prompt in train["prompt"])
    kept = [index for index, key in enumerate(keys) if key not in held_out]
    return train if len(kept) == len(train) else train.select(kept)
