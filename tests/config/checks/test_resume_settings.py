"""What a run may go on with: its own checkpoints, and another value of a key that was named."""

import json
from pathlib import Path

import pytest
import torch

from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.runs.folder import start_run_folder
from rlvr_vocab.runs.summary import finished_summary
from tests import settings
from tests.settings import load_settings

TINY = ["experiment=quickstart", "exp_name=run"]
RUN = Path("out/run")
FINISHED = {"finished": True, "steps": 40, "seconds": 9.5, "grpo_seconds": 8}
FINISHED |= {"sample": None, "held_out_problems": 0, "exp_name": "run", "reasoning_vocab_size": 0}
FINISHED |= {"accuracy_before": None, "accuracy_after": None}


@pytest.fixture
def run():
    """A run in out/run with two checkpoints."""
    settings = load_settings("train", TINY)
    (RUN / "checkpoint-20").mkdir(parents=True)
    (RUN / "checkpoint-40").mkdir()
    (RUN / "config.yaml").write_text(config_yaml(settings.resolved))


def refusal(*words):
    return settings.refusal("train", [*TINY, *words])


def test_a_named_checkpoint_has_to_be_one_of_the_run(run):
    assert load_settings("train", [*TINY, f"resume={RUN}/checkpoint-20"]).resume == f"{RUN}/checkpoint-20"
    Path("other/checkpoint-20").mkdir(parents=True)
    for path in ("other/checkpoint-20", f"{RUN}/checkpoint-30"):
        assert "there are checkpoint-20, checkpoint-40" in refusal(f"resume={path}")
    assert "holds no run that could go on" in refusal("resume=other/checkpoint-20", "output_dir=new")


def test_a_change_is_refused_unless_it_is_allowed_by_its_key_and_what_the_run_is_cannot_change(run):
    longer = "training.max_steps=500"
    message = refusal(longer)
    assert "training.max_steps" in message and "allow_changes=[training.max_steps]" in message
    assert "training.learning_rate" in refusal(longer, "training.learning_rate=1", "allow_changes=[training.max_steps]")
    going_on = ["max_hours=2", "on_full_disk=go_on", "resume=auto"]  # which are no difference
    assert load_settings("train", [*TINY, *going_on, longer, "allow_changes=[training]"]).max_hours == 2
    for word in ("seed=7", "model.reasoning_vocab_size=9", "dataset.generator.digits=3"):
        key = word.partition("=")[0]
        assert "allow_changes=" not in (message := refusal(word, f"allow_changes=[{key}]")) and key in message


def test_edited_code_is_a_change(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def mine(completions, **columns):\n    return [0.0] * len(completions)\n")
    words = [*TINY, f"rewards=[{file}:mine]"]
    RUN.mkdir(parents=True)
    (RUN / "config.yaml").write_text(config_yaml(load_settings("train", words).resolved))
    load_settings("train", words)
    file.write_text(file.read_text() + "#")
    message = settings.refusal("train", words)
    assert f"code.{file}: " in message and "rewards" not in message
    load_settings("train", [*words, "allow_changes=[code]"])
    assert load_settings("train", [f"config={RUN}/config.yaml", "trust_code=true", "output_dir=other"]).resolved["code"]


def test_a_change_is_written_down_and_reopens_a_finished_run(run):
    (RUN / "summary.json").write_text(json.dumps(FINISHED))
    (RUN / "evaluation").mkdir()
    (RUN / "evaluation" / "after.jsonl").write_text("{}\n")
    assert finished_summary(load_settings("train", TINY)) == FINISHED
    longer = load_settings("train", [*TINY, "training.max_steps=500", "allow_changes=[training.max_steps]"])
    assert finished_summary(longer) is None
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
    assert f"started with {recorded + 3} threads and resumes with {recorded}: " in caplog.text


def test_a_schedulers_log_is_no_run_and_stays_when_a_run_is_overwritten(run):
    Path("other").mkdir()
    for folder in (RUN, Path("other")):
        (folder / "slurm-7.log").write_text("words\n")
    load_settings("train", [*TINY, "output_dir=other"])
    start_run_folder(load_settings("train", [*TINY, "overwrite=true"]))
    assert sorted(path.name for path in RUN.iterdir()) == ["config.yaml", "environment.json", "slurm-7.log"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["max_hours=0"], "max_hours"),
        (["training.sync_ref_model=true"], "lies in no checkpoint"),
        (["training.save_strategy=best"], "a signal would save nothing"),
        (["training.load_best_model_at_end=true", "training.save_total_limit=1"], "a resume needs the last"),
        (["training.load_best_model_at_end=true", "stages=[{name:a},{name:b}]"], "where the one before ended"),
    ],
)
def test_what_an_interruption_would_spoil_is_refused(words, part):
    assert part in refusal(*words)


def test_a_finished_run_that_has_nothing_to_go_on_from_is_not_begun_again_in_silence(run):
    more = ("training.max_steps=500", "allow_changes=[training.max_steps]")
    for name in ("checkpoint-20", "checkpoint-40"):
        (RUN / name).rmdir()
    (RUN / "summary.json").write_text(json.dumps(FINISHED))
    assert "holds no checkpoint to go on from" in refusal(*more)
    stages = "stages=[{name:a},{name:b}]"
    (RUN / "config.yaml").write_text(config_yaml(load_settings("train", [*TINY, stages, "output_dir=new"]).resolved))
    assert "its stages have ended" in refusal(stages, *more)
