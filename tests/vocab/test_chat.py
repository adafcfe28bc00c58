"""Where an assistant's turn starts, who opens the thinking, and what a reader is shown of the turn."""

import pytest
from transformers import AutoTokenizer

from rlvr_vocab.vocab.chat import assistant_turn, find_turn_ids, prompt_is_thinking, turn_start_text
from rlvr_vocab.vocab.expand import Expansion, plan_expansion
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TAGS = ("<think>", "</think>")
USER = [{"role": "user", "content": "What is 3 + 4? I <think> so."}]
MESSAGES = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "start"),
    [
        (None, ""),
        (MESSAGES + "{% if add_generation_prompt %}[assistant]{% endif %}", "[assistant]"),
        (MESSAGES + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}", "[assistant]"),
        (MESSAGES + "{% if add_generation_prompt %}[assistant]<think>\n\n</think>\n\n{% endif %}", "[assistant]"),
        (MESSAGES, "[assistant]"),
    ],
)
def test_the_text_before_an_assistants_words_stops_at_a_tag(template, start, make_shape):
    tokenizer = AutoTokenizer.from_pretrained(make_shape("gpt2").folder)
    tokenizer.chat_template = template
    assert turn_start_text(tokenizer, TAGS) == start
    assert tokenizer.decode(find_turn_ids(tokenizer, TAGS)) == start


def plan(make_shape, name, who, template=None):
    base = make_shape(name)
    return plan_expansion(str(base.folder), Expansion(open_thinking=who, chat_template=template or base.chat_template))


@pytest.mark.parametrize(
    ("name", "who", "thinking"),
    [
        ("qwen3", "auto", False),  # the base knows the tag and opens it itself
        ("qwen3", "prefill", True),
        ("llama", "auto", True),  # it does not
        ("llama", "model", False),
        ("gpt2", "auto", True),
        ("gpt2", "model", False),
    ],
)
def test_the_template_opens_the_thinking_where_nobody_else_will(name, who, thinking, make_shape):
    made = plan(make_shape, name, who)
    assert prompt_is_thinking(made.tokenizer, made.layout) == thinking
    rendered = made.tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert rendered.endswith("<think>\n") == thinking
    without_prompt = made.tokenizer.apply_chat_template(USER, tokenize=False)
    assert without_prompt.count("<think>") == 1


@pytest.mark.parametrize("who", ["auto", "prefill", "model"])
def test_a_tag_that_the_template_leaves_open_is_not_opened_twice(who, make_shape):
    template = MESSAGES + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}"
    made = plan(make_shape, "llama", who, template)
    rendered = made.tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered.count("<think>") == 1


def test_a_base_without_a_template_keeps_none_and_counts_from_the_start_of_the_sequence(make_shape):
    made = plan_expansion(str(make_shape("gpt2").folder), Expansion())
    assert made.tokenizer.chat_template is None
    assert made.layout.turn_ids == ()


def test_the_stored_turn_ids_stand_in_every_rendered_prompt(make_shape):
    for name in ("qwen3", "qwen2", "llama", "gemma3", "gpt2"):
        made = plan(make_shape, name, "auto")
        ids = made.tokenizer.apply_chat_template(USER, add_generation_prompt=True, return_dict=False)
        turn = list(made.layout.turn_ids)
        assert turn and any(ids[i : i + len(turn)] == turn for i in range(len(ids)))


def test_a_turn_is_shown_with_what_the_template_prefilled(expand_shape):
    folder = expand_shape("llama", size=None)
    tokenizer, layout = load_tokenizer(folder), VocabLayout.load(folder)
    prompt = tokenizer.apply_chat_template(USER, add_generation_prompt=True, return_dict=False)
    sampled = tokenizer.encode("3 + 4</think>7<|im_end|>", add_special_tokens=False)
    sampled[0] += layout.standard_size
    assert assistant_turn(tokenizer, layout, prompt, sampled) == "<think>\n3 + 4</think>7"
