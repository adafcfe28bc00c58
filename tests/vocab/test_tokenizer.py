"""The tokenizer of an expanded folder against its base's: the same ids for text, the same text for copies."""

import json
import random
import re
import shutil
from collections import defaultdict
from itertools import product

import pytest
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.expand import Expansion, plan_expansion
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import load_tokenizer, token_ids, write_tokenizer

QUICK = (("qwen3", 3), ("qwen2", 1), ("gemma3", 1))
PAIRS = [
    pair if pair in QUICK else pytest.param(pair, marks=pytest.mark.slow)
    for pair in product(("qwen3", "qwen2", "llama", "gemma3", "gpt2", "phi"), (1, 3))
]
TEXTS = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72",
    "The café costs €4, naïve as it is: 日本語 🙂, and \\boxed{\\frac{1}{2}}.",
    "  two spaces,\ttabs\n\n\nlines  ",
    "<|im_end|> and </s> as a user types them",
    "He said <think>hm</think> aloud.",
)


def half_copies(ids, layout, seed=0):
    """The same ids with every second one, at random, replaced by one of its copies."""
    copies, rng = defaultdict(list), random.Random(seed)
    for k, source in enumerate(layout.source_ids):
        copies[source].append(layout.standard_size + k)
    return [rng.choice(copies[token]) if copies[token] and rng.random() < 0.5 else token for token in ids]


def streamed(tokenizer, ids):
    stream = DecodeStream(skip_special_tokens=True)
    pieces = (stream.step(tokenizer.backend_tokenizer, token) for token in ids)
    return "".join(piece for piece in pieces if piece is not None)


@pytest.fixture(params=PAIRS, ids=str)
def pair(request, make_shape, expand_shape):
    """Base tokenizer, expanded tokenizer, layout."""
    name, multiplicity = request.param
    folder = expand_shape(name, size=None, multiplicity=multiplicity)
    base = AutoTokenizer.from_pretrained(make_shape(name).folder)
    return base, load_tokenizer(folder), VocabLayout.load(folder)


def test_text_keeps_its_ids_and_half_of_them_as_copies_decode_to_it(pair):
    base, tokenizer, layout = pair
    for number, text in enumerate(TEXTS[:-1]):
        ids = base.encode(text, add_special_tokens=False)
        copied = half_copies(ids, layout, number)
        assert tokenizer.encode(text) == base.encode(text) and tokenizer.encode(text, add_special_tokens=False) == ids
        assert sum(token >= layout.standard_size for token in copied) >= len(ids) / 5
        for skip in (True, False):
            assert tokenizer.decode(ids, skip_special_tokens=skip) == base.decode(ids, skip_special_tokens=skip)
        visible = [i for i, token in enumerate(ids) if token not in layout.control_ids]
        expected = base.decode([ids[i] for i in visible])
        mixed = [copied[i] for i in visible]
        assert tokenizer.decode(mixed, skip_special_tokens=True) == expected
        assert tokenizer.batch_decode([mixed, mixed], skip_special_tokens=True) == [expected, expected]
        assert number > 2 or streamed(tokenizer, copied) == streamed(base, ids) == base.decode(ids)


def test_think_tags_are_one_id_each_and_survive_decoding(pair):
    _, tokenizer, layout = pair
    ids = tokenizer.encode(TEXTS[-1], add_special_tokens=False)
    assert ids.count(layout.think_open_id) == ids.count(layout.think_close_id) == 1
    for skip in (True, False):
        assert tokenizer.decode(ids, skip_special_tokens=skip) == TEXTS[-1]


def test_tags_that_the_base_holds_as_special_tokens_are_shown_all_the_same(make_shape, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(make_shape("qwen3").folder, base)
    content = json.loads((base / "tokenizer.json").read_text())
    for token in content["added_tokens"]:
        token["special"] = True
    (base / "tokenizer.json").write_text(json.dumps(content))
    assert AutoTokenizer.from_pretrained(base).decode([333, 334], skip_special_tokens=True) == ""
    plan = plan_expansion(str(base), Expansion(size=None))
    write_tokenizer(plan.tokenizer, plan.layout, tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert (plan.layout.think_open_id, plan.layout.think_close_id) == (333, 334)
    assert tokenizer.decode([333, 334], skip_special_tokens=True) == "<think></think>"
    assert tokenizer.decode([332], skip_special_tokens=True) == ""


def test_saving_and_loading_again_keeps_all_that(pair, tmp_path):
    base, tokenizer, layout = pair
    tokenizer.save_pretrained(str(tmp_path))
    again = load_tokenizer(tmp_path)
    ids = base.encode(TEXTS[1], add_special_tokens=False)
    assert len(again) == layout.rows and sorted(again.get_vocab().values()) == list(range(layout.rows))
    stock = AutoTokenizer.from_pretrained(tmp_path)  # without a config.json it reads the tokenizer as it is
    assert again.decode(half_copies(ids, layout)) == stock.decode(half_copies(ids, layout)) == base.decode(ids)
    assert (again.pad_token_id, again.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert again.chat_template == tokenizer.chat_template


def test_no_text_encodes_to_a_copy(pair):
    _, tokenizer, layout = pair
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    marked = [string for string, token in content["model"]["vocab"].items() if token >= layout.standard_size]
    for string in random.Random(0).sample(marked, 40):
        assert max(tokenizer.encode(string, add_special_tokens=False)) < layout.standard_size


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])  # bytes, and SentencePiece's pieces
def test_tokens_are_found_by_their_text(name, make_shape):
    tokenizer = AutoTokenizer.from_pretrained(make_shape(name).folder)
    digits = token_ids(tokenizer, re.compile(r"^ ?[0-9]+$"))
    assert digits and all(re.fullmatch(" ?[0-9]+", tokenizer.decode([token])) for token in digits)
    assert {tokenizer.decode([token]).strip() for token in digits} >= set("0123456789")
    sevens = tuple(token for token in digits if tokenizer.decode([token]).strip() == "7")
    assert token_ids(tokenizer, ["7"]) == sevens
    assert token_ids(tokenizer, [9, "7", 9]) == (9, *(token for token in sevens if token != 9))
    assert not set(token_ids(tokenizer, re.compile(""))) & set(tokenizer.all_special_ids)
    with pytest.raises(UserError, match=r"source_ids: 'Natalia sold 48': no single token"):
        token_ids(tokenizer, ["7", "Natalia sold 48"])
    with pytest.raises(UserError, match=r"no token has 'x\{9\}' in its text"):
        token_ids(tokenizer, re.compile("x{9}"))
