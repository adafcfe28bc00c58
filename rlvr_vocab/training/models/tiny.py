"""The embedded model: a Qwen3 of under a million parameters with its own tokenizer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import TokenizersBackend

from rlvr_vocab.data.generators import ArithmeticTask, GymTask
from rlvr_vocab.tools.calculator import calculator
from rlvr_vocab.training.settings import TinyShape

CONTEXT = 8192  # tokens; with rotary positions a longer one costs nothing, and competition problems fit
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TOOL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# Calls and results stand as Qwen3 writes them, a tool as a line; `generation` marks the tokens that a warm-up trains.
CHAT_TEMPLATE = r"""
{%- set shown %}
    {%- if tools %}{{ '<tools>' }}{% endif %}
    {%- for tool in tools or [] %}
        {{- '\n' + tool.function.name + '(' + tool.function.parameters.properties | join(', ') + '): ' }}
        {{- tool.function.description }}
    {%- endfor %}
    {%- if tools %}{{ '\n</tools>' }}{% endif %}
{%- endset %}
{%- if shown and messages[0].role != 'system' %}{{ '<|im_start|>system\n' + shown + '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' }}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
            {{- message.content }}
            {%- for call in message.tool_calls or [] %}
                {{- '\n' if message.content or not loop.first }}
                {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
                {%- set given = call.function.arguments %}
                {{- given if given is string else given | tojson }}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content }}
        {{- '\n' + shown if shown and loop.first and message.role == 'system' }}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def vocabulary_texts(
    system_prompt: str | None = None, tasks: Sequence[GymTask] | None = None, generator: ArithmeticTask | None = None
) -> list[str]:
    """The texts that the tokenizer gets words for, each often enough: system prompt, wording of tasks, tool calls."""
    wording: list[str] = []
    if tasks:
        from rlvr_vocab.data.reasoning_gym import wording_of  # with its worker processes

        wording = wording_of(tasks)
    if generator is not None and generator.right_calls is not None:
        tool = f"<tools>\ncalculator(expression): {inspect.getdoc(calculator)}"
        call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "1*2"}}\n</tool_call>'
        wording = [tool, call, "<tool_response></tool_response>"]
    return [system_prompt or "", "\\boxed{}", *wording] * 10


def tiny_tokenizer(texts: Iterable[str], think_tags: tuple[str, str]) -> TokenizersBackend:
    """A tokenizer of bytes and of the words in `texts`, with the think tags, and those of tools if `texts` has them."""
    texts = list(texts)
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
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in _TOOL_TAGS if any(tag in text for text in texts)])
    return TokenizersBackend(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_TEMPLATE
    )


def write_tiny_model(
    folder: Path, shape: TinyShape, texts: Iterable[str], think_tags: tuple[str, str], seed: int
) -> None:
    """Write an untrained model with the think tags and a vocabulary of bytes and of the words in `texts`."""
    import torch  # not above: a plan counts the tokens of prompts without it
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tiny_tokenizer(texts, think_tags)
    eos, pad = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>"))
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
