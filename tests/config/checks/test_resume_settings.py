"""What a run may go on with: its own checkpoints, and another value of a key that was named."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.folder import start_run_folder
from rlvr_vocab.runs.summary import finished_summary

TINY = ["experiment=quickstart", "exp_name=run"]
RUN = Path("out/run")
FINISHED = {
    "finished": True,
    "steps": 40,
    "seconds": 9.5,
    "grpo_seconds": 8,
    "steps_without_signal": 0,
    "sample": None,
    "accuracy_before": None,
    "accuracy_after": None,
    "held_out_problems": 0,
    "exp_name": "run",
    "reasoning_vocab_size": 0,
}


@pytest.fixture
def run() -> None:
    """A run in out/run with two checkpoints."""
    settings = load_settings("train", TINY)
    (RUN / "checkpoint-20").mkdir(parents=True)
    (RUN / "checkpoint-40").mkdir()
    (RUN / "config.yaml").write_text(config_yaml(settings.resolved))


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as caught:
        load_settings("train", [*TINY, *words])
    return str(caught.value)


def test_never_refuses_a_folder_with_checkpoints_and_auto_goes_on(run):
    assert "holds checkpoints" in refusal("resume=never")
    assert load_settings("train", TINY).resume == "auto"
    assert load_settings("train", [*TINY, "resume=never", "overwrite=true"]).overwrite
    assert load_settings("train", [*TINY, "resume=never", "output_dir=elsewhere"]).resume == "never"


def test_a_named_checkpoint_has_to_be_one_of_the_run(run):
    assert load_settings("train", [*TINY, f"resume={RUN}/checkpoint-20"]).resume == f"{RUN}/checkpoint-20"
    Path("other/checkpoint-20").mkdir(parents=True)
    for path in ("other/checkpoint-20", f"{RUN}/checkpoint-30"):
        assert "there are checkpoint-20, checkpoint-40" in refusal(f"resume={path}")
    assert "holds no run that could go on" in refusal("resume=other/checkpoint-20", "output_dir=new")


def test_a_change_is_refused_with_the_key_that_would_allow_it(run):
    message = refusal("training.max_steps=500")
    assert "training.max_steps" in message and "allow_changes=[training.max_steps]" in message
    assert "allow_changes=" not in refusal("seed=7")
    assert "training.learning_rate" in refusal(
        "training.max_steps=500", "training.learning_rate=1", "allow_changes=[training.max_steps]"
    )


@pytest.mark.parametrize("allowed", ["training.max_steps", "training"])
def test_a_named_change_is_allowed(run, allowed):
    settings = load_settings("train", [*TINY, "training.max_steps=500", f"allow_changes=[{allowed}]"])
    assert settings.training.grpo["max_steps"] == 500


@pytest.mark.parametrize("word", ["seed=7", "model.reasoning_vocab_size=9", "dataset.generator.digits=3"])
def test_what_the_run_is_cannot_change(run, word):
    key = word.partition("=")[0]
    message = refusal(word, f"allow_changes=[{key}]")
    assert key in message


def test_the_keys_of_how_to_go_on_are_no_difference(run):
    words = ["max_hours=2", "on_full_disk=go_on", "resume=auto", "allow_changes=[training]"]
    assert load_settings("train", [*TINY, *words]).max_hours == 2


def test_a_change_is_written_down_and_reopens_a_finished_run(run):
    (RUN / "summary.json").write_text(json.dumps(FINISHED))
    (RUN / "evaluation").mkdir()
    (RUN / "evaluation" / "after.jsonl").write_text("{}\n")
    assert finished_summary(load_settings("train", TINY), Console(quiet=True)) == FINISHED
    longer = load_settings("train", [*TINY, "training.max_steps=500", "allow_changes=[training.max_steps]"])
    assert finished_summary(longer, Console(quiet=True)) is None
    start_run_folder(longer)
    assert sorted(path.name for path in RUN.glob("**/*40_steps*")) == ["after_40_steps.jsonl", "summary_40_steps.json"]
    assert not (RUN / "summary.json").exists()
    [change] = (RUN / "changes.jsonl").read_text().splitlines()
    assert '"key": "training.max_steps"' in change and '"to": 500' in change
    # From now on this is the configuration of the run.
    assert load_settings("train", [*TINY, "training.max_steps=500"]).training.grpo["max_steps"] == 500


def test_a_run_that_goes_on_with_another_number_of_threads_is_told_so(run, caplog, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    start_run_folder(load_settings("train", TINY))
    recorded = json.loads((RUN / "environment.json").read_text())["threads"]
    start_run_folder(load_settings("train", TINY))
    assert (recorded, caplog.text) == (torch.get_num_threads(), "")
    (RUN / "environment.json").write_text(json.dumps({"threads": recorded + 3}))
    start_run_folder(load_settings("train", TINY))
    assert f"began with {recorded + 3} threads and goes on with {recorded}: " in caplog.text


def test_overwriting_keeps_what_a_scheduler_writes_there(run):
    (RUN / "slurm-7.log").write_text("words\n")
    start_run_folder(load_settings("train", [*TINY, "overwrite=true"]))
    assert sorted(path.name for path in RUN.iterdir()) == ["config.yaml", "environment.json", "slurm-7.log"]


def test_a_schedulers_log_alone_is_no_run():
    RUN.mkdir(parents=True)
    (RUN / "slurm-7.log").touch()
    load_settings("train", TINY)


@pytest.mark.parametrize("hours", ["0", "inf"])
def test_max_hours_is_a_time(hours):
    assert "max_hours" in refusal(f"max_hours={hours}")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["training.sync_ref_model=true"], "lies in no checkpoint"),
        (["training.logging_strategy=epoch"], "lose or double"),
        (["training.eval_on_start=true"], "before it trains"),
        (["training.save_strategy=best"], "a signal would save nothing"),
        (["training.resume_from_checkpoint=somewhere"], "set resume"),
        (["training.load_best_model_at_end=true", "training.save_total_limit=1"], "at least 2"),
        (["training.load_best_model_at_end=true", "stages=[{name:a},{name:b}]"], "where the one before ended"),
    ],
)
def test_what_an_interruption_would_spoil_is_refused(words, part):
    assert part in refusal(*words)


def test_a_finished_run_of_stages_is_not_trained_further():
    words = ["stages=[{name:a},{name:b}]"]
    RUN.mkdir(parents=True)
    (RUN / "config.yaml").write_text(config_yaml(load_settings("train", [*TINY, *words]).resolved))
    (RUN / "summary.json").write_text(json.dumps(FINISHED))
    assert "its stages have ended" in refusal(*words, "training.max_steps=500", "allow_changes=[training.max_steps]")


def test_a_finished_run_without_checkpoints_is_not_begun_again_in_silence(run):
    for name in ("checkpoint-20", "checkpoint-40"):
        (RUN / name).rmdir()
    (RUN / "summary.json").write_text(json.dumps(FINISHED))
    message = refusal("training.max_steps=500", "allow_changes=[training.max_steps]")
    assert "holds no checkpoint to go on from" in message
