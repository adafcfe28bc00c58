"""The generated field list says what the installed TRL says, and our early checks agree with GRPOConfig's."""

import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.batches import check_batches
from rlvr_vocab.config.compose import CONF
from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.overrides import RENAMED, UNREAD, known_keys
from rlvr_vocab.errors import UserError

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


@pytest.mark.parametrize("path", sorted((CONF / "training").glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_grpo_config_accepts_every_shipped_training_file(path: Path, tmp_path: Path) -> None:
    from trl import GRPOConfig

    settings = read_settings("train", [f"training={path.stem}", "training.bf16=false"])
    config = GRPOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True, **settings.training.grpo)
    assert config.generation_batch_size % config.num_generations == 0
    assert config.seed == 42 and config.run_name == "grpo_baseline" and config.reward_weights == [1.0]


def test_warmup_ratio_becomes_the_share_of_steps_that_transformers_computes(tmp_path: Path) -> None:
    from trl import GRPOConfig

    grpo = read_settings("train", ["training.warmup_ratio=0.1", "training.bf16=false"]).training.grpo
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


def test_what_is_to_be_written_instead_of_a_key_is_a_key_that_is_read() -> None:
    keys = known_keys("train")
    advised = [key for advice in RENAMED.values() for key in re.findall(r"\b[a-z_]+(?:\.[a-z_0-9]+)+\b", advice)]
    assert len(advised) > 10
    for key in advised:
        keys.check(key)
    for name in UNREAD:
        with pytest.raises(UserError, match="is not used here"):
            keys.check(f"training.{name}")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr_scheduler_type=reduce_lr_on_plateau", "GRPO has none; set cosine"),
        ("lr_scheduler_type=cosine_with_min_lr", "needs training.lr_scheduler_kwargs.min_lr or training"),
        ("dataloader_persistent_workers=true", "needs training.dataloader_num_workers above 0"),
        ("dataloader_prefetch_factor=2", "needs training.dataloader_num_workers above 0"),
        ("ignore_data_skip=true", "given its first problems again"),
    ],
)
def test_what_transformers_refuses_after_the_model_has_loaded_is_refused_before(word: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_settings("train", [f"training.{word}"])


def test_null_means_not_set_where_trl_counts_with_it() -> None:
    assert "num_generations" not in read_settings("train", ["training.num_generations=null"]).training.grpo
