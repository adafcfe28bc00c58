"""Problems of reasoning-gym: which are made, in which splits, and that nothing but the seed decides them."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from rlvr_vocab.data.generators import SPLITS, WORKED, GymProblems, GymTask
from rlvr_vocab.data.load import check_source, read_problems
from rlvr_vocab.data.reasoning_gym import difficulty_of, first_seed, make_entries
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.reasoning_gym import reasoning_gym

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -e '.[gym]'")

COLUMNS = Columns("problem", "answer")
DOCUMENT = Path(__file__).parents[2] / "docs" / "datasets.md"
SHORT_SUMS = GymTask("chain_sum", params={"max_terms": 2, "max_digits": 1})


def source(*tasks, size=100, held_out=20, **fields):
    fields = {"eval_split": "held_out", **fields}
    return ProblemSource("reasoning_gym", COLUMNS, generator=GymProblems(tasks, size, held_out), **fields)


def asked(problems):
    return [problem.text for problem in problems]


def test_weights_decide_the_shares_of_the_tasks():
    parts = source(GymTask("spell_backward", 2.0), GymTask("lcm"), GymTask("graph_color", 0.5), size=370, held_out=20)
    divided = read_problems(parts, Split())
    counts = Counter(problem.row["task"] for problem in divided.train_rows)
    dropped = Counter(row.reason.partition(", ")[2] for row in divided.dropped if ", in " not in row.reason)
    assert counts + dropped == {"spell_backward": 200, "lcm": 100, "graph_color": 50}
    held_out = [divided.problems[index].row["task"] for index in divided.parts.reserved]
    assert held_out.count("spell_backward") == 11
    # A task that has no answer of its own scores those of others all the same.
    assert {p.solution for p in divided.train_rows if p.row["task"] == "graph_color"} == {None}


def test_the_splits_have_no_problem_in_common_and_small_families_are_not_repeated():
    parts = source(SHORT_SUMS, size=300, held_out=60)
    divided = read_problems(parts, Split())
    trained, held_out = asked(divided.trained), asked([divided.problems[index] for index in divided.parts.reserved])
    assert len(set(trained)) == len(trained) and len(set(held_out)) == len(held_out)
    assert set(trained).isdisjoint(held_out)
    # There are 200 such sums and differences: 240 draws and 60 must repeat some.
    assert len(divided.dropped) >= 100
    assert len(trained) + len(held_out) + len(divided.dropped) + divided.parts.removed == 300


def test_no_seed_of_a_split_is_one_of_another_nor_near_that_of_another_run():
    starts = {(seed, split): first_seed(seed, "lcm", split) for seed in range(40) for split in SPLITS}
    for seed in range(40):
        train, held_out, test = (starts[seed, split] for split in SPLITS)
        assert 0 <= train < held_out < test < 2**32 - 10**6
        assert min(held_out - train, test - held_out) >= 2**30
    of_runs = sorted(starts[seed, "train"] for seed in range(40))
    assert min(later - earlier for earlier, later in pairwise(of_runs)) > 10_000


@pytest.mark.slow
def test_the_seed_alone_decides_the_problems_whatever_the_process_hashes_by():
    # What isomorphic_strings, ransom_note and polynomial_multiplication make depends on the order of a set.
    code = (
        "from rlvr_vocab.data.reasoning_gym import make_entries\n"
        "for task in ('isomorphic_strings', 'ransom_note', 'polynomial_multiplication', 'codeio'):\n"
        "    print([made.encoded for made in make_entries(task, {}, 3, 20)])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_another_seed_gives_other_problems_and_the_same_seed_the_same_ones_in_the_same_order():
    parts = source(GymTask("spell_backward"), GymTask("gcd"))
    first, again, other = (asked(read_problems(parts, Split(seed=seed)).trained) for seed in (1, 1, 2))
    assert first == again and len(set(first) & set(other)) < 3
    assert first != sorted(first, key=lambda text: "Spell" not in text)  # the tasks are mixed


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (GymTask("chain_sums"), r"no task chain_sums; did you mean chain_sum\?"),
        (GymTask("lcm", params={"max_valu": 9}), r"lcm refuses max_valu=9: .*max_valu"),
        (GymTask("chain_sum", params={"max_terms": 1}), r"refuses max_terms=1: max_terms must be >= min_terms"),
    ],
)
def test_a_task_that_cannot_be_made_is_refused_in_a_line(task, said):
    with pytest.raises(UserError, match=said):
        check_source(source(task), PromptStyle(None))


def test_an_unknown_split_is_refused():
    with pytest.raises(UserError, match=r"eval_split=tets: no such split; did you mean test\?"):
        source(SHORT_SUMS, eval_split="tets")


def test_a_generator_that_fails_costs_the_problem_and_is_told():
    # `validate` takes such digits; the generator cannot draw a number of one and a half.
    loaded = read_problems(source(GymTask("chain_sum", params={"max_digits": 1.5}), size=10, held_out=2), Split())
    assert not loaded.problems
    reasons = {row.reason: row.shown for row in loaded.dropped if ", in " not in row.reason}
    assert list(reasons) == ["its generator failed, chain_sum"] and "Error" in reasons.popitem()[1]


def test_difficulty_is_a_place_in_a_narrow_range_or_the_range():
    settings = {"terms": (2, 6), "value": (1, 1000), "digits": (4, 4), "weights": [0.5, 0.5], "p": 0.25, "x": None}
    shown = difficulty_of({"terms": 3, "value": 812, "difficulty": settings})
    assert shown == "terms 3, value 1-1000, digits 4, p 0.25"
    assert difficulty_of({"difficulty": 1.0}) == "1.0" and difficulty_of({}) == ""


@pytest.mark.parametrize(
    "params",
    [{}, {"max_terms": 2, "max_digits": 2}, {"min_terms": 3, "max_terms": 3, "allow_negation": True}],
    ids=["default", "two", "negative"],
)
def test_every_equation_of_a_worked_chain_is_true_and_its_digits_are_those_of_the_answer(params):
    for made in make_entries("chain_sum", params, 5, 200):
        *_, last = WORKED["chain_sum"](made.metadata).split(";")
        equations = re.findall(r"([\d+-]+)=(\d+)", last)
        assert all(evaluated(left) == int(right) for left, right in equations), last
        digits = "".join(right[-1] for _, right in equations[:-1])[::-1]
        read = equations[-1][1] + digits
        sign = -1 if last.rpartition("-:")[1] else 1
        assert sign * int(read) == int(made.answer), (made.question, last)


def evaluated(sum_of_digits):
    """`12-5-1` by another reader than the code's own."""
    tree = ast.parse(re.sub(r"\b0+(?=\d)", "", sum_of_digits), mode="eval")
    return eval(compile(tree, "sum", "eval"))


def test_worked_spellings_and_bits_lead_to_the_answer():
    for made in make_entries("spell_backward", {}, 5, 100):
        letters, reversed_letters = WORKED["spell_backward"](made.metadata).split(";")
        assert made.question.endswith(letters.replace(",", "")) and reversed_letters.replace(",", "") == made.answer
    for made in make_entries("count_bits", {"max_n": 5000}, 5, 100):
        halves, count = WORKED["count_bits"](made.metadata).split(":")
        assert count == made.answer == str(halves.count("*"))
        numbers = [int(number.rstrip("*")) for number in halves.split(",")]
        assert numbers == [numbers[0] >> place for place in range(len(numbers))] and numbers[-1] == 1


@pytest.mark.slow
def test_every_task_family_scores_its_own_answers_full_and_a_wrong_one_below():
    """The families that do otherwise are those that the document names."""
    from reasoning_gym.factory import DATASETS

    without_answer, for_anything = set(), set()
    for name in sorted(DATASETS.keys() - {"composite"}):
        made = [each for each in make_entries(name, {}, 7, 20) if each.answer != ""]
        assert len(made) >= 19 and not any(each.failure for each in made), name
        entries = [each.encoded for each in made]
        boxed = [f"<think>…</think>\n\\boxed{{{each.answer}}}" for each in made]
        if all(each.answer is None for each in made):
            without_answer.add(name)
        else:
            assert reasoning_gym(boxed, entry=entries) == [1.0] * len(made), name
        wrong = reasoning_gym(["\\boxed{I do not know}"] * len(made), entry=entries)
        if max(wrong) >= 1.0:
            for_anything.add(name)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert documented(text, "no answer of their own") == without_answer
    assert documented(text, "any answer as right") == for_anything


def documented(text, about):
    [line] = re.findall(rf"^- {about}: (.*?)(?=^- |^$)", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+)`", line))
