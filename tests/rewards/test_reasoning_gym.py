"""The reward for tasks of reasoning-gym: the task's own scorer decides, and nothing that it does harms anybody."""

import time

import pytest

from rlvr_vocab.data import reasoning_gym as workers
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.reasoning_gym import reasoning_gym
from rlvr_vocab.sandbox.confinement import CannotConfine
from rlvr_vocab.verify.worker_pool import Outcome

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -e '.[gym]'")


@pytest.fixture(scope="module")
def countdown():
    """Its scorer has sympy read an answer, which evaluates it."""
    return workers.make_entries("countdown", {}, 1, 1)[0]


def boxed(*answers):
    return [f"<think>Let me see.</think>\\boxed{{{answer}}}" for answer in answers]


def test_scores_are_those_of_the_package(countdown):
    from reasoning_gym.factory import create_dataset

    numbers, target = countdown.metadata["numbers"], countdown.metadata["target"]
    answers = [countdown.answer, f" {countdown.answer}\n", str(target), " + ".join(map(str, numbers)), "twelve"]
    game = create_dataset("countdown")
    entry = {"question": countdown.question, "answer": countdown.answer, "metadata": countdown.metadata}
    expected = [game.score_answer(answer.strip(), entry) for answer in answers]
    assert reasoning_gym(boxed(*answers), entry=[countdown.encoded] * 5) == expected
    assert expected[0] == expected[1] == 1.0 and 0 < expected[2] < 1


def test_a_scorer_gets_its_entry_and_the_parameters_of_its_task_as_the_generator_had_them():
    [grid] = workers.make_entries("arc_agi", {}, 1, 1)  # whose scorer compares tuples, which JSON has none of
    [game] = workers.make_entries("puzzle24", {"min_value": 1, "max_value": 4}, 1, 1)
    turns = boxed(grid.answer, game.answer, "8*3*1*1")  # by numbers that these problems do not have
    assert reasoning_gym(turns, entry=[grid.encoded, game.encoded, game.encoded]) == [1.0, 1.0, 0.01]


def test_the_scorer_gets_each_answer_once_and_nothing_that_is_none(countdown, monkeypatch):
    asked = []

    def score(pairs, deadline, allow_unsafe):
        asked.extend(pairs)
        return [Outcome(0.25, None, "") for _ in pairs]

    monkeypatch.setattr("rlvr_vocab.rewards.library.reasoning_gym.score_answers", score)
    turns = [*boxed("1", "2", "1", " ", "1+" * 20_000 + "1"), "<think>\\boxed{1}", "1+1"]
    assert reasoning_gym(turns, entry=[countdown.encoded] * 7) == [0.25] * 3 + [0.0] * 4
    assert asked == [(countdown.encoded, "1"), (countdown.encoded, "2")]
    assert reasoning_gym(boxed("1"), entry=[None]) == [None]


def test_an_answer_that_hangs_a_scorer_costs_itself_and_the_others_are_scored(countdown):
    started = time.monotonic()
    turns = boxed("10**10**10", countdown.answer)
    late, right = reasoning_gym.explain(turns, entry=[countdown.encoded] * 2, deadline=1.0)
    assert time.monotonic() - started < 20
    assert (late.value, late.timed_out, right.value) == (0.0, True, 1.0)


def test_an_answer_that_is_evaluated_reaches_nothing(countdown, tmp_path):
    there = tmp_path / "there"
    hostile = (f"__import__('os').system('touch {there}') or 1", f"open(r'{there}', 'w') and 1")
    assert max(reasoning_gym(boxed(*hostile), entry=[countdown.encoded] * 2)) < 1
    assert not there.exists()


def test_an_answer_that_is_evaluated_changes_no_other_score():
    [made] = workers.make_entries("n_queens", {}, 1, 1)
    poison = "setattr(NQueensDataset, 'score_answer', lambda *_: 1.0)"
    answers = [f"{poison} or {number}" for number in range(20)]  # for every worker that there is
    assert max(reasoning_gym(boxed(*answers), entry=[made.encoded] * 20)) == 0.0
    assert reasoning_gym(boxed(*answers, "__import__('os')._exit(0)"), entry=[made.encoded] * 21) == [0.0] * 21
    assert reasoning_gym(boxed(made.answer), entry=[made.encoded]) == [1.0]


def test_where_the_system_confines_nothing_only_scorers_that_evaluate_are_refused(countdown, monkeypatch):
    sums = workers.make_entries("chain_sum", {}, 1, 1)[0]

    def refuse(readable):
        raise CannotConfine("no Landlock")

    monkeypatch.setattr(workers, "confine", refuse)
    monkeypatch.setattr(workers, "_pool", lambda: InThisProcess())
    assert reasoning_gym(boxed(sums.answer), entry=[sums.encoded]) == [1.0]
    with pytest.raises(UserError, match=r"cannot be confined here: no Landlock.*allow_unsafe: true"):
        reasoning_gym(boxed(countdown.answer), entry=[countdown.encoded])
    assert reasoning_gym(boxed(countdown.answer), entry=[countdown.encoded], allow_unsafe=True) == [1.0]


class InThisProcess:
    """Stands for the pool, so that what is replaced here is replaced for its work."""

    def run(self, items, deadline):
        return [Outcome(workers.work(item), None, "") for item in items]
