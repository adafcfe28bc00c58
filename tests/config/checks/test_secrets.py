"""A configuration with a secret is refused before anything is written, and the secret is seen nowhere."""

import json
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.folder import environment
from tests.settings import load_settings, refusal

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3f"
TINY = ["model=tiny", "dataset=arithmetic", "logging=disabled"]


@pytest.fixture(autouse=True)
def without_secrets(monkeypatch):
    for name in ("HF_TOKEN", "WANDB_API_KEY", "JUDGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("command", "words", "key"),
    [
        ("train", ["+model.model_kwargs.token=anything"], "model.model_kwargs.token"),
        ("train", [f"exp_name={SECRET}", "exp_name=mine"], "exp_name"),  # the words that were typed are recorded too
        ("train", ["rewards=[{name:accuracy,params:{api_key:anything}}]"], "rewards.functions.params.api_key"),
        ("train", ["stages=[{name: one, training: {hub_token: anything}}]"], "stages.training.hub_token"),
        ("expand", [f"+model.model_kwargs.token={SECRET}", "out=expanded"], "model.model_kwargs.token"),
    ],
)
def test_a_secret_is_refused_with_its_key_and_where_it_belongs(command, words, key):
    line = refusal(command, [*(TINY if command == "train" else TINY[:1]), *words])
    assert line.startswith(f"{key} holds a secret, which would be recorded: leave it")
    assert "to the environment (HF_TOKEN" in line and SECRET not in line and "anything" not in line
    assert list(Path.cwd().iterdir()) == []


def test_a_secret_that_the_environment_holds_is_known_through_an_interpolation(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "plain words")
    line = refusal("train", [*TINY, "exp_name=${oc.env:JUDGE_API_KEY}"])
    assert line.startswith("exp_name holds a secret")
    assert line.endswith("to the environment (JUDGE_API_KEY)") and "plain words" not in line


def test_a_secret_in_a_file_is_refused_with_its_whole_key():
    Path("conf/experiment").mkdir(parents=True)
    proxies = "{https: 'http://me:anything1@example.org'}"
    text = f"# @package _global_\nmodel: {{model_kwargs: {{proxies: {proxies}}}}}\n"
    Path("conf/experiment/mine.yaml").write_text(text)
    with pytest.raises(UserError, match=r"^model\.model_kwargs\.proxies\.https holds a secret") as caught:
        load_settings("train", [*TINY, "--config-dir=conf", "experiment=mine"])
    assert "anything" not in str(caught.value)


def test_the_recorded_command_line_holds_no_secret(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef")
    monkeypatch.setattr("sys.argv", ["rlvr-vocab", "train", "x=0123456789abcdef", f"y={SECRET}", "model=tiny"])
    found = environment()
    assert found["command"] == ["rlvr-vocab", "train", "x=***", "y=***", "model=tiny"]
    assert SECRET not in json.dumps(found)
