"""Loading a problem set from end to end."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from rlvr_vocab.data.load import check_source, lay_out, load_problem_sets, read_problems
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split
from rlvr_vocab.errors import UserError

WriteJsonl = Callable[..., Path]
COLUMNS = Columns("problem", "answer")
STYLE = PromptStyle(None)


def sums(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"problem": f"{number}+1=", "answer": number + 1} for number in range(start, start + count)]


def asked(dataset: datasets.Dataset | None) -> set[str]:
    """The problems of a data set, as the model is asked them."""
    assert dataset is not None
    return {prompt[-1]["content"] for prompt in dataset["prompt"]}


def test_problems_keep_their_own_answers_through_the_shuffle(write_jsonl: WriteJsonl) -> None:
    source = ProblemSource(str(write_jsonl(*sums(50))), COLUMNS)
    loaded = load_problem_sets(source, STYLE, Split(eval_fraction=0.2))
    assert loaded.eval is not None
    rows = [*loaded.train, *loaded.eval]
    assert len(rows) == 50
    for row in rows:
        assert int(row["solution"]) == int(row["prompt"][-1]["content"].split("+")[0]) + 1
        assert row["answer"] == row["solution"]
        assert row["raw_answer"] == int(row["solution"])


def test_a_second_file_is_held_out_and_taken_out_of_training(write_jsonl: WriteJsonl) -> None:
    train = write_jsonl(*sums(10), name="train.jsonl")
    test = write_jsonl(*sums(4, start=8), {"problem": "?", "answer": ""}, name="test.jsonl")
    loaded = load_problem_sets(ProblemSource(str(train), COLUMNS, eval_split=str(test)), STYLE, Split())
    assert asked(loaded.eval) == {"8+1=", "9+1=", "10+1=", "11+1="}
    assert asked(loaded.train) == {f"{number}+1=" for number in range(8)}
    assert loaded.account[0] == f"{train}: 15 rows read, 14 usable; 8 to train on, 4 held out"
    assert loaded.account[1:] == (
        f"dropped 1: missing answer, in {test} (row 5: ?)",
        "left out of training, as the same problem is held out: 2",
    )


@pytest.mark.parametrize("cap", [0, 1])
def test_a_capped_set_says_how_many_are_held_out_beyond_it(write_jsonl: WriteJsonl, cap: int) -> None:
    split = Split(eval_fraction=0.4, max_eval_samples=cap)
    loaded = load_problem_sets(ProblemSource(str(write_jsonl(*sums(10))), COLUMNS), STYLE, split)
    assert (0 if loaded.eval is None else len(loaded.eval)) == cap
    assert f"held out too, but beyond dataset.max_eval_samples: {4 - cap}" in loaded.account


def test_every_problem_is_known_by_its_row_and_is_where_training_has_it(write_jsonl: WriteJsonl) -> None:
    train = write_jsonl({"problem": "", "answer": "1"}, *sums(6), name="train.jsonl")
    test = write_jsonl({"problem": "a", "answer": ""}, *sums(2, start=6), name="test.jsonl")
    divided = read_problems(ProblemSource(str(train), COLUMNS, eval_split=str(test)), Split())
    assert [problem.row_number for problem in divided.problems] == [2, 3, 4, 5, 6, 7, 2, 3]
    laid_out = lay_out(divided, STYLE)
    assert laid_out.eval is not None
    texts = [problem.text for problem in divided.problems]
    for indices, rows in ((divided.parts.train, laid_out.train), (divided.parts.held_out, laid_out.eval)):
        assert [texts[index] for index in indices] == [prompt[-1]["content"] for prompt in rows["prompt"]]


def test_every_row_is_accounted_for(write_jsonl: WriteJsonl) -> None:
    rows = [*sums(6), 7, {"problem": "a"}, {"problem": "", "answer": "1"}, sums(1)[0]]
    path = str(write_jsonl(*rows))
    assert load_problem_sets(ProblemSource(path, COLUMNS), STYLE, Split()).account == (
        f"{path}: 10 rows read, 7 usable; 7 to train on, 0 held out",
        "dropped 1: row is not an object (row 7: 7)",
        "dropped 1: missing answer (row 8: a)",
        "dropped 1: empty problem (row 9: {'problem': '', 'answer': '1'})",
        "rows that repeat an earlier problem, kept unless it is held out: 1",
    )


def test_no_training_problem_left_is_refused_with_the_account(write_jsonl: WriteJsonl) -> None:
    path = str(write_jsonl(*sums(3), {"problem": "a", "answer": None}))
    said = r"no problem is left to train on: .*8 rows read, 6 usable.*missing answer.*the same problem is held out: 3"
    with pytest.raises(UserError, match=said):
        load_problem_sets(ProblemSource(path, COLUMNS, eval_split=path), STYLE, Split())


LOADS = [lambda source: check_source(source, STYLE), lambda source: load_problem_sets(source, STYLE, Split())]


@pytest.mark.parametrize("load", LOADS)
def test_checking_and_loading_refuse_the_same_bad_files(
    load: Callable[[ProblemSource], object], write_jsonl: WriteJsonl, tmp_path: Path
) -> None:
    path = str(write_jsonl(*sums(2)))
    (tmp_path / "header_only.csv").write_text("problem,answer\n")
    bad = {
        r"missing\.jsonl does not exist": ProblemSource(str(tmp_path / "missing.jsonl"), COLUMNS),
        r'no column "problems".*nearest to it is "problem"': ProblemSource(path, Columns("problems", "answer")),
        r"two\.jsonl does not exist": ProblemSource(path, COLUMNS, eval_split=str(tmp_path / "two.jsonl")),
        r'eval_split is "test", but dataset\.name is a file': ProblemSource(path, COLUMNS, eval_split="test"),
        r'arithmetic has no column "steps"': ProblemSource("arithmetic", Columns("problem", "answer", "steps")),
        r"header_only\.csv has no rows": ProblemSource(str(tmp_path / "header_only.csv"), COLUMNS),
    }
    for message, source in bad.items():
        with pytest.raises(UserError, match=message):
            load(source)
