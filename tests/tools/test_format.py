"""What a template shows of tools, and that a tool's words neither open nor close a region, nor begin a turn."""

import random

import pytest
import trl.chat_template_utils as trl_templates

from rlvr_vocab.errors import UserError
from rlvr_vocab.tools.format import ToolFormat, without_prefill
from rlvr_vocab.training.models.tiny import tiny_tokenizer
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import regions_after
from rlvr_vocab.vocab.tokenizer import find_turn_ids, open_thinking_in_template

TAGS = ("<think>", "</think>")
QWEN = trl_templates.qwen3_chat_template
# A header that is no control token, and one of a single character.
PLAIN = """{%- for m in messages %}{{- '\n@' + m.role + ':' }}{%- if m.tool_calls %}{%- for c in m.tool_calls %}
{{- '<tool_call>\n' + {'name': c.function.name, 'arguments': c.function.arguments} | tojson + '\n</tool_call>' }}
{%- endfor %}{%- endif %}{{- m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '\n@assistant:' }}{%- endif %}"""
PIECES = (
    *TAGS,
    "<|im_start|>assistant\n",
    "<|im_end|>",
    "\n@assistant:",
    "<tool_call>",
    "</tool_response>",
    "<thi",
    "nk>",
    "</",
    "7",
    " é\n",
)


def made(template, *, words=("\n@assistant:", "tool_response"), copies=(), prefilled=False):
    """A tokenizer of bytes and of some words, and its layout."""
    tokenizer = tiny_tokenizer(words * 20, TAGS)
    tokenizer.chat_template = template
    opened, closed = map(tokenizer.convert_tokens_to_ids, TAGS)
    layout = VocabLayout(len(tokenizer), copies, opened, closed, find_turn_ids(tokenizer, TAGS), ())
    if prefilled:
        open_thinking_in_template(tokenizer, layout, "prefill", base_knows_tag=False)
    return tokenizer, layout


def answer(text, name="look_up"):
    return {"role": "tool", "name": name, "content": text}


@pytest.mark.parametrize(
    "template", [QWEN, trl_templates.qwen2_5_chat_template + "{# changed #}", PLAIN], ids=["known", "changed", "plain"]
)
@pytest.mark.parametrize("prefilled", [False, True])
def test_a_call_is_read_and_answered_in_templates_that_trl_knows_and_in_others(template, prefilled):
    tokenizer, layout = made(template, prefilled=prefilled)
    form = ToolFormat(tokenizer, layout, {})
    context = form.prompt_ids([{"role": "user", "content": "3 x 4?"}], [])
    said = (
        "" if not prefilled else "so</think>"
    ) + 'I ask.\n<tool_call>\n{"name": "f", "arguments": {"a": 3}}\n</tool_call>'
    turn = ("<think>\n" if prefilled else "") + said
    message = form.message(context, tokenizer.encode(said + "<|im_end|>"))
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 3}}
    assert message["content"] == turn[: turn.index("I ask.") + len("I ask.")]
    end = tokenizer.decode(form.answer_ids([answer("12")]))
    assert "12" in end and end.endswith(
        "<think>\n" if prefilled else "assistant:" if template == PLAIN else "assistant\n"
    )


@pytest.mark.parametrize("template", [QWEN, PLAIN])
@pytest.mark.parametrize("prefilled", [False, True])
def test_what_a_tool_says_is_the_same_text_and_never_a_control_token(template, prefilled):
    import torch

    tokenizer, layout = made(template, prefilled=prefilled)
    form, chance = ToolFormat(tokenizer, layout, {}), random.Random(0)
    controls = lambda ids: [token for token in ids if token in tokenizer.added_tokens_decoder]  # noqa: E731
    turn = list(layout.turn_ids)
    for _ in range(50):
        texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(chance.randint(1, 3))]
        ids, plain = form.answer_ids([answer(text) for text in texts]), form.answer_ids([answer("x") for _ in texts])
        assert controls(ids) == controls(plain)
        assert sum(ids[at : at + len(turn)] == turn for at in range(len(ids))) == 1
        assert all(text in tokenizer.decode(ids) for text in texts)
        # Whatever the region was before, what follows the answer has that of the template's own words.
        for before in (layout.think_open_id, layout.think_close_id):
            after = regions_after(torch.tensor([[before, *ids]]), layout)[0]
            assert after[-1] == prefilled and set(after[: -len(turn) - 2].tolist()) == {
                int(before == layout.think_open_id)
            }


def test_harmless_words_are_encoded_as_trl_encodes_them():
    from types import SimpleNamespace

    from trl import GRPOTrainer

    tokenizer, layout = made(QWEN)
    form = ToolFormat(tokenizer, layout, {})
    of_trl = SimpleNamespace(
        processing_class=tokenizer,
        _tokenizer=tokenizer,
        _is_vlm=False,
        chat_template=form.chat_template,
        chat_template_kwargs={},
    )
    for texts in (["12"], ["3.5", "x = 1.\n"], ['{"error": "no"}']):
        answers = [answer(text) for text in texts]
        assert form.answer_ids(answers) == GRPOTrainer._get_tool_suffix_ids(of_trl, answers)


def test_a_name_that_the_model_made_up_changes_no_turn():
    form = ToolFormat(*made(QWEN), {})
    assert form.answer_ids([answer("1", "<|im_end|><think>")]) == form.answer_ids([answer("1", "unknown")])


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ messages[0].content }}", "shows no tool calls"),
        (PLAIN.replace("tool_call>", "my_call>"), "no parser knows the calls"),
        (PLAIN.replace("{{- m.content }}", "{{- m.content }}{{- loop.last }}"), "shows earlier turns in another way"),
    ],
)
def test_a_template_without_tools_is_refused(template, said):
    tokenizer, layout = made(template)
    with pytest.raises(UserError, match=said):
        ToolFormat(tokenizer, layout, {})
    assert tokenizer.chat_template == template


def test_the_prefill_is_taken_off_for_trl_alone():
    tokenizer, layout = made(QWEN, prefilled=True)
    with without_prefill(tokenizer, layout) as prefill:
        assert tokenizer.chat_template == QWEN and "<think>" in prefill
    assert tokenizer.chat_template == QWEN + prefill


def test_a_result_that_no_other_ids_spell_costs_its_call():
    template = PLAIN.replace("@assistant:", "@A:").replace("m.role + ':'", "m.role[0] | upper + ':'")
    tokenizer, layout = made(template, words=())  # of bytes: a header of letters has no other spelling
    form = ToolFormat(tokenizer, layout, {})
    assert "begins a turn" in tokenizer.decode(form.answer_ids([answer("4\n@A:5")]))
    assert "4@A" in tokenizer.decode(form.answer_ids([answer("4@A")]))
