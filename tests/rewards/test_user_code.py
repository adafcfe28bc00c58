"""A reward named by its file or module is found, and what is wrong with it is said in one line."""

import sys

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.user_code import load_function

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass

CONSTANT = 3

def shouts(completions, **columns):
    return [float(turn.isupper()) for turn in completions]

@dataclass
class Judge:
    score: float = 0.5
    def __call__(self, completions):
        return [self.score] * len(completions)
    def strict(self, completions):
        return [0.0] * len(completions)

judge = Judge()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my rewards.py"
    path.write_text(SOURCE)
    return path


def refusal(name):
    with pytest.raises(UserError) as caught:
        load_function(str(name))
    return " ".join(str(caught.value).split())


def test_functions_objects_and_methods_of_a_file_are_found(file):
    assert load_function(f"{file}:shouts")(["A", "b"]) == [1.0, 0.0]
    assert load_function(f"{file}:judge")(["A"]) == [0.5]
    assert load_function(f"{file}:judge.strict")(["A"]) == [0.0]
    assert load_function("math:hypot")(3.0, 4.0) == 5.0
    same = load_function("my rewards.py:judge.strict")  # run once, whatever path names it
    assert same.__self__ is load_function(f"{file}:judge")


def test_a_file_may_import_its_neighbours_and_hides_no_package(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    late = "import colorsys\ndef late(completions):\n    import neighbour\n    return [neighbour.ANSWER]"
    files = {"neighbour": "ANSWER = 42", "colorsys": "raise RuntimeError('called like a package')", "mine": late}
    (tmp_path / "rewards").mkdir()
    for name, text in files.items():
        (tmp_path / "rewards" / f"{name}.py").write_text(text)
    assert load_function("rewards/mine.py:late")([""]) == [42]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{file}:shots", "'shots' does not exist in {file}; did you mean shouts?"),
        ("{file}:CONSTANT", "CONSTANT is no function"),
        ("my reward.py:shouts", "no such file my reward.py; did you mean my rewards.py?"),
        ("no_such_module:shouts", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        (":shouts", "cannot be imported: ValueError"),
        ("my rewards:shouts", "name the file: my rewards.py:shouts"),
    ],
)
def test_what_cannot_be_found_is_named_with_the_nearest(name, said, file):
    message = refusal(name.format(file=file))
    assert message.startswith("rewards: ") and said.format(file=file) in message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = (", "SyntaxError, line 1"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why_and_leaves_nothing_behind(source, said, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(source)
    assert said in refusal(f"{path}:f")
    path.write_text(SOURCE)
    assert load_function(f"{path}:judge")([""]) == [0.5]
