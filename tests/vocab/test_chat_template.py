"""A chat template that does not do its work is one line, in time."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab import chat
from rlvr_vocab.vocab.chat import begins_answer, chat_ids, chat_texts

TAGS = ("<think>", "</think>")
USER = [{"role": "user", "content": "3 + 4?"}]
SYSTEM = [{"role": "system", "content": "Add."}, *USER]
MESSAGES = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"


@pytest.fixture
def tokenizer(make_shape: Any) -> Any:
    return AutoTokenizer.from_pretrained(make_shape("gpt2").folder)


def test_ids_and_texts_are_those_of_transformers(tokenizer: Any) -> None:
    tokenizer.chat_template = MESSAGES + "{% if add_generation_prompt %}<assistant>{% endif %}"
    conversations = [USER, SYSTEM] * 300  # more than are rendered at once
    assert chat_ids(tokenizer, conversations) == tokenizer.apply_chat_template(
        conversations, add_generation_prompt=True, return_dict=False
    )
    assert chat_texts(tokenizer, [USER]) == ["<user>3 + 4?</><assistant>"]
    assert chat_texts(tokenizer, [USER], add_generation_prompt=False) == ["<user>3 + 4?</>"]
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
        ("{{ messages[1].content + 1 }}", "refuses row 7, .*"),
        ("{{ messages[0].content.nothing.more }}", "refuses row 7, .*'str object' has no attribute 'nothing'"),
        ("{{ messages[0].content.encode('latin') }}{{ range(10 ** 9) }}", "refuses row 7, .*Range too big"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "refuses row 7, .*recursion"),
    ],
)  # fmt: skip
def test_a_template_that_fails_is_one_line_with_the_row_and_its_own_words(
    tokenizer: Any, template: str, message: str
) -> None:
    tokenizer.chat_template = template
    with pytest.raises(UserError, match=f"^the chat template {message}") as caught:
        chat_texts(tokenizer, [USER, USER, SYSTEM], [7, 8, 9])
    assert "\n" not in str(caught.value)


def test_a_template_without_an_end_is_given_up(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "SECONDS", 0.2)
    tokenizer.chat_template = "{% for i in range(6000) %}{% for j in range(6000) %}{% endfor %}{% endfor %}"
    with pytest.raises(UserError, match=r"did not come to an end in 0\.2 seconds for the prompt '3 \+ 4\?'"):
        chat_texts(tokenizer, [USER])


@pytest.mark.parametrize(
    ("template", "begins"),
    [
        (MESSAGES + "{% if add_generation_prompt %}<assistant>{% endif %}", True),
        (MESSAGES + "{% if add_generation_prompt %}<assistant><think>\n{% endif %}", True),
        (MESSAGES + "{% if add_generation_prompt %}<assistant><think></think>{% endif %}", True),
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
        (MESSAGES, False),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", False),
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", False),
        ("{{ messages[-1].content }}", False),
    ],
)  # fmt: skip
def test_a_template_without_a_turn_for_the_answer_is_told(tokenizer: Any, template: str, begins: bool) -> None:
    tokenizer.chat_template = template
    assert begins_answer(tokenizer, TAGS) is begins
