"""The report says what was kept and, only where there is something to say, what was not."""

from rlvr_vocab.data.load import LoadReport, count_duplicates, count_reasons, first_examples
from rlvr_vocab.data.rows import DroppedRow

DROPPED = [DroppedRow(1, "empty problem", "{}")] + [
    DroppedRow(number, "missing answer", f"problem {number}") for number in (2, 4, 5, 9)
]


def test_nothing_dropped_is_one_line() -> None:
    report = LoadReport("p.csv", 1200, 1200, train_rows=1000, eval_rows=200, dropped={}, examples={})
    assert report.lines() == ["p.csv: 1,200 rows read, 1,200 usable; 1,000 to train on, 200 held out"]


def test_reasons_are_counted_costliest_first_with_the_first_three_examples() -> None:
    assert list(count_reasons(DROPPED).items()) == [("missing answer", 4), ("empty problem", 1)]
    assert first_examples(DROPPED) == {
        "empty problem": ((1, "{}"),),
        "missing answer": ((2, "problem 2"), (4, "problem 4"), (5, "problem 5")),
    }


def test_each_thing_that_went_otherwise_has_a_line() -> None:
    report = LoadReport(
        source="p.csv",
        rows_read=15,
        rows_kept=10,
        train_rows=6,
        eval_rows=2,
        dropped=count_reasons(DROPPED),
        examples=first_examples(DROPPED),
        duplicates=3,
        held_out_removed=2,
        unmeasured=4,
        notes=("a note",),
    )
    assert report.lines()[1:] == [
        "dropped 4: missing answer (row 2: problem 2; row 4: problem 4; row 5: problem 5; …)",
        "dropped 1: empty problem (row 1: {})",
        "rows that repeat an earlier problem, kept unless it is held out: 3",
        "left out of training, as the same problem is held out: 2",
        "held out too, but beyond dataset.max_eval_samples: 4",
        "a note",
    ]


def test_duplicates_count_every_repeat_but_not_the_first() -> None:
    assert count_duplicates(["a", "b", "a", "a", "c"]) == 2
