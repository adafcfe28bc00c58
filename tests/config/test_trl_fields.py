"""Fields of TRL's GRPOConfig: those that the schema names, those that TRL alone knows, those that nothing reads."""

import dataclasses
import enum
import re

import pytest
import yaml

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import CONF
from rlvr_vocab.config.sections import OURS, GrpoFields, RunSettings
from rlvr_vocab.config.trl_fields import NOT_USED, trl_values
from rlvr_vocab.config.values import keys_of
from rlvr_vocab.errors import UserError


def trl_fields():
    """Fields of GRPOConfig and their defaults as plain values."""
    from trl import GRPOConfig

    found = {}
    for field in dataclasses.fields(GRPOConfig):
        default = None if field.default is dataclasses.MISSING else field.default
        found[field.name] = default.value if isinstance(default, enum.Enum) else default
    return found


def test_every_default_of_trl_is_read_as_it_is():
    values = {name: value for name, value in trl_fields().items() if name not in NOT_USED}
    assert trl_values(values, {}) == values


def test_the_defaults_of_all_training_files_are_those_of_trl():
    shipped = yaml.safe_load((CONF / "training" / "_base.yaml").read_text(encoding="utf-8"))
    of_trl = {name: value for name, value in shipped.items() if name not in OURS and not str(value).startswith("${")}
    assert of_trl == {name: trl_fields()[name] for name in of_trl} | {
        "max_steps": None,
        "save_total_limit": 2,
    }  # -1 and None there
    assert set(keys_of(GrpoFields)) <= set(trl_fields())


@pytest.mark.parametrize("path", sorted((CONF / "training").glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_grpo_config_accepts_every_shipped_training_file(path, tmp_path):
    from rlvr_vocab.training.arguments import grpo_config

    words = [f"training={path.stem}", "training.bf16=false", "training.warmup_ratio=0.1"]
    grpo = read_settings("train", words).training.grpo
    config = grpo_config({"output_dir": str(tmp_path), "report_to": "none", "use_cpu": True, **grpo})
    assert config.generation_batch_size % config.num_generations == 0 and config.get_warmup_steps(200) == 20
    assert config.seed == 42 and config.run_name == "grpo_baseline" and config.reward_weights == [1.0]


def test_what_is_to_be_written_instead_of_a_key_is_a_key_that_is_read():
    known = {*keys_of(RunSettings), *(f"training.{name}" for name in trl_fields())}
    advised = [key for advice in NOT_USED.values() for key in re.findall(r"\b[a-z_]+(?:\.[a-z_0-9]+)+\b", advice)]
    keys = [key for key in advised if not key.endswith(".md")]
    assert len(keys) > 5 and set(keys) <= known
    with pytest.raises(UserError, match="hub_strategy is not used here: nothing reads it"):
        read_settings("train", ["training.hub_strategy=end"])
