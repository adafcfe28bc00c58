"""Which answers are one answer: by the verifier's word, not by their text."""

from rlvr_vocab.evaluation.figures import equal_by_verifier, votes_of
from rlvr_vocab.record.results import ProblemResult


def results(problem: int, *answers: tuple[str | None, float | None]) -> list[ProblemResult]:
    return [
        ProblemResult(problem, sample, "p", "s", "c", score, 1, 0, 0, True, True, answer, True)
        for sample, (answer, score) in enumerate(answers)
    ]


def test_answers_of_one_value_are_one_answer_whatever_their_text() -> None:
    given = results(
        0, (r"\frac{1}{2}", 0.0), ("0.5", 0.0), ("1/2", 0.0), ("2", 0.0), (None, 0.0), ("x+1", 0.0), ("1+x", 0.0)
    )
    assert votes_of(given) == [1, 1, 1, 2, None, 3, 3]


def test_right_answers_are_one_answer_and_are_not_compared_again() -> None:
    compared = []

    def equal(pairs):
        compared.extend(pairs)
        return [False for _ in pairs]

    given = results(0, ("4", 1.0), ("8/2", 1.0), ("5", 0.0), ("5", 0.0), ("6", 0.0))
    assert votes_of(given, equal) == [0, 0, 1, 1, 2]
    assert compared == [("5", "6")]


def test_problems_are_apart() -> None:
    def equal(pairs):
        return [one.strip("0") == other.strip("0") for one, other in pairs]

    first, second = results(0, ("1", 0.0), ("10", 0.0), ("2", 0.0)), results(1, ("10", 0.0), ("3", 0.0), ("30", 0.0))
    mixed = [each for pair in zip(first, second, strict=True) for each in pair]
    assert votes_of(mixed, equal) == [1, 1, 1, 2, 2, 2]


def test_what_cannot_be_read_equals_its_own_text_alone() -> None:
    broken = r"\frac{1}{"
    assert votes_of(results(0, (broken, 0.0), (broken, 0.0), ("7", 0.0))) == [1, 1, 2]
    assert equal_by_verifier([(broken, "7"), ("7", "7.0")]) == [False, True] and equal_by_verifier([]) == []
