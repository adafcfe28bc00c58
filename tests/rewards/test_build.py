"""Named rewards, of the library and of files, become the functions and weights of a run."""

import sys

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.adaptive import Adaptation
from rlvr_vocab.rewards.build import DEADLINE, RewardContext, build_rewards, load_function, required_columns
from rlvr_vocab.rewards.reward import RewardSpec, Score

CONTEXT = RewardContext(("[r]", "[/r]"), 64)
SOURCE = """
import functools
from rlvr_vocab.rewards.reward import Score, reward

def only(completions): return [1.0] * len(completions)
def keyword_only(*, completions, solution): return [float(gold == "3") for gold in solution]
def with_level(completions, level=None): return [level] * len(completions) if not isinstance(level, list) else level
def everything(**columns): return [float(len(columns))] * len(columns["completions"])
def tags(completions, think_tags, max_completion_length): return [think_tags[0] == "[r]" and max_completion_length] * 2
half = functools.partial(with_level, level=0.5)
@reward(full_mark=2.0)
def reasoned(completions, **columns): return [Score(2.0, "because") for _ in completions]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return lambda function: f"{path}:{function}"


def built(name, context=CONTEXT, **fields):
    [reward] = build_rewards([RewardSpec(name, **fields)], context)
    return reward


def scores(reward, solution=("3", "4"), **columns):
    return reward(completions=["a", "b"], prompts=["p", "p"], solution=list(solution), **columns)


def test_functions_of_one_name_are_logged_under_different_names(tmp_path, mine):
    (tmp_path / "my clash.py").write_text(
        "def accuracy(completions): return [0.5] * len(completions)\naccuracy_3 = accuracy\n"
    )
    clash, third = f"{tmp_path}/my clash.py:accuracy", f"{tmp_path}/my clash.py:accuracy_3"
    names = ["accuracy", clash, "accuracy", "boxed", mine("only"), mine("only"), clash, "accuracy", third]
    rewards = build_rewards([RewardSpec(name) for name in names], CONTEXT)
    expected = "accuracy my_clash_accuracy accuracy_2 boxed only only_2 my_clash_accuracy_2 accuracy_4 accuracy_3"
    assert [reward.name for reward in rewards] == expected.split()
    assert scores(rewards[0]) == [0.0, 0.0] and scores(rewards[1]) == [0.5, 0.5]


def test_parameters_come_before_columns_and_columns_before_defaults(mine):
    assert scores(built(mine("with_level")), level=[1, 2]) == [1.0, 2.0]
    assert scores(built(mine("with_level"), params={"level": 0.5}), level=[1, 2]) == [0.5, 0.5]
    # A column called like a parameter of the library is no value for it.
    assert scores(built("length", params={"longest": 3, "unit": "words"}), unit=["cm", "m"]) == [1.0, 1.0]


def test_a_reward_has_the_full_mark_and_reasons_of_its_function_and_the_tags_of_the_run(mine):
    assert (built("xml_tags").full_mark, built(mine("only")).full_mark) == (0.5, 1.0)
    assert (built(mine("reasoned")).full_mark, built(mine("reasoned"), full_mark=1.5).full_mark) == (2.0, 1.5)
    assert built(mine("reasoned")).explain(completions=["a"]) == [Score(2.0, "because")]
    adaptive = built(mine("reasoned"), weight=0.5, adaptive=Adaptation(window=1)).adaptive
    adaptive.observe([1.0, 1.0])  # below the full mark of 2
    assert adaptive.value == pytest.approx(0.6)
    specs = [RewardSpec(mine("only")), RewardSpec(mine("only"), deadline=5.0), RewardSpec("boxed")]
    assert [reward.deadline for reward in build_rewards(specs, CONTEXT)] == [DEADLINE, 5.0, None]
    turns = ["[r]x[/r]\\boxed{3}", "[r]\\boxed{3}", "<think>\\boxed{3}"]
    assert built("accuracy", weight=0.5)(completions=turns, solution=["3"] * 3, prompts=[""] * 3) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("keyword_only", [1.0, 0.0]),
        ("everything", [4.0, 4.0]),  # completions, prompts, solution and level
        ("half", [0.5, 0.5]),
        ("tags", [64.0, 64.0]),
    ],
)
def test_functions_of_any_signature_get_what_they_ask_for(mine, function, expected):
    assert scores(built(mine(function), params={}), **({} if function == "half" else {"level": [1, 2]})) == expected


def test_required_columns_are_parameters_without_a_value(mine):
    assert required_columns(RewardSpec("accuracy")) == ["solution"]
    assert required_columns(RewardSpec(mine("tags"))) == ["think_tags", "max_completion_length"]
    assert required_columns(RewardSpec(mine("tags"), params={"think_tags": []})) == ["max_completion_length"]
    assert required_columns(RewardSpec("accuracy"), trainer=()) == ["completions", "solution"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (RewardSpec("acuracy"), "no reward acuracy; did you mean accuracy?"),
        (RewardSpec("length", params={"longst": 1}), "length has no parameter longst; did you mean longest?"),
        (RewardSpec("boxed", deadline=5.0), "boxed is of the library, ends by itself, and takes no deadline"),
        (RewardSpec("builtins:max"), "builtins:max takes no parameter completions"),
    ],
)
def test_a_wrong_name_or_parameter_is_refused(spec, said):
    with pytest.raises(UserError) as caught:
        build_rewards([spec], CONTEXT)
    assert said in str(caught.value)


FILE = """
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


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "my rewards.py"
    path.write_text(FILE)
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


def test_a_file_may_import_its_neighbours_and_hides_no_package(file, tmp_path, monkeypatch):
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
        ("my reward.py:shouts", "no such file my reward.py"),
        ("no_such_module:shouts", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_found_is_named_with_the_nearest(name, said, file):
    message = refusal(name.format(file=file))
    assert message.startswith("rewards: ") and said.format(file=file) in message


def test_a_file_that_cannot_be_imported_says_why_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "broken.py"
    for source, why in (("x = (", "SyntaxError, line 1"), ("raise SystemExit(3)", "SystemExit: 3"), (FILE, "")):
        path.write_text(source)
        assert why in refusal(f"{path}:f")
    assert load_function(f"{path}:judge")([""]) == [0.5]
