"""What is said of a file that cannot be placed can be typed as it stands, and then places it."""

import csv
import shlex

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import problem_source
from rlvr_vocab.data.load import read_usable_rows
from rlvr_vocab.data.source import Columns, ProblemSource
from rlvr_vocab.errors import UserError

STEM = {"stem": "2+2?", "choices": [{"text": "4", "label": "A"}, {"text": "6", "label": "B"}]}
HUMANEVAL = {"prompt": "def f(n):", "entry_point": "f", "canonical_solution": " pass"}
APPS = {"question": "Double it.", "solutions": "[]", "starter_code": "def f(n):"}
VERL = {"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"style": "rule", "ground_truth": "2"}}


@pytest.mark.parametrize(
    ("row", "typed", "text", "solution"),
    [
        (
            {"Body": "Ada has 2.", "Question": "How many?", "Answer": 2.0},
            ["answer=Answer"],
            "Ada has 2. How many?",
            2.0,
        ),
        (
            {"question": "2+2?", "options": ["A)4", "B)6"], "rationale": "Two, three, four.", "correct": "A"},
            ["problem=question", "choices=options", "answer=correct", "multiple_choice"],
            *("2+2?\nA. 4\nB. 6", "A"),
        ),
        (
            {"id": "7-1", "question": STEM, "answerKey": "B"},
            ["problem=question.stem", "choices=question.choices", "answer=answerKey", "multiple_choice"],
            *("2+2?\nA. 4\nB. 6", "B"),
        ),
        (
            {**HUMANEVAL, "test": "def check(candidate):\n    assert candidate(1) == 2\n"},
            ["problem=prompt", "tests=test", "answer=null", "code_tests"],
            *("def f(n):", None),
        ),
        (
            {**APPS, "input_output": '{"fn_name": "f", "inputs": [[1]], "outputs": [[2]]}'},
            ["tests=input_output", "answer=null", "code_tests"],
            *("Double it.\n\ndef f(n):", None),
        ),
        ({"problem": "1+1?", "solution": r"Count: \boxed{2}."}, ["answer=solution", "format=boxed"], "1+1?", "2"),
        (VERL, ["problem=prompt", "answer=reward_model.ground_truth"], "1+1?", "2"),
        ({"input": "A or B?", "target": "(B)"}, ["problem=input", "answer=target"], "A or B?", "(B)"),
        (
            {"Question": "Which?", "Correct Answer": "tin", "Incorrect Answer 1": "gas", "Incorrect Answer 2": "air"},
            ["choices=[Correct Answer,", "answer=Correct Answer", "multiple_choice"],
            *("Which?\nA. tin\nB. gas\nC. air", "A"),
        ),
        (
            {"question": "is it", "passage": "It is.", "answer": True},
            ["prompt={passage} {question}", "answer=answer"],
            *("It is. is it\nAnswer true or false.", True),
        ),
        ({"question": "Who?", "final_answer": ["Ada"]}, ["problem=question", "answer=final_answer.0"], "Who?", "Ada"),
    ],
)
def test_the_keys_that_are_named_for_a_file_place_it(write_jsonl, row, typed, text, solution):
    path = write_jsonl(row, row)
    with pytest.raises(UserError) as caught:
        read_usable_rows(ProblemSource(str(path), Columns("problem", "answer")), seed=0)
    said = str(caught.value).partition("; type ")[2]
    assert all(word in said for word in typed) and ("; train with" in said) is ("_" in typed[-1].partition("=")[0])
    [problem, _] = placed(path, said.partition("; train with")[0])
    assert (problem.text, problem.solution) == (text, solution)


def test_columns_with_unknown_names_are_told_apart_by_their_cells(write):
    rows = ("Nr;Thema;Aufgabe;Weg;Lösung", "1;Zahl;Was ist 3,5 plus 1?;Man zählt lange von 3,5 an.;4,5")
    path = write("p.csv", "\n".join((*rows, "2;Zahl;Was ist 1 plus 1?;Man zählt von 1 eins weiter.;2")))
    with pytest.raises(UserError) as caught:
        read_usable_rows(ProblemSource(str(path), Columns("problem", "answer")), seed=0)
    keys = str(caught.value).partition("; type ")[2]
    assert keys == "dataset.columns.problem=Aufgabe 'dataset.columns.answer=Lösung' dataset.decimal=comma"
    assert next((each.text, each.solution) for each in placed(path, keys)) == ("Was ist 3,5 plus 1?", "4.5")


@pytest.mark.parametrize("repeated", [False, True])
def test_a_table_without_a_header_is_named_and_then_read(tmp_path, repeated):
    with (path := tmp_path / "abstract_algebra_test.csv").open("w", newline="") as file:
        first = ["Is <x>, f(x), a field?", "1", "True, False", "0", "0" if repeated else "No", "B"]
        csv.writer(file).writerows([first, ["Which is the index?", "8", "2", "24", "120", "C"]])
    with pytest.raises(UserError) as caught:
        read_usable_rows(ProblemSource(str(path), Columns("problem", "answer")), seed=0)
    keys = str(caught.value).partition("type ")[2].partition("; train with")[0]
    assert keys == "'dataset.header=[problem,A,B,C,D,answer]' 'dataset.columns.choices=[A,B,C,D]'"
    assert [each.solution for each in placed(path, keys)] == ["B", "C"]


def placed(path, keys):
    settings = read_settings("check", [f"dataset={path}", *shlex.split(keys)])
    return read_usable_rows(problem_source(settings.dataset), seed=0).problems
