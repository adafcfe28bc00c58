"""What is known of a run's problems before it runs: how many there are, and how long their prompts are.

Problems that are made here or lie in a file are read; what lies on the hub is not, nor is a tokenizer that this machine
does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlvr_vocab.config.sections import RunSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.files import local_file
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.reasoning_gym.tasks import REASONING_GYM, GymProblems
from rlvr_vocab.data.reasoning_gym.workers import make_entries
from rlvr_vocab.data.rows import Messages, build_messages, prompt_of
from rlvr_vocab.data.source import ARITHMETIC
from rlvr_vocab.plan.architecture import folder_at_hand
from rlvr_vocab.vocab.chat_template import chat_texts, template_text

if TYPE_CHECKING:
    from transformers import TokenizersBackend

# Problems to train on of the shipped sets, as far as their pages tell.
_SHIPPED = {
    "agentica-org/DeepScaleR-Preview-Dataset": 40_315,
    "openai/gsm8k": 7_473,
    "DigitalLearningGmbH/MATH-lighteval": 7_500,
}
# Prompts whose tokens are counted: so many by chance, and of all others those with most characters.
_SAMPLE, _LONGEST = 1_000, 20
_OF_A_TASK = 20  # problems of reasoning-gym that are made to be looked at
# Where there is no tokenizer: characters of English and mathematics for a token, and tokens around each message.
_CHARACTERS, _AROUND = 3, 6


@dataclass(frozen=True)
class ProblemsAhead:
    """What a stage trains on.

    Attributes:
        count: how many problems; None where nobody says.
        prompts: tokens of each, or of a sample of them; none where the problems are not at hand.
    """

    count: int | None = None
    prompts: tuple[int, ...] = ()


def problems_ahead(run: RunSettings) -> ProblemsAhead:
    """What a run trains on; for one in stages, the prompts of all, and the count where all take the same set.

    Raises:
        UserError: a problem set that is at hand cannot be read, or the model's chat template refuses it.
    """
    stages = [stage.run for stage in run.stages] or [run]
    ahead = [_of_stage(stage) for stage in {stage.dataset: stage for stage in stages}.values()]
    prompts = tuple(length for each in ahead for length in each.prompts)
    return ProblemsAhead(ahead[0].count if len(ahead) == 1 else None, prompts)


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


def _of_stage(run: RunSettings) -> ProblemsAhead:
    dataset, style, source = run.dataset, prompt_style(run.dataset), problem_source(run.dataset)
    count = problems_by_configuration(run)
    if isinstance(source.generator, GymProblems):
        prompts = [build_messages(text, style) for text in _of_gym(source.generator)]
    elif source.name == ARITHMETIC or local_file(source.name) is not None:
        trained = read_problems(source, problem_split(dataset, run.seed)).trained
        count, prompts = len(trained), [prompt_of(problem, style) for problem in trained]
    else:
        prompts = []
    lengths = _lengths(run, _sample(prompts)) if prompts else []
    limit = run.training.max_prompt_length
    return ProblemsAhead(count, tuple(length for length in lengths if limit is None or length <= limit))


def _of_gym(problems: GymProblems) -> list[str]:
    """Some problems of each task; none where the package is not installed."""
    if find_spec(REASONING_GYM) is None:
        return []
    return [entry.question for task in problems.tasks for entry in make_entries(task.name, task.params, 0, _OF_A_TASK)]


def _sample(prompts: list[Messages]) -> list[Messages]:
    """The first, which stand in an order of chance, and the longest of the others."""
    others = sorted(prompts[_SAMPLE:], key=_characters, reverse=True)
    return [*prompts[:_SAMPLE], *others[:_LONGEST]]


def _characters(prompt: Messages) -> int:
    return sum(len(message["content"]) for message in prompt)


def _lengths(run: RunSettings, prompts: list[Messages]) -> list[int]:
    """Tokens of each prompt, estimated from its characters where there is no tokenizer to count with."""
    tokenizer, template = _tokenizer(run), template_text(run.model.chat_template)
    if tokenizer is None or (template is None and tokenizer.chat_template is None):
        return [_characters(prompt) // _CHARACTERS + _AROUND * (len(prompt) + 1) for prompt in prompts]
    texts = chat_texts(tokenizer, prompts, chat_template=template)
    # The library itself: its wrapper in Transformers takes thrice as long, and masks nobody asked for.
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [len(each) for each in encoded]


def _tokenizer(run: RunSettings) -> TokenizersBackend | None:
    model = run.model
    if model.tiny is not None:
        from rlvr_vocab.training.models.tiny import tiny_tokenizer, vocabulary_texts

        texts = vocabulary_texts(run.dataset.system_prompt, run.dataset.tasks or ())
        return tiny_tokenizer(texts, model.think_tags)
    folder = folder_at_hand(model.name)
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    from transformers import TokenizersBackend

    return TokenizersBackend.from_pretrained(str(folder))
