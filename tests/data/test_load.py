"""Loading a problem set from end to end, and dividing it: by seed, held-out problems first, with none in common."""

import json
from dataclasses import replace

import pytest

from rlvr_vocab.data.generators import ArithmeticTask
from rlvr_vocab.data.load import check_source, lay_out, partition, read_problems
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split
from rlvr_vocab.errors import UserError

COLUMNS = Columns("problem", "answer")
STYLE = PromptStyle(None)


def sums(count, start=0):
    return [{"problem": f"{number}+1=", "answer": number + 1} for number in range(start, start + count)]


def load(source, split=None):
    return lay_out(read_problems(source, split or Split()), STYLE)


def asked(dataset):
    """The problems of a data set, as the model is asked them."""
    assert dataset is not None
    return {prompt[-1]["content"] for prompt in dataset["prompt"]}


def test_a_second_file_is_held_out_and_taken_out_of_training(write_jsonl):
    train = write_jsonl(*sums(10), name="train.jsonl")
    test = write_jsonl(*sums(4, start=8), {"problem": "?", "answer": ""}, name="test.jsonl")
    source = ProblemSource(str(train), COLUMNS, eval_split=str(test))
    loaded = load(source, Split(max_eval_samples=3))
    assert loaded.eval is not None and len(asked(loaded.eval) & {"8+1=", "9+1=", "10+1=", "11+1="}) == 3
    assert asked(loaded.train) == {f"{number}+1=" for number in range(8)}
    assert loaded.account[0] == f"{train}: 15 rows read, 14 usable; 8 to train on, 3 held out"
    assert loaded.account[1:] == (
        f"dropped 1: missing answer, in {test} (row 5: ?)",
        "left out of training, as the same problem is held out: 2",
        "held out too, but beyond dataset.max_eval_samples: 1",
        "accuracy on 3 held-out problems has a 95 % interval of up to ±37 points; for more of them set "
        "dataset.max_eval_samples=null",
    )


def test_short_and_repeated_rows_of_a_table_are_counted_and_decimal_commas_warned_of(tmp_path):
    path = tmp_path / "p.csv"
    rows = [f"{number}+1=;{number + 1},5;kg" for number in range(8)]
    path.write_text("\n".join(["problem;answer;unit", *rows, "a;9,5", "problem;answer;unit", ";1,5;m"]))
    source = ProblemSource(str(path), Columns("{problem} in {unit}", "answer"))
    loaded = load(source, Split(eval_fraction=0.25))
    assert loaded.account == (
        f"{path}: 11 rows read, 10 usable; 8 to train on, 2 held out",
        "dropped 1: row repeats the header (row 10: ['problem', 'answer', 'unit'])",
        "rows without problem, which the problem joins: 1",
        "rows without unit, which the problem joins: 1",
        "rows with fewer cells than the table has columns: 1",
        "accuracy on 2 held-out problems has a 95 % interval of up to ±41 points",
        "warning: answers such as 1,5: if that means 1.5, set dataset.decimal=comma",
    )
    assert "for more of them set dataset.eval_fraction=0.2" in load(source, Split(eval_fraction=0.1)).account[-2]
    assert "warning" not in "".join(load(replace(source, decimal="comma"), Split()).account)


def test_every_problem_is_known_by_its_row_and_is_where_training_has_it(write_jsonl):
    train = write_jsonl({"problem": "", "answer": "1"}, *sums(6), name="train.jsonl")
    test = write_jsonl({"problem": "a", "answer": ""}, *sums(2, start=6), name="test.jsonl")
    divided = read_problems(ProblemSource(str(train), COLUMNS, eval_split=str(test)), Split())
    assert [problem.row_number for problem in divided.problems] == [2, 3, 4, 5, 6, 7, 2, 3]
    laid_out = lay_out(divided, STYLE)
    assert laid_out.eval is not None
    texts = [problem.text for problem in divided.problems]
    for indices, rows in ((divided.parts.train, laid_out.train), (divided.parts.held_out, laid_out.eval)):
        assert [texts[index] for index in indices] == [prompt[-1]["content"] for prompt in rows["prompt"]]
        golds = [int(text.partition("+")[0]) + 1 for text in rows["problem"]]
        assert rows["solution"][:] == rows["answer"][:] == rows["raw_answer"][:] == golds


@pytest.mark.slow
def test_all_gsm8k_problems_load_with_a_number_as_solution(real_data):
    path = real_data / "gsm8k_train.jsonl"
    loaded = load(ProblemSource(str(path), Columns("question", "answer", reasoning="answer"), answer_format="hash"))
    assert len(loaded.train) == 7473 and loaded.account[1:] == ()
    by_question = dict(zip(loaded.train["question"], loaded.train["solution"], strict=True))
    for row in map(json.loads, path.read_text(encoding="utf-8").split("\n")[:-1]):
        expected = float(row["answer"].splitlines()[-1].removeprefix("#### ").replace(",", ""))
        assert float(by_question[row["question"]]) == expected


def test_no_training_problem_left_is_refused_with_the_account(write_jsonl):
    path = str(write_jsonl(*sums(3), {"problem": "a", "answer": None}))
    said = r"no problem is left to train on: .*8 rows read, 6 usable.*missing answer.*the same problem is held out: 3"
    with pytest.raises(UserError, match=said):
        load(ProblemSource(path, COLUMNS, eval_split=path))


@pytest.mark.parametrize("read", [load, lambda source: check_source(source, STYLE)])
def test_checking_and_loading_refuse_the_same_bad_files(read, write_jsonl, tmp_path):
    path = str(write_jsonl(*sums(2)))
    (tmp_path / "header_only.csv").write_text("problem,answer\n")
    bad = {
        r"missing\.jsonl does not exist": ProblemSource(str(tmp_path / "missing.jsonl"), COLUMNS),
        r'no column "problems"; .*; type dataset\.columns\.problem=problem ': ProblemSource(
            path, Columns("problems", None)
        ),
        r"two\.jsonl does not exist": ProblemSource(path, COLUMNS, eval_split=str(tmp_path / "two.jsonl")),
        r'eval_split is "test", but dataset\.name is a file': ProblemSource(path, COLUMNS, eval_split="test"),
        r'arithmetic has no column "steps"': ProblemSource(
            "arithmetic", Columns("problem", "answer", "steps"), generator=ArithmeticTask()
        ),
        r"header_only\.csv has no rows": ProblemSource(str(tmp_path / "header_only.csv"), COLUMNS),
    }
    for message, source in bad.items():
        with pytest.raises(UserError, match=message):
            read(source)


KEYS = [f"problem {number}" for number in range(100)]


@pytest.mark.parametrize(
    ("fraction", "cap", "held_out", "train"),
    [(0.0, None, 0, 100), (0.25, 7, 7, 75), (0.001, None, 1, 99), (0.5, 0, 0, 50), (0.1, 50, 10, 90)],
)
def test_a_fraction_leaves_training_and_up_to_the_cap_is_measured_on(fraction, cap, held_out, train):
    parts = partition(KEYS, None, Split(eval_fraction=fraction, max_eval_samples=cap))
    assert (len(parts.held_out), len(parts.train)) == (held_out, train)
    assert len(parts.reserved) == 100 - train
    assert len({*parts.held_out, *parts.train}) == held_out + train


@pytest.mark.parametrize("eval_keys", [None, [f"problem {number}" for number in range(50, 130)]])
def test_a_larger_cap_later_meets_only_problems_that_a_capped_run_never_trained_on(eval_keys):
    fraction = 0.0 if eval_keys else 0.3
    capped = partition(KEYS, eval_keys, Split(eval_fraction=fraction, max_eval_samples=7))
    uncapped = partition(KEYS, eval_keys, Split(eval_fraction=fraction))
    keys = [*KEYS, *(eval_keys or [])]
    trained = {keys[index] for index in capped.train}
    assert trained.isdisjoint(keys[index] for index in uncapped.held_out)
    assert capped.train == uncapped.train
    assert capped.held_out == uncapped.held_out[:7]
    assert capped.reserved == uncapped.reserved
    few = partition(KEYS, eval_keys, Split(eval_fraction=fraction, max_train_samples=5))
    assert few.train == uncapped.train[:5] and few.held_out == uncapped.held_out


def test_repeats_of_a_held_out_problem_leave_training_before_it_is_cut():
    keys = [f"problem {number % 10}" for number in range(40)]
    parts = partition(keys, None, Split(eval_fraction=0.2, max_train_samples=10))
    held_out_keys = {keys[index] for index in parts.held_out}
    assert held_out_keys.isdisjoint(keys[index] for index in parts.train)
    assert len(parts.train) == 10
    assert len(parts.held_out) == len(held_out_keys) == 2  # a fifth of ten problems, not of forty rows
    assert parts.removed == 6
