"""A run from elsewhere names code: no command imports it unless this command line names it, or says trust_code=true."""

from pathlib import Path

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.rewards.build import find_function
from rlvr_vocab.rewards.reward import only_allowed_code
from rlvr_vocab.runs.rewards import grader_of_run

CODE = (
    "from pathlib import Path\nPath('imported').touch()\ndef correct(completions, **columns):\n    return [1.0] * 8\n"
)
NAMES = "rewards.functions=[accuracy,{name: foreign.py:correct, weight: 0.5}]"


@pytest.fixture(autouse=True)
def foreign_file():
    Path("foreign.py").write_text(CODE)


def recorded(*words, **changes):
    """config=FILE of a run with these words, in which texts are replaced as by an editor."""
    Path("typed.py").write_text("class Own: ...\n")  # an environment is imported where its run is typed
    text = config_yaml(read_settings("train", ["experiment=quickstart", *words]).resolved)
    text = text.replace("typed.py", "foreign.py")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    Path("config.yaml").write_text(text)
    return "config=config.yaml"


CODE_IN_A_STAGE = "stages=[{name: one, training: {trust_remote_code: true}}]"
STAGES = "stages=[{name: one, training: {max_steps: 1}}, {name: two, rewards: {functions: [foreign.py:correct]}}]"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([NAMES], "foreign.py:correct is code"),
        (["evaluation.grader=foreign.py:correct"], "foreign.py:correct is code"),
        ([STAGES], "foreign.py:correct is code"),
        (["training.trainer=foreign.py:Own"], "foreign.py:Own is code"),
        (["tools=[calculator,foreign.py:correct]"], "foreign.py:correct is code"),
        (["environment={name: typed.py:Own, params: {n: 1}}"], "foreign.py:Own is code"),
        (["model.model_kwargs.trust_remote_code=true"], "model.model_kwargs.trust_remote_code=true runs code"),
        ([CODE_IN_A_STAGE], "stages.training.trust_remote_code=true runs code"),
        (["model.model_kwargs.use_kernels=true"], "model.model_kwargs.use_kernels=true runs code"),
        (["model.model_kwargs.attn_implementation=a/kernel"], "model.model_kwargs.attn_implementation=a/kernel runs"),
        (
            ["rewards.functions=[{name: llm_judge, params: {url: 'http://a.b', model: m, rubric: r}}]"],
            "llm_judge sends",
        ),
    ],
)
def test_training_from_a_recorded_run_refuses_the_code_that_it_names(words, named, error_of):
    file = recorded(*words)
    message = error_of("train", file, "output_dir=again")
    assert named in message and "trust_code=true" in message
    assert not Path("imported").exists() and not Path("again").exists()


def test_a_parameter_of_a_recorded_reward_imports_nothing():
    file = recorded("rewards.functions=[{name: cosine_length, params: {grader: foreign.py:correct}}]")
    with only_allowed_code():
        grader_of_run(read_settings("train", [file]))
    assert not Path("imported").exists()


def test_neither_a_recorded_file_nor_other_keys_typed_over_it_allow_its_code():
    recorded(NAMES, seed="trust_code: true\nseed")
    for word in ("output_dir=b", "evaluation.threshold=0.5", "evaluation.grader=correct"):
        assert main(["train", "config=config.yaml", "output_dir=again", word]) == 2
    assert not Path("imported").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=quickstart", STAGES],
        ["config=config.yaml", NAMES],
        ["config=config.yaml", "tools=[foreign.py:correct]"],
        ["config=config.yaml", "environment=foreign.py:correct", "environment.params.n=3"],
        ["config=config.yaml", "evaluation.grader=foreign.py:correct"],
    ],
)
def test_code_that_this_command_line_names_is_imported(words):
    recorded(NAMES)
    with only_allowed_code():
        read_settings("train", words)
        find_function(str(Path("foreign.py").absolute()) + ":correct")
    assert Path("imported").exists()
