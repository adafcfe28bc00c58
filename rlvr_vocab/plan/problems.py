"""The problems that a run will train on: how many there are, and the lengths of their prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from rlvr_vocab.config.sections import RunSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.files import local_file
from rlvr_vocab.data.generators import ARITHMETIC, REASONING_GYM, GymProblems
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.rows import Messages, build_messages, prompt_of

# Problems to train on of the shipped sets, as far as their pages tell.
_SHIPPED = {
    "agentica-org/DeepScaleR-Preview-Dataset": 40_315,
    "openai/gsm8k": 7_473,
    "DigitalLearningGmbH/MATH-lighteval": 7_500,
}
_OF_A_TASK = 20  # problems of a reasoning-gym task that are made for their length
# Characters of English and mathematics for a token, and tokens around each message.
_CHARACTERS, _AROUND = 3, 6


@dataclass(frozen=True)
class ProblemsAhead:
    """Problems that a run trains on.

    Attributes:
        count: None where unknown.
        prompts: tokens of each, by its characters; none where the problems are not at hand.
    """

    count: int | None = None
    prompts: tuple[int, ...] = ()


def problems_ahead(run: RunSettings) -> ProblemsAhead:
    """The problems of a run that are made here or lie in a file; of a set on the hub the size, where it is known.

    For a run in stages: the prompts of all, and the count where all take the same set.

    Raises:
        UserError: the file cannot be read.
    """
    stages = [stage.run for stage in run.stages] or [run]
    ahead = [_of_stage(stage) for stage in {stage.dataset: stage for stage in stages}.values()]
    prompts = tuple(length for each in ahead for length in each.prompts)
    return ProblemsAhead(ahead[0].count if len(ahead) == 1 else None, prompts)


def _of_stage(run: RunSettings) -> ProblemsAhead:
    source, style = problem_source(run.dataset), prompt_style(run.dataset)
    count, prompts = problems_by_configuration(run), list[Messages]()
    if isinstance(source.generator, GymProblems):
        if find_spec(REASONING_GYM) is not None:
            from rlvr_vocab.data.reasoning_gym import make_entries  # with its worker processes

            tasks = source.generator.tasks
            entries = [entry for task in tasks for entry in make_entries(task.name, task.params, 0, _OF_A_TASK)]
            prompts = [build_messages(entry.question, style) for entry in entries]
    elif source.name == ARITHMETIC or local_file(source.name) is not None:
        trained = read_problems(source, problem_split(run.dataset, run.seed)).trained
        count, prompts = len(trained), [prompt_of(problem, style) for problem in trained]
    lengths = [
        sum(len(message["content"]) for message in prompt) // _CHARACTERS + _AROUND * (len(prompt) + 1)
        for prompt in prompts
    ]
    limit = run.training.max_prompt_length or math.inf
    return ProblemsAhead(count, tuple(length for length in lengths if length <= limit))


def longest_met(prompts: Sequence[int], draws: float) -> int:
    """Tokens of the longest prompt that so many draws probably meet; of all of them where they are many."""
    return sorted(prompts)[min(len(prompts) - 1, int(len(prompts) * (1 - 1 / (draws + 1))))]


def problems_by_configuration(run: RunSettings) -> int | None:
    """Problems to train on, as far as the configuration alone tells."""
    dataset = run.dataset
    known, held_out = dataset.num_problems, dataset.eval_fraction
    if known is None:
        known, held_out = _SHIPPED.get(dataset.name), held_out if dataset.eval_split is None else 0.0
    found = None if known is None else round(known * (1 - held_out))
    most = dataset.max_train_samples
    return found if most is None else min(most, found or most)
