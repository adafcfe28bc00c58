"""The tools that a checkpoint is evaluated with: its run's, unless others are asked for."""

from pathlib import Path

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards, load_attribute
from rlvr_vocab.rewards.guard import dry_run
from rlvr_vocab.rewards.reward import RewardSpec, only_allowed_code
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


ENVIRONMENT = '''
class Game:
    def reset(self, **row):
        self.score = len(row["solution"])

    def wait(self) -> str:
        """Waits."""

    def get_reward(self):
        return 1 / (self.score - 3)


class Later(Game):
    async def get_reward(self):
        return -1.0


class Free(Game):
    get_reward = None
'''


def test_the_reward_of_an_environment_is_the_last_of_its_run_unless_it_is_named(tmp_path):
    file = tmp_path / "game.py"
    file.write_text(ENVIRONMENT)

    def rewards(*words, command="train"):
        functions = read_settings(command, [*words, f"environment={file}:Game"]).rewards.functions
        return [(spec.name.rpartition(":")[2], spec.weight) for spec in functions]

    quickstart = ("experiment=quickstart",)
    assert rewards(*quickstart, "rewards=[]") == [("Game", 1.0)]
    assert rewards(*quickstart, "rewards=[boxed]") == [("boxed", 1.0), ("Game", 1.0)]
    named = f"rewards=[{{name: '{file}:Game', weight: 0.5}},boxed]"
    assert rewards(*quickstart, named) == [("Game", 0.5), ("boxed", 1.0)]
    assert rewards("model=tiny", "dataset=arithmetic", "rewards=[]", command="score") == [("Game", 1.0)]


def test_an_environment_scores_its_own_completions_and_a_failure_costs_its_row(tmp_path):
    file = tmp_path / "game.py"
    file.write_text(ENVIRONMENT)
    game, later = build_rewards([RewardSpec(f"{file}:Game"), RewardSpec(f"{file}:Later")], RewardContext())
    of_game, of_later = (load_attribute(f"{file}:{name}") for name in ("Game", "Later"))
    environments = [of_game(), of_later(), of_game()]
    for environment, solution in zip(environments, ("12345", "1", "123"), strict=True):
        environment.reset(solution=solution)
    columns = {"completions": ["a", "b", "c"], "environments": environments}
    assert game(**columns) == [0.5, None, None] and game.failures == 1
    assert later(**columns) == [None, -1.0, None] and later.failures == 0
    with pytest.raises(UserError, match="reward Game needs an environment to act in: add environment=… in its trial"):
        dry_run(game, [{"prompt": "a"}], ["b"])
