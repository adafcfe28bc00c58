"""The closest known name is found whatever the case, and none is made up."""

import pytest

from rlvr_vocab.text import did_you_mean, nearest_word


@pytest.mark.parametrize(
    ("given", "nearest"), [("ANSWER", "answer"), ("anwser", "answer"), ("Soluton", "Solution"), ("xyz", None)]
)
def test_the_nearest_word_is_the_likeliest_slip(given: str, nearest: str | None) -> None:
    assert nearest_word(given, ["SANER", "answer", "Solution"]) == nearest


def test_without_a_near_name_nothing_is_suggested() -> None:
    assert did_you_mean("hsh", ["bare", "hash"]) == "; did you mean hash?"
    assert did_you_mean("xyz", ["bare", "hash"]) == ""
