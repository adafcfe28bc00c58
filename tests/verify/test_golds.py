"""Gold answers are looked at before training: those that nothing can equal, and those compared as they are written."""

from rlvr_vocab.verify import check_golds, verify

GOLDS = [
    "42",
    "",
    r"\frac12",
    r"\sum_{n=1}^{9} n",
    "9" * 1_001,
    "x=f(x)",
    "Friday",
    r"[1,\infty)",
    r"$\boxed{}$",
    "7-11",
]


def test_findings_are_by_index_and_say_why() -> None:
    findings = check_golds(GOLDS)
    assert findings.unusable == {1: "empty", 4: "a number of 1001 digits", 8: "empty"}
    assert findings.by_text_only.keys() == {3, 5}
    assert r"\sum" in findings.by_text_only[3]
    assert findings.ambiguous == {9: "a date, a range or a code?"}


def test_the_verifier_has_no_verdict_for_exactly_the_unusable_ones() -> None:
    verdicts = verify(GOLDS, ["1"] * len(GOLDS))
    assert {index for index, verdict in enumerate(verdicts) if verdict.correct is None} == {1, 4, 8}


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    check_golds(["1", "", "x"], lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
