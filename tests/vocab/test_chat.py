"""Texts of a chat template, in time; where an assistant's turn starts, and who opens the thinking."""

import pytest
from transformers import AutoTokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab import chat
from rlvr_vocab.vocab.chat import (
    assistant_turn,
    begins_answer,
    chat_ids,
    chat_texts,
    find_turn_ids,
    prompt_is_thinking,
    turn_start_text,
)
from rlvr_vocab.vocab.expand import Expansion, plan_expansion
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

TAGS = ("<think>", "</think>")
USER = [{"role": "user", "content": "What is 3 + 4? I <think> so."}]
ASKED = [{"role": "user", "content": "3 + 4?"}]
SYSTEM = [{"role": "system", "content": "Add."}, *ASKED]
MARKED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
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


@pytest.fixture
def tokenizer(make_shape):
    return AutoTokenizer.from_pretrained(make_shape("gpt2").folder)


def test_ids_and_texts_are_those_of_transformers(tokenizer):
    tokenizer.chat_template = MARKED + "{% if add_generation_prompt %}<assistant>{% endif %}"
    conversations = [ASKED, SYSTEM] * 300  # more than are rendered at once
    assert chat_ids(tokenizer, conversations) == tokenizer.apply_chat_template(
        conversations, add_generation_prompt=True, return_dict=False
    )
    assert chat_texts(tokenizer, [ASKED]) == ["<user>3 + 4?</><assistant>"]
    assert chat_texts(tokenizer, [ASKED], add_generation_prompt=False) == ["<user>3 + 4?</>"]
    assert chat_ids(tokenizer, []) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m.content ", "does not parse: line 1: "),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}.",
         "refuses row 9, '3 \\+ 4\\?': no system; .*dataset.system_prompt=null"),
        ("{# nothing #}", "refuses row 7, .*makes no text"),
        ("{{ messages[0].content * 2000000 }}", "refuses row 7, .*12,000,000 characters"),
        ("{{ 1 // (messages | length - 2) }}", "refuses row 9, .*zero"),
        ("{{ messages[0].content.nothing.more }}", "refuses row 7, .*'str object' has no attribute 'nothing'"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "refuses row 7, .*recursion"),
    ],
)  # fmt: skip
def test_a_template_that_fails_is_one_line_with_the_row_and_its_own_words(tokenizer, template, message):
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=f"^the chat template {message}") as caught:
        chat_texts(tokenizer, [ASKED, ASKED, SYSTEM], [7, 8, 9])
    assert "\n" not in str(caught.value)


def test_a_template_without_an_end_is_given_up(tokenizer, monkeypatch):
    monkeypatch.setattr(chat, "SECONDS", 0.2)
    tokenizer.chat_template = "{% for i in range(6000) %}{% for j in range(6000) %}{% endfor %}{% endfor %}"
    with pytest.raises(UserError, match=r"did not come to an end in 0\.2 seconds for the prompt '3 \+ 4\?'"):
        chat_texts(tokenizer, [ASKED])


@pytest.mark.parametrize(
    ("template", "begins"),
    [
        (MARKED + "{% if add_generation_prompt %}<assistant>{% endif %}", True),
        (MARKED + "{% if add_generation_prompt %}<assistant><think></think>{% endif %}", True),
        # Mistral: the user's turn ends in what begins the answer
        ("{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}</s>"
         "{% endif %}{% endfor %}", True),
        # gpt-oss: the answer has a channel, which the model chooses
        ("{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
         "<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
         True),
        # without being asked
        ("{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }}\nA:{% else %} {{ m.content }}\n{% endif %}"
         "{% endfor %}", True),
        (MARKED, False),
        ("{{ messages[-1].content }}", False),
    ],
)  # fmt: skip
def test_a_template_without_a_turn_for_the_answer_is_told(tokenizer, template, begins):
    tokenizer.chat_template = template
    assert begins_answer(tokenizer, TAGS) is begins
