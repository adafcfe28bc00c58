"""The problems that a run will train on: how many there are, and the lengths of their prompts."""

from __future__ import annotations

import math
from importlib.util import find_spec

from rlvr_vocab.config.sections import RunSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.files import local_file
from rlvr_vocab.data.generators import ARITHMETIC, REASONING_GYM, GymProblems
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.rows import Messages, build_messages, prompt_of

# Training problems of the shipped sets, by their pages on the hub.
_SHIPPED = {
    "agentica-org/DeepScaleR-Preview-Dataset": 40_315,
    "openai/gsm8k": 7_473,
    "DigitalLearningGmbH/MATH-lighteval": 7_500,
}
_OF_A_TASK = 20  # problems of a reasoning-gym task that are made for their length
# Characters of English and mathematics for a token, and tokens around each message.
_CHARACTERS, _AROUND = 3, 6


def problems_ahead(run: RunSettings) -> tuple[int | None, tuple[int, ...]]:
    """The number of a run's training problems and the tokens of each prompt, estimated by its characters.

    The number is None where it is unknown or stages have several sets. There are no prompts of a set on the hub.

    Raises:
        UserError: the file cannot be read.
    """
    stages = {stage.dataset: stage for stage in [each.run for each in run.stages] or [run]}.values()
    found = [_problems_of_stage(stage) for stage in stages]
    prompts = tuple(length for _, lengths in found for length in lengths)
    return found[0][0] if len(found) == 1 else None, prompts


def _problems_of_stage(run: RunSettings) -> tuple[int | None, list[int]]:
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
    limit = run.training.max_prompt_length or math.inf
    lengths = (
        sum(len(message["content"]) for message in prompt) // _CHARACTERS + _AROUND * (len(prompt) + 1)
        for prompt in prompts
    )
    return count, [length for length in lengths if length <= limit]


def problems_by_configuration(run: RunSettings) -> int | None:
    """The number of training problems that follows from the configuration alone."""
    dataset = run.dataset
    known, held_out = dataset.num_problems, dataset.eval_fraction
    if known is None:
        known, held_out = _SHIPPED.get(dataset.name), held_out if dataset.eval_split is None else 0.0
    most = dataset.max_train_samples
    if known is None:
        return most
    found = round(known * (1 - held_out))
    return found if most is None else min(most, found)
