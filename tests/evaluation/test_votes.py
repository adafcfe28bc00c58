"""Which answers are one answer: by the verifier's word, not by their text."""

from rlvr_vocab.evaluation.figures import equal_by_verifier, votes_of
from rlvr_vocab.record.results import ProblemResult


def results(problem, *answers):
    return [
        ProblemResult(problem, sample, "p", "s", "c", score, 1, 0, 0, True, True, answer, True)
        for sample, (answer, score) in enumerate(answers)
    ]


def test_answers_of_one_value_are_one_answer_whatever_their_text():
    given = results(
        0, (r"\frac{1}{2}", 0.0), ("0.5", 0.0), ("1/2", 0.0), ("2", 0.0), (None, 0.0), ("x+1", 0.0), ("1+x", 0.0)
    )
    assert votes_of(given) == [1, 1, 1, 2, None, 3, 3]
    other = results(1, ("2", 0.0), (r"\frac{1}{", 0.0), (r"\frac{1}{", 0.0), ("1/2", 0.0))  # unreadable: its text
    mixed = [each for pair in zip(given, other, strict=False) for each in pair]
    assert votes_of(mixed) == [1, 1, 1, 2, 1, 2, 2, 3]
    assert votes_of(results(0, ("4", 1.0), ("8/2", 1.0), ("5", 0.0), ("6", 0.0))) == [0, 0, 1, 2]
    assert equal_by_verifier([(r"\frac{1}{", "7"), ("7", "7.0")]) == [False, True] and equal_by_verifier([]) == []
