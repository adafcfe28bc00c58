"""Which tokens a named part of the vocabulary has."""

from dataclasses import dataclass

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import CONNECTIVES, ids_of_part


@dataclass
class Words:
    """A tokenizer as far as parts ask it."""

    texts: list[str]

    def __len__(self):
        return len(self.texts)

    def batch_decode(self, rows):
        return ["".join(self.texts[token] for token in row) for row in rows]


WORDS = Words(["7", " 42", "4a", " Wait", "wait", "waiter", "so", "so,", " ", "", "<think>", "½", "Therefore"])


def test_digits_are_nothing_but_digits_and_connectives_one_word_each():
    assert ids_of_part("digits", WORDS) == (0, 1)
    assert ids_of_part("connectives", WORDS) == (3, 4, 6, 12)


def test_a_part_that_the_vocabulary_lacks_is_refused():
    with pytest.raises(UserError, match="connectives: no token of the vocabulary"):
        ids_of_part("connectives", Words(["a", "1"]))


def test_connectives_are_lower_case_words():
    assert all(word.isalpha() and word.islower() for word in CONNECTIVES)
