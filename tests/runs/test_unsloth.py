"""model.backend=unsloth against a stand-in for its two calls: what it is given, what trains, what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlvr_vocab.commands.train import _as_loaded
from rlvr_vocab.config.load import read_settings

STAND_INS = Path(__file__).parents[1] / "stand_ins"
RUN = (
    "quickstart",
    "report=false",
    "training.eval_steps=null",
    "model.backend=unsloth",
    "model.reasoning_vocab_size=0",
    "warmup.max_steps=0",
    "training.max_steps=2",
    "training.warmup_ratio=0",
    "training.per_device_train_batch_size=16",
    "training.num_generations=4",
    "training.learning_rate=1e-2",
    "training.entropy_coef=0.1",  # a gradient even where no completion is right
    "training.beta=0.04",
    "dataset.max_eval_samples=8",
    "output_dir=run",
)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs a command line in a process of its own, in which `import unsloth` finds the stand-in."""

    def run(*words, **environment):
        return subprocess.run(
            [sys.executable, "-m", "rlvr_vocab.cli", *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(STAND_INS),
                "UNSLOTH_STAND_IN": str(tmp_path / "calls.json"),
                "RLVR_VOCAB_CACHE": str(tmp_path / "cache"),
                **environment,
            },
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.slow
def test_a_baseline_trains_with_the_run_s_own_configuration(command, tmp_path):
    done = command(
        *RUN,
        "model.lora.r=4",
        "model.lora.target_modules=[q_proj,v_proj]",
        "model.lora.lora_dropout=0.25",
        "model.model_kwargs.load_in_4bit=true",
        "model.unsloth.use_gradient_checkpointing=true",
        "training.gradient_checkpointing=true",  # which is then left to Unsloth
        "model.unsloth.max_seq_length=512",
        "model.unsloth.max_lora_rank=8",
        "seed=7",
    )
    assert done.returncode == 0, done.stderr
    assert (
        "model.model_kwargs.load_in_4bit=true: the weights themselves cannot train, so LoRA is switched on"
        in done.stdout
    )
    calls = json.loads((tmp_path / "calls.json").read_text())
    assert calls["imported_before"] == []
    assert calls["from_pretrained"] == {
        "model_name": "run/initial_model",
        "max_seq_length": 512,
        "dtype": "torch.float32",
        "load_in_4bit": True,
        "fast_inference": False,
        "max_lora_rank": 8,
        "use_gradient_checkpointing": True,
        "random_state": 7,
    }
    assert calls["get_peft_model"] == {
        "r": 4,
        "lora_alpha": 32,
        "target_modules": "['q_proj', 'v_proj']",
        "lora_dropout": 0.25,
        "use_gradient_checkpointing": True,
        "random_state": 7,
        "max_seq_length": 512,
    }
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == [1, 2]
    assert abs(metrics[0]["kl"]) < 1e-6 < metrics[1]["kl"]


def test_where_it_does_not_run_one_line_says_why(command, tmp_path):
    done = command(*RUN, UNSLOTH_STAND_IN_FAILS="1")
    assert done.returncode == 2
    assert done.stderr == (
        "error: model.backend=unsloth: Unsloth does not run here (Unsloth cannot find any torch accelerator? You need "
        "a GPU.); set model.backend=transformers\n"
    )
    assert not (tmp_path / "run").exists()


def test_where_it_is_not_installed_one_line_says_so(command, tmp_path):
    done = command(*RUN, PYTHONPATH="")
    if "unsloth is not installed" not in done.stderr:
        pytest.skip("Unsloth is installed here")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Plan:
    context_length: int | None


@pytest.mark.parametrize(
    ("backend", "context", "room"),
    [("unsloth", 512, 40), ("unsloth", None, 40), ("unsloth", 20, 20), ("transformers", 512, 512)],
)
def test_prompts_have_to_fit_the_room_that_it_makes(backend, context, room):
    words = [
        "model=tiny",
        *(["model.backend=unsloth", "model.unsloth.max_seq_length=40"] if backend == "unsloth" else []),
    ]
    assert _as_loaded(Plan(context), read_settings("train", words)).context_length == room
