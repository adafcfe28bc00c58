"""The problems of a run and of its stages, checked against its rewards before a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from datasets import Dataset
from rich.console import Console

from rlvr_vocab.data import ProblemSets, held_out_keys, load_problem_sets
from rlvr_vocab.exp.data_wiring import problem_source, problem_split, prompt_style
from rlvr_vocab.exp.gold_answers import usable_problems
from rlvr_vocab.exp.prompt_lengths import require_a_batch
from rlvr_vocab.exp.reward_trial import try_rewards
from rlvr_vocab.exp.reward_wiring import needs_gold_answers
from rlvr_vocab.exp.stage_words import naming_the_stage
from rlvr_vocab.exp.typed_sections import RunSettings, StageSettings


@dataclass(frozen=True)
class RunProblems:
    """What a run trains on, stage by stage, and what it is measured on.

    Attributes:
        train: the run's own problems to train on; a warm-up takes these.
        held_out: problems that no stage trains on; None for none.
        by_stage: the problems of each stage, one set for a run in one piece.
    """

    train: Dataset
    held_out: Dataset | None
    by_stage: tuple[Dataset, ...]


def stages_of(settings: RunSettings) -> tuple[StageSettings, ...]:
    """The stages of a run; the one without a name that a run in one piece is."""
    return settings.stages or (StageSettings("", None, settings),)


def load_run_problems(settings: RunSettings, console: Console) -> RunProblems:
    """Load what a run and its stages name, each problem set once.

    Raises:
        UserError: a set cannot be read or is too small, or a reward cannot score its problems.
    """
    own = _load(settings, console)
    loaded, usable = {settings.dataset: own}, {}
    by_stage = []
    for stage in stages_of(settings):
        with naming_the_stage(stage.name):
            dataset = stage.run.dataset
            if dataset not in loaded:
                loaded[dataset] = _load(stage.run, console)
            train = loaded[dataset].train
            if dataset != settings.dataset:
                train = _never_held_out(train, settings)
            if needs_gold_answers(stage.run.rewards):
                if dataset not in usable:
                    usable[dataset] = usable_problems(train, "to train on", console)
                train = usable[dataset]
            require_a_batch(train, stage.run.training)
            try_rewards(stage.run, train)
            by_stage.append(train)
    return RunProblems(own.train, own.eval, tuple(by_stage))


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
