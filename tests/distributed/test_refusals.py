"""What does not go with several processes is refused in one line, and nobody waits for a process that has ended."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from accelerate.utils import DistributedType

from rlvr_vocab.config.checks.accelerator import check_processes
from rlvr_vocab.errors import UserError
from rlvr_vocab.training.sharding import require_same_sharding
from tests.settings import load_settings

FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
DEEPSPEED = {"ACCELERATE_USE_DEEPSPEED": "true"}
LORA = "model.lora.enabled=true"
QUANTIZED = "model.model_kwargs.load_in_8bit=true"
STAGES = "stages=[{name:a,training:{max_steps:1}},{name:b,training:{max_steps:1}}]"


def check(monkeypatch, tmp_path, environment, *words):
    for name, value in {"WORLD_SIZE": "2", **environment}.items():
        monkeypatch.setenv(name, value)
    given = ("experiment=quickstart", f"output_dir={tmp_path / 'run'}", "training.use_cpu=true", *words)
    check_processes(load_settings("train", list(given)))


@pytest.mark.parametrize(
    ("environment", "words", "told"),
    [
        ({**FSDP2, "FSDP_VERSION": "1"}, (), "fsdp_version: 2"),
        ({**FSDP2, "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT"}, (), "FULL_STATE_DICT alone"),
        ({**FSDP2, "FSDP_CPU_RAM_EFFICIENT_LOADING": "true"}, (), "set it to false"),
        (FSDP2, (QUANTIZED,), "load_in_8bit=true: quantized weights are not sharded by FSDP"),
        (DEEPSPEED, (QUANTIZED,), "load_in_8bit=true: quantized weights are not sharded by DeepSpeed"),
        (DEEPSPEED, (LORA,), "model.lora.train_rows=reasoning"),
        (DEEPSPEED, (STAGES,), "stages: DeepSpeed hands no weights"),
        ({}, (QUANTIZED,), None),
        (FSDP2, (LORA,), None),
        (FSDP2, (STAGES,), None),
        (DEEPSPEED, (LORA, "model.lora.train_rows=none"), None),
    ],
)
def test_what_cannot_be_sharded_is_named(monkeypatch, tmp_path, environment, words, told):
    with nullcontext() if told is None else pytest.raises(UserError, match=told):
        check(monkeypatch, tmp_path, environment, *words)


def test_processes_without_a_gpu_are_told_how_to_train_on_the_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    with pytest.raises(UserError, match="2 processes and no GPU"):
        check(monkeypatch, tmp_path, {}, "training.use_cpu=false")


@pytest.mark.parametrize(
    ("file", "way", "matches"),
    [
        ("optimizer.pt", DistributedType.MULTI_GPU, True),
        ("optimizer.pt", DistributedType.FSDP, False),
        ("optimizer.bin", DistributedType.FSDP, True),
        ("optimizer.bin", DistributedType.NO, False),
        ("zero_to_fp32.py", DistributedType.DEEPSPEED, True),
        ("zero_to_fp32.py", DistributedType.FSDP, False),
    ],
)
def test_a_checkpoint_is_resumed_as_it_was_written(tmp_path, file, way, matches):
    (tmp_path / file).touch()
    with nullcontext() if matches else pytest.raises(UserError, match="start it as before"):
        require_same_sharding(tmp_path, SimpleNamespace(distributed_type=way))


def test_a_file_for_gpus_is_refused_on_the_cpu_rather_than_trained_unsharded(started, tmp_path):
    script = "../../rlvr_vocab/exp/grpo_train.py"
    done = started("fsdp2", script, "warmup.max_steps=0", f"output_dir={tmp_path / 'run'}")
    assert done.returncode != 0 and done.stderr.count("error: FSDP shards a model between GPUs") == 1


def test_what_one_process_alone_finds_wrong_ends_all_and_is_told_once(started):
    began = time.monotonic()
    done = started("ddp", "one_fails.py", seconds=60)
    assert done.returncode != 0 and done.stderr.count("error: the second alone knows") == 1
    assert "[rank0]: Traceback" not in done.stderr and time.monotonic() - began < 40
