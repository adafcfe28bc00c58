"""What a completion is counted in."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.lengths import parts

TURNS = ["One  two\nONE", [{"role": "assistant", "content": None}]]


def test_a_completion_comes_apart_into_tokens_words_or_characters():
    assert parts("length", TURNS, [[5, 6], []], "tokens") == [[5, 6], []]
    assert parts("length", TURNS, [[5, 6], []], "words") == [["one", "two", "one"], []]
    assert [list(text) for text in parts("length", TURNS, None, "characters")] == [list("One  two\nONE"), []]


def test_tokens_without_ids_are_refused_by_the_name_of_the_reward():
    with pytest.raises(UserError, match=r"^repetition: completion_ids is missing"):
        parts("repetition", TURNS, None, "tokens")
