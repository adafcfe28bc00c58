"""The tools that a checkpoint is evaluated with: its run's, unless others are asked for."""

from pathlib import Path

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import only_allowed_code
from rlvr_vocab.runs.folder import RunOfCheckpoint
from rlvr_vocab.runs.tools import OF_TOOLS, ToolUse, tools_of_run

RUN = ("tools=[calculator]", "training.max_tool_calling_iterations=3")


def use(*words, run=RUN):
    trained = RunOfCheckpoint()
    if run:
        settings = read_settings("train", ["experiment=quickstart", *run])
        trained = RunOfCheckpoint(Path("out"), settings, max_tool_calling_iterations=3)
    return ToolUse.of(read_settings("evaluate", ["checkpoint=c", "dataset=arithmetic", *words]), trained)


def test_the_keys_of_a_run_hold_until_others_are_asked_for():
    own = {"tools": ("calculator",), "environment": None, "max_tool_calling_iterations": 3, "past_thinking": "keep"}
    assert vars(use()) == own
    assert vars(use("past_thinking=strip", "max_tool_calling_iterations=1")) == own | {
        "past_thinking": "strip",
        "max_tool_calling_iterations": 1,
    }
    assert use("environment=env.py:Env").tools == () and use("environment.name=env.py:Env").environment is not None
    for alone in (use("tools=[]"), use(run=())):
        assert tools_of_run(alone) == {} and alone.record() == dict.fromkeys(OF_TOOLS)


def test_a_tool_that_a_recorded_run_alone_names_is_not_imported():
    Path("own.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    of_run = use(run=("tools=[own.py:look]",))
    with only_allowed_code(), pytest.raises(UserError, match=r"own.py:look is code.*trust_code=true"):
        tools_of_run(of_run)
    assert not Path("imported").exists()
    with only_allowed_code(), pytest.raises(UserError, match="'look' does not exist"):
        tools_of_run(use("tools=[own.py:look]"))
    assert Path("imported").exists()


@pytest.mark.parametrize("key", ["tools=[{}]", "environment={}"])
def test_tools_of_a_script_are_to_be_named(key):
    with pytest.raises(UserError) as refused:
        tools_of_run(use(run=(key.format("python:/a/train.py:look"),)))
    assert "look is code of a Python script" in str(refused.value)
    assert f"give {key.format('/a/train.py:look')}, which imports that file" in str(refused.value)
