"""`generate` sets thinking apart, marks reasoning tokens, and for machines prints one JSON object a line."""

import json

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.data.rows import read_prompts
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer

# Marks, control characters, and halves of characters whose bytes a mark separates.
NOT_COMPARED = dict.fromkeys([*map(ord, "⟦⟧\ufffd"), *range(0x20), *range(0x2400, 0x2420)])


@pytest.fixture
def folder(expand_shape):
    return expand_shape("qwen3", size=None, open_thinking="prefill")


def rows(out):
    return [json.loads(line) for line in out.splitlines()]


def test_json_is_all_that_stands_on_stdout_and_holds_the_turn_in_parts(folder, tmp_path, capsys):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("What is 3 + 4?\n\nHow many clips?\nWhat is <think>?\n")
    words = ["generate", f"checkpoint={folder}", f"prompts={prompts}", "format=json", "max_new_tokens=60"]
    assert main([*words, "batch_size=2", "seed=3"]) == 0
    found = rows(capsys.readouterr().out)
    assert [row["prompt"] for row in found] == ["What is 3 + 4?", "How many clips?", "What is <think>?"]
    layout, tokenizer = VocabLayout.load(folder), load_tokenizer(folder)
    for row in found:
        assert set(row) == {"prompt", "thinking", "answer", "text", "reasoning_tokens", "ids", "finished"}
        assert row["reasoning_tokens"] == sum(token >= layout.standard_size for token in row["ids"]) > 0
        assert row["finished"] == (row["ids"][-1] == tokenizer.eos_token_id) and len(row["ids"]) <= 60
        assert row["text"] == "<think>\n" + tokenizer.decode(row["ids"], skip_special_tokens=True)
        thinking, closed, answer = row["text"].removeprefix("<think>").partition("</think>")
        if "<think>" not in answer:
            assert (row["thinking"], row["answer"]) == (thinking.strip(), answer.strip() if closed else "")


def test_thinking_is_shown_apart_with_its_reasoning_tokens_marked(folder, capsys):
    words = ["generate", f"checkpoint={folder}", "prompt=What is 3 + 4?", "max_new_tokens=30", "seed=1"]
    assert main([*words, "format=json"]) == 0
    [row] = rows(capsys.readouterr().out)
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("thinking (") and "answer\n" in shown and "⟦" in shown
    assert f"reasoning tokens: {row['reasoning_tokens']})" in shown
    thinking = shown.partition("\n")[2].partition("\n\nanswer\n")[0]
    shown_text, text = (each.translate(NOT_COMPARED) for each in (thinking, row["thinking"]))
    assert "".join(shown_text.split()) == "".join(text.split())
    assert ("truncated at max_new_tokens" in shown) == (not row["finished"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prompt=hello", "prompts=x.txt"], "give either prompt="),
        (["prompts=missing.txt"], "missing.txt does not exist"),
        (["prompts=."], "is not a file with one of the extensions"),
        (["prompt=hello", "top_p=0"], "top_p=0"),
        (["prompt=hello", "base=elsewhere"], "is a whole model and needs none"),
    ],
)
def test_a_wrong_word_is_one_line(words, said, folder, error_of):
    assert said in error_of("generate", f"checkpoint={folder}", *words)


def test_prompts_are_read_from_lines_columns_and_conversations(tmp_path):
    def written(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    one, two = ({"role": "user", "content": text} for text in ("one", "two"))
    assert read_prompts(written("a.txt", "one\n\n two\n")) == [[one], [{**two, "content": " two"}]]
    odd = "a\u2028b\x0cc\x85d"
    (tmp_path / "b.txt").write_bytes(f"{odd}\r\none\n".encode())
    assert read_prompts(tmp_path / "b.txt") == [[{"role": "user", "content": odd}], [one]]
    assert read_prompts(written("a.csv", "id,question\n1,one\n2,two\n")) == [[one], [two]]
    assert read_prompts(written("a.json", '["one", "two"]')) == [[one], [two]]
    talk = [{"role": "system", "content": "be short"}, one]
    assert read_prompts(written("a.jsonl", json.dumps({"messages": talk}))) == [talk]
    for name, text, said in (
        ("b.csv", "id,words\n1,one\n", "its columns are id, words"),
        ("b.tsv", "id\tprompt\n1\tone\n2\t\n", "row 2: empty problem"),
        ("b.txt", "\n\n", "no prompts in it"),
    ):
        with pytest.raises(UserError, match=said):
            read_prompts(written(name, text))
