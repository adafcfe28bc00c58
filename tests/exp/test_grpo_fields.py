"""The generated field list says what the installed TRL says, and our early checks agree with GRPOConfig's."""

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.batch_checks import check_batches
from rlvr_vocab.exp.compose import CONF
from rlvr_vocab.exp.grpo_fields import GRPO_FIELDS
from rlvr_vocab.exp.settings import build_settings

GENERATOR = Path(__file__).with_name("generate_grpo_fields.py")


def test_the_field_list_equals_what_the_installed_trl_says() -> None:
    spec = importlib.util.spec_from_file_location("generate_grpo_fields", GENERATOR)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fresh: dict[str, Any] = {}
    exec(module.generate(), fresh)
    stored = {name: tuple(field) for name, field in GRPO_FIELDS.items()}
    assert stored == {name: tuple(field) for name, field in fresh["GRPO_FIELDS"].items()}


def test_every_known_loss_type_is_one_that_the_trainer_computes() -> None:
    assert set(GRPO_FIELDS["loss_type"].choices) == {
        "grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo",
    }  # fmt: skip


@pytest.mark.parametrize("path", sorted((CONF / "training").glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_grpo_config_accepts_every_shipped_training_file(path: Path, tmp_path: Path) -> None:
    from trl import GRPOConfig

    settings = build_settings("train", [f"training={path.stem}", "training.bf16=false"])
    config = GRPOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, **settings.training.grpo)
    assert config.generation_batch_size % config.num_generations == 0
    assert config.seed == 42 and config.run_name == "grpo_baseline" and config.reward_weights == [1.0]


def test_warmup_ratio_becomes_the_share_of_steps_that_transformers_computes(tmp_path: Path) -> None:
    from trl import GRPOConfig

    grpo = build_settings("train", ["training.warmup_ratio=0.1", "training.bf16=false"]).training.grpo
    config = GRPOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, **grpo)
    assert config.get_warmup_steps(200) == 20


def test_batches_are_refused_exactly_where_grpo_config_refuses_them(tmp_path: Path) -> None:
    from trl import GRPOConfig

    names = ("per_device_train_batch_size", "num_generations", "gradient_accumulation_steps")
    grid = itertools.product((1, 2, 3), (1, 2, 4), (1, 2, 4), (None, 2, 3), (None, 4, 6))
    for *values, steps, batch in grid:
        grpo = dict(zip(names, values, strict=True)) | {
            "steps_per_generation": steps,
            "generation_batch_size": batch,
        }
        assert accepted_by_us(grpo) == accepted_by_trl(GRPOConfig, tmp_path, grpo), grpo


def accepted_by_us(grpo: dict[str, Any]) -> bool:
    try:
        check_batches(grpo)
    except UserError:
        return False
    return True


def accepted_by_trl(config: Any, folder: Path, grpo: dict[str, Any]) -> bool:
    try:
        config(output_dir=str(folder), report_to="none", use_cpu=True, bf16=False, **grpo)
    except ValueError:
        return False
    return True
