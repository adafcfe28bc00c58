"""`--cfg job`: the composed configuration as YAML."""

import pytest
import yaml

from rlvr_vocab.config.help import command_help, composed_yaml
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError

SECRET = "hf_" + "a1" * 15


def test_the_configuration_is_printed_with_its_interpolations_or_resolved() -> None:
    words = ["seed=5", "training.max_steps=3", "logging=disabled"]
    composed = yaml.safe_load(composed_yaml("train", words, resolve=False))
    assert composed["output_dir"] == "./out/${exp_name}" and composed["training"]["max_steps"] == 3
    resolved = yaml.safe_load(composed_yaml("train", words, resolve=True))
    assert resolved["output_dir"] == "./out/grpo_baseline" and resolved["seed"] == 5
    recorded = read_settings("train", words).resolved
    assert resolved["dataset"] == recorded["dataset"]


def test_a_secret_is_masked_in_it() -> None:
    words = [f"dataset.name={SECRET}", "+model.model_kwargs.token=short"]
    composed = yaml.safe_load(composed_yaml("train", words, resolve=False))
    assert composed["dataset"]["name"] == "***" == composed["model"]["model_kwargs"]["token"]
    assert composed["model"]["model_kwargs"]["torch_dtype"] == "bf16"


def test_a_command_that_lacks_a_key_is_printed_all_the_same() -> None:
    assert yaml.safe_load(composed_yaml("evaluate", ["samples=4"], resolve=True))["checkpoint"] == "???"


def test_an_interpolation_that_leads_nowhere_is_one_line() -> None:
    with pytest.raises(UserError, match="exp_name: Interpolation key 'nope' not found"):
        composed_yaml("train", ["exp_name=${nope}"], resolve=True)


def test_the_help_of_what_trains_names_sweeps_and_every_help_the_whole_configuration() -> None:
    assert "--multirun" in command_help("train", []) and "--cfg job" in command_help("train", [])
    assert "--multirun" not in command_help("evaluate", []) and "--cfg job" in command_help("evaluate", [])
