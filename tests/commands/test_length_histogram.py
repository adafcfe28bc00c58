"""Lengths are counted into ranges, none is lost, and quantiles are those of the sorted list."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from rlvr_vocab.commands.check.facts import length_facts, quantile
from rlvr_vocab.commands.check.screen import MOST_ROWS, bar, histogram


def test_a_histogram_is_drawn_to_scale() -> None:
    assert histogram({3: 40, 4: 20, 6: 1}) == [
        f"3 {'█' * 40} 40",
        f"4 {'█' * 20} 20",
        "5 0",
        "6 █ 1",
    ]


def test_the_longest_hundredth_shares_one_line() -> None:
    lines = histogram({10: 600, 19: 395, 25: 4, 900: 1})
    assert lines[0] == f"    10 {'█' * 40} 600"
    assert [line.split()[0] for line in lines] == [*(str(length) for length in range(10, 20)), "20-900"]
    assert lines[-1].split()[-1] == "5"


@pytest.mark.parametrize("seed", range(6))
def test_every_length_is_in_one_of_at_most_twelve_lines(seed: int) -> None:
    generator = random.Random(seed)
    spread = 10 ** generator.uniform(0, 4)
    counts = Counter(1 + round(generator.expovariate(1 / spread)) for _ in range(generator.randint(1, 3000)))
    lines = histogram(counts)
    assert len(lines) <= MOST_ROWS
    assert sum(int(line.split()[-1].replace(",", "")) for line in lines) == sum(counts.values())
    assert bounds(lines[0])[0] <= min(counts) and bounds(lines[-1])[1] >= max(counts)
    for line, following in pairwise(lines):
        assert bounds(line)[1] + 1 == bounds(following)[0]


def bounds(line: str) -> tuple[int, int]:
    first, _, last = line.split()[0].partition("-")
    return int(first), int(last or first)


def test_what_there_is_at_all_shows() -> None:
    assert bar(1, 100_000) == "▏" and bar(0, 5) == ""


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_the_first_length_that_enough_do_not_exceed(share: float) -> None:
    lengths = sorted(random.Random(1).randint(10, 60) for _ in range(200))
    expected = next(length for length in lengths if sum(other <= length for other in lengths) >= share * 200)
    assert quantile(Counter(lengths), share) == expected


@pytest.mark.parametrize(
    ("lengths", "limit", "left_out"),
    [
        ([10], 64, 0),
        ([64] * 5, 64, 0),
        ([65] * 5, 128, 0),
        ([50] * 99 + [500], 64, 1),  # 99 % are kept
        ([50] * 98 + [100, 500], 128, 1),  # 98 % would not do
    ],
)
def test_the_suggested_limit_is_the_smallest_multiple_of_64_that_keeps_99_percent(
    lengths: list[int], limit: int, left_out: int
) -> None:
    facts = length_facts(lengths)
    assert (facts.suggested_limit, facts.left_out) == (limit, left_out)
    assert (facts.shortest, facts.longest) == (min(lengths), max(lengths))
