"""Thoughts with other ids of the same text."""

from collections import Counter

import numpy as np
import pytest

from rlvr_vocab.evaluation.probe import CopyExchange
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy

STANDARD, OPEN, CLOSE, END = 12, 9, 10, 11
PROMPT = [1, 2]


def exchange_of(mode="expand", copies=2):
    layout = VocabLayout(STANDARD, tuple(range(8)) * copies, OPEN, CLOSE, (), (OPEN, CLOSE, END), mode, True)
    return CopyExchange(RegionPolicy(layout))


def thought_of(exchange, inside, before=(3,)):
    return exchange.thought(PROMPT, [*before, OPEN, *inside, CLOSE, 4, END])


def thoughts_of(exchange, count=40, length=6):
    random = np.random.default_rng(0)
    return [
        thought_of(exchange, [int(random.choice([s, s + 12, s + 20])) for s in random.integers(0, 8, length)])
        for _ in range(count)
    ]


@pytest.fixture
def random():
    return np.random.default_rng(1)


def test_a_thought_ends_with_its_closing_tag_and_only_thinking_places_can_be_exchanged():
    thought = thought_of(exchange_of(), [3, 15, 8])  # 8 has no copy
    assert thought.ids == (3, OPEN, 3, 15, 8, CLOSE)
    assert thought.places == (2, 3)
    for completion in ([3, 4, END], [3, OPEN, 3, 15]):  # which does not begin, or does not end
        assert exchange_of().thought(PROMPT, completion) is None


def test_what_follows_the_first_call_is_replayed_up_to_the_last_answer():
    exchange, called, given = exchange_of(), [OPEN, 15, CLOSE, 4, END], [7, 15, 8]
    direct = exchange.thought(PROMPT, [*called, *given, 6, END], [5, 3, 2])
    assert direct.ids == (OPEN, 15, CLOSE) and direct.places == (1,) and direct.replayed == (4, END, *given)
    again = exchange.thought(PROMPT, [*called, *given, OPEN, 3, CLOSE, 6, END], [5, 3, 5])
    assert again.ids == direct.ids and again.replayed == (*direct.replayed, OPEN, 3, CLOSE)
    alone = exchange.thought(PROMPT, called, [5])
    assert (alone.ids, alone.replayed) == (direct.ids, ())
    for ids, segments in (
        ([*called, *given], [5, 3]),  # no turn follows
        ([*called, *given, OPEN, 3, 6], [5, 3, 3]),  # the last thought does not close
        ([4, END, *given, OPEN, 3, CLOSE, 6, END], [2, 3, 5]),  # no thought before the call
    ):
        assert exchange.thought(PROMPT, ids, segments) is None


def test_no_exchange_changes_the_text_or_opens_what_is_closed(random):
    exchange = exchange_of()
    thoughts = thoughts_of(exchange)
    one, other = thoughts[:2]
    for changed in (exchange.transplanted(one, other, random), exchange.permuted(thoughts, random)[0]):
        assert exchange.texts(changed) == exchange.texts(one)
        for place, token in enumerate(changed.ids):
            assert token == one.ids[place] or (place in one.places and token in exchange.open_ids(token))


def test_permuting_keeps_the_rate_of_every_id_and_moves_them(random):
    exchange = exchange_of()
    thoughts = thoughts_of(exchange)
    dealt = exchange.permuted(thoughts, random)
    before, after = (Counter(token for each in some for token in each.ids) for some in (thoughts, dealt))
    assert before == after
    moved = sum(a != b for one, two in zip(thoughts, dealt, strict=True) for a, b in zip(one.ids, two.ids, strict=True))
    assert moved > 80  # of 240; a third stays by chance where three ids are as likely


def test_a_transplant_takes_the_nth_choice_of_a_text_from_the_donor(random):
    exchange = exchange_of()
    thought, donor = thought_of(exchange, [3, 5, 3, 3]), thought_of(exchange, [23, 15, 17, 15, 15])
    assert exchange.transplanted(thought, donor, random).ids[2:-1] == (23, 17, 15, 15)
    thought, donor = thought_of(exchange, [3]), thought_of(exchange, [5])  # which lacks it: drawn by chance
    assert {exchange.transplanted(thought, donor, random).ids[2] for _ in range(60)} == {3, 15, 23}


def test_where_copies_replace_their_sources_those_are_never_chosen():
    exchange = exchange_of("replace")
    assert exchange.open_ids(15) == [15, 23]
