"""Texts of a chat template, in time; where an assistant's turn starts, and who opens the thinking."""

import pytest
from transformers import AutoTokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab import tokenizer as chat
from rlvr_vocab.vocab.expand import Expansion, plan_expansion
from rlvr_vocab.vocab.tokenizer import chat_ids, chat_texts, find_turn_ids, prompt_is_thinking, turn_start_text

TAGS = ("<think>", "</think>")
USER = [{"role": "user", "content": "What is 3 + 4? I <think> so."}]
ASKED = [{"role": "user", "content": "3 + 4?"}]
SYSTEM = [{"role": "system", "content": "Add."}, *ASKED]
MARKED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
MESSAGES = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
OPENS = MESSAGES + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}"


@pytest.fixture
def tokenizer(make_shape):
    return AutoTokenizer.from_pretrained(make_shape("gpt2").folder)


@pytest.mark.parametrize(
    ("template", "start"),
    [
        (None, ""),
        (OPENS, "[assistant]"),
        (MESSAGES + "{% if add_generation_prompt %}[assistant]<think>\n\n</think>\n\n{% endif %}", "[assistant]"),
        (MESSAGES, "[assistant]"),
    ],
)
def test_the_text_before_an_assistants_words_stops_at_a_tag(template, start, tokenizer):
    tokenizer.chat_template = template
    assert turn_start_text(tokenizer, TAGS) == start
    assert tokenizer.decode(find_turn_ids(tokenizer, TAGS)) == start


def plan(make_shape, name, who, template=None):
    base = make_shape(name)
    return plan_expansion(str(base.folder), Expansion(open_thinking=who, chat_template=template or base.chat_template))


@pytest.mark.parametrize(
    ("name", "who", "template", "thinking"),
    [
        ("qwen3", "auto", None, False),  # the base knows the tag and opens it itself
        ("qwen3", "prefill", None, True),
        ("llama", "auto", None, True),  # it does not
        ("llama", "model", None, False),
        ("llama", "prefill", OPENS, True),  # not twice
        ("llama", "model", OPENS, True),
    ],
)
def test_the_template_opens_the_thinking_where_nobody_else_will(name, who, template, thinking, make_shape):
    made = plan(make_shape, name, who, template)
    assert prompt_is_thinking(made.tokenizer, made.layout) == thinking
    rendered = made.tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    assert rendered.endswith("<think>\n") == thinking and rendered.count("<think>") == 1 + thinking
    without_prompt = made.tokenizer.apply_chat_template(USER, tokenize=False)
    assert without_prompt.count("<think>") == 1


def test_the_stored_turn_ids_stand_in_every_rendered_prompt(make_shape):
    for name in ("qwen3", "qwen2", "llama", "gemma3", "gpt2"):
        made = plan(make_shape, name, "auto")
        ids = made.tokenizer.apply_chat_template(USER, add_generation_prompt=True, return_dict=False)
        turn = list(made.layout.turn_ids)
        assert turn and any(ids[i : i + len(turn)] == turn for i in range(len(ids)))
    without = plan_expansion(str(make_shape("gpt2").folder), Expansion())
    assert without.tokenizer.chat_template is None and without.layout.turn_ids == ()


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
        ("{{ cls_token + '' }}{{ messages }}", "refuses row 7, .*'cls_token' is undefined: the tokenizer has none; "),
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
    with pytest.raises(UserError, match=r"did not finish within 0\.2 seconds for the prompt '3 \+ 4\?'"):
        chat_texts(tokenizer, [ASKED])
