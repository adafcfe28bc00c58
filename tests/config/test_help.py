"""`--cfg job`, `--show KEY` and `--help`: the composed configuration as YAML, one value of it, and all as a list."""

import pytest
import yaml

from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.config.help import printed
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError

SECRET = "hf_" + "a1" * 15


def shown(command, *words):
    text = printed(parse_command_line(command, words))
    assert text is not None
    return text


def test_the_configuration_is_printed_with_its_interpolations_or_resolved():
    words = ["seed=5", "training.max_steps=3", "logging=disabled"]
    composed = yaml.safe_load(shown("train", *words, "--cfg", "job"))
    assert composed["output_dir"] == "./out/${exp_name}" and composed["training"]["max_steps"] == 3
    resolved = yaml.safe_load(shown("train", *words, "--cfg", "job", "--resolve"))
    assert resolved["output_dir"] == "./out/grpo_baseline" and resolved["seed"] == 5
    assert resolved["dataset"] == read_settings("train", words).resolved["dataset"]
    assert yaml.safe_load(shown("evaluate", "samples=4", "--cfg", "job"))["checkpoint"] == "???"


@pytest.mark.parametrize("option", ["--help", "--cfg=job", "--show=rewards.functions"])
def test_no_option_prints_a_secret(option):
    rewards = "rewards.functions=[{name:accuracy,params:{api_key:plainword}}]"
    words = [f"dataset.name={SECRET}", "+model.model_kwargs.token=plainword", rewards]
    text = shown("train", *words, option)
    assert "***" in text and SECRET not in text and "plainword" not in text
    for key in ("dataset.name", "model.model_kwargs.token"):
        assert shown("train", *words, f"--show={key}") == "***"


def test_one_value_is_printed_as_it_can_be_typed():
    assert shown("train", "seed=5", "--show", "output_dir") == "./out/grpo_baseline"
    assert shown("train", "--show", "training.max_steps") == "null"
    with pytest.raises(UserError, match=r"--show training.max_step: .*did you mean training.max_steps\?"):
        shown("train", "--show", "training.max_step")
    with pytest.raises(UserError, match=r"unknown key sede; did you mean seed\?"):
        shown("train", "sede=3", "--show", "seed")
    with pytest.raises(UserError, match="exp_name: Interpolation key 'nope' not found"):
        shown("train", "exp_name=${nope}", "--show", "exp_name")
