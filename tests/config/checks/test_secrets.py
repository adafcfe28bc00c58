"""A configuration with a secret is refused before anything is written, and the secret is seen nowhere."""

import json
from pathlib import Path

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.runs.folder import environment

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3f"
TINY = ["model=tiny", "dataset=arithmetic", "logging=disabled"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "WANDB_API_KEY", "JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def refusal(*words: str, command: str = "train") -> str:
    with pytest.raises(UserError) as caught:
        load_settings(command, [*words])
    assert list(Path.cwd().iterdir()) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("training.hub_token=anything", "training.hub_token"),
        ("+model.model_kwargs.token=anything", "model.model_kwargs.token"),
        (f"exp_name={SECRET}", "exp_name"),
        ("rewards.functions=[{name:accuracy,params:{api_key:anything}}]", "rewards.functions.params.api_key"),
    ],
)
def test_a_secret_is_refused_with_its_key_and_where_it_belongs(word: str, key: str) -> None:
    line = refusal(*TINY, word)
    assert line.startswith(f"{key} holds a secret, which would be recorded with the configuration: leave it out and")
    assert "from the environment (HF_TOKEN" in line and SECRET not in line and "anything" not in line


def test_a_secret_that_the_environment_holds_is_known_through_an_interpolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "plain words")
    line = refusal(*TINY, "exp_name=${oc.env:JUDGE_API_KEY}")
    assert line.startswith("exp_name holds a secret")
    assert line.endswith("from the environment (JUDGE_API_KEY)") and "plain words" not in line


def test_a_secret_in_a_file_is_refused_with_its_whole_key() -> None:
    Path("conf").mkdir()
    proxies = "{https: 'http://me:anything1@example.org'}"
    Path("conf/mine.yaml").write_text(f"defaults: [config, _self_]\nmodel: {{model_kwargs: {{proxies: {proxies}}}}}\n")
    with pytest.raises(UserError, match=r"^model\.model_kwargs\.proxies\.https holds a secret") as caught:
        load_settings("train", [*TINY, "--config-dir=conf", "--config-name=mine"])
    assert "anything" not in str(caught.value)


def test_a_secret_that_a_later_word_takes_back_is_refused_because_words_are_recorded_too() -> None:
    assert refusal(*TINY, f"exp_name={SECRET}", "exp_name=mine").startswith("exp_name holds a secret")


def test_a_secret_in_a_stage_is_refused_too() -> None:
    stages = "stages=[{name: one, training: {hub_token: anything, max_steps: 1}}]"
    assert "hub_token holds a secret" in refusal(*TINY, stages)


@pytest.mark.parametrize(("command", "words"), [("expand", ["out=expanded"]), ("check", ["dataset=arithmetic"])])
def test_other_commands_refuse_secrets_alike(command: str, words: list[str]) -> None:
    words = ["model=tiny", f"+model.model_kwargs.token={SECRET}", *words]
    assert refusal(*words, command=command).startswith("model.model_kwargs.token holds a secret")


def test_whether_to_use_a_token_is_no_secret() -> None:
    for value in ("true", "false", "null"):
        read_settings("train", [*TINY, f"+model.model_kwargs.token={value}"])


def test_the_recorded_command_line_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setattr("sys.argv", ["rlvr-vocab", "train", "x=0123456789abcdef", f"y={SECRET}", "model=tiny"])
    found = environment()
    assert found["command"] == ["rlvr-vocab", "train", "x=***", "y=***", "model=tiny"]
    assert SECRET not in json.dumps(found)


def test_what_a_reward_raised_is_told_without_the_key_of_its_service(caplog: pytest.LogCaptureFixture) -> None:
    def judge(completions: list[str]) -> list[float]:
        raise ConnectionError(f"401 for https://judge.example.org/?key={SECRET}")

    assert Reward(judge, "judge")(completions=["a"]) == [None]
    assert "401 for https://judge.example.org/?key=***" in caplog.text and SECRET not in caplog.text
