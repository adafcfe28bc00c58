"""The tokenizer of the embedded model, made without torch: a plan counts the tokens of prompts by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import TokenizersBackend

from rlvr_vocab.data.reasoning_gym.problems import wording_of
from rlvr_vocab.data.reasoning_gym.tasks import GymTask

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary_texts(system_prompt: str | None, tasks: Sequence[GymTask]) -> list[str]:
    """What the tokenizer gets words for: the system prompt and the wording of tasks, each often enough for that."""
    return [system_prompt or "", "\\boxed{}", *wording_of(tasks)] * 10


def tiny_tokenizer(texts: Iterable[str], think_tags: tuple[str, str]) -> TokenizersBackend:
    """One of bytes and of the words in `texts`, that knows the think tags."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(["system\n", "user\n", "assistant\n", *texts], trainer)
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in _SPECIAL])
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in think_tags])
    return TokenizersBackend(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHAT_TEMPLATE,
    )
