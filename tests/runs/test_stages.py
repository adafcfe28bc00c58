"""Runs of two stages, end to end on the embedded model: one after the other, ended early, killed and resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from safetensors.torch import load_file

from rlvr_vocab.cli import main

pytestmark = pytest.mark.slow

STEPS = 4
SMALL = (
    "report=false",
    "training.eval_steps=null",
    "warmup.max_steps=4",
    "warmup.check_every=4",
    "warmup.num_check_problems=8",
    "training.per_device_train_batch_size=16",
    "training.num_generations=4",
    "training.learning_rate=1e-2",
    "training.max_completion_length=24",
    "training.kl_log_steps=0",
    "training.save_strategy=steps",
    "training.save_steps=1",
    "dataset.max_eval_samples=8",
    # Rewards that differ within a group, whatever a model says that has learned nothing yet.
    "stages=[{name:form,rewards:[think_format,{name:length,params:{longest:1,falloff:300,unit:characters}}],"
    f"training:{{max_steps:{STEPS}}}}},"
    "{name:answers,rewards:[{name:accuracy,adaptive:{window:1}},{name:length,params:{longest:9,falloff:300,unit:characters}}],"
    f"training:{{max_steps:{STEPS}}}}}]",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_VOCAB_CACHE", str(cache))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A finished run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLVR_VOCAB_CACHE", str(cache))
        assert main(["quickstart", f"output_dir={folder}", *SMALL]) == 0
    return folder


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights_of(folder: Path) -> dict:
    return load_file(folder / "final_model" / "model.safetensors")


def test_steps_count_through_the_stages_and_rows_name_theirs(whole_run):
    rows = rows_of(whole_run)
    assert [row["step"] for row in rows] == list(range(1, 2 * STEPS + 1))
    assert [row["stage"] for row in rows] == ["form"] * STEPS + ["answers"] * STEPS
    assert [row["stage_step"] for row in rows] == [*range(1, STEPS + 1)] * 2


def test_each_stage_has_its_own_rewards(whole_run):
    rows = rows_of(whole_run)
    assert all("rewards/think_format/mean" in row and "rewards/accuracy/mean" not in row for row in rows[:STEPS])
    assert all("rewards/accuracy/mean" in row and "rewards/think_format/mean" not in row for row in rows[STEPS:])


def test_completions_are_numbered_by_the_step_of_the_run(whole_run):
    files = sorted((whole_run / "completions").glob("*.parquet"))
    assert [path.name for path in files] == [f"step_{step:05d}.parquet" for step in range(1, 2 * STEPS + 1)]
    assert set(pd.read_parquet(files[-1])["step"]) == {2 * STEPS}


def test_the_weight_follows_success_in_its_stage(whole_run):
    rows, expected = rows_of(whole_run)[STEPS:], [1.0]
    for rate in (row["rewards/accuracy/mean"] for row in rows):
        expected.append(expected[-1] * (1.2 if rate < 0.3 else 0.9 if rate > 0.8 else 1.0))
    assert [row["rewards/accuracy/weight"] for row in rows] == pytest.approx(expected[:STEPS])
    assert expected[-1] != 1.0  # an untrained model is rarely right
    state = json.loads((whole_run / f"stages/2_answers/checkpoint-{STEPS}/reward_state.json").read_text())
    assert state["accuracy"]["value"] == pytest.approx(expected[STEPS])


def test_checkpoints_lie_with_their_stage_and_the_summary_tells_of_each(whole_run):
    records = [json.loads(path.read_text()) for path in sorted(whole_run.glob("stages/*/stage.json"))]
    assert [record["name"] for record in records] == ["form", "answers"]
    summary = json.loads((whole_run / "summary.json").read_text())
    assert summary["stages"] == records
    assert summary["steps"] == 2 * STEPS
    assert not list(whole_run.glob("checkpoint-*"))


def test_the_second_stage_starts_from_the_weights_of_the_first(whole_run):
    first = load_file(whole_run / f"stages/1_form/checkpoint-{STEPS}/model.safetensors")
    initial = load_file(whole_run / "initial_model/model.safetensors")
    after_one = load_file(whole_run / "stages/2_answers/checkpoint-1/model.safetensors")
    apart = {name: (first[name] - initial[name]).abs().max().item() for name in first}
    step = {name: (after_one[name] - first[name]).abs().max().item() for name in first}
    assert max(apart.values()) > 0
    # One step of AdamW moves a weight by about the learning rate; from the initial model it would be several.
    assert max(step.values()) < 1.5 * 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["form", "answers"])
def test_a_run_killed_in_a_stage_ends_with_the_weights_of_one_that_was_not(whole_run, killed_at, tmp_path, cache):
    folder = tmp_path / "killed"
    words = ["quickstart", f"output_dir={folder}", *SMALL]
    environment = {**os.environ, "RLVR_VOCAB_CACHE": str(cache)}
    process = subprocess.Popen(
        [sys.executable, "-m", "rlvr_vocab.cli", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for_second_row(folder, killed_at, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "summary.json").exists()
    assert main(words) == 0
    expected, found = weights_of(whole_run), weights_of(folder)
    assert {name: (found[name] == tensor).all().item() for name, tensor in expected.items()} == dict.fromkeys(
        expected, True
    )
    assert [row["step"] for row in rows_of(folder)] == list(range(1, 2 * STEPS + 1))


def wait_for_second_row(folder: Path, stage: str, process: subprocess.Popen, seconds: float = 240) -> None:
    """Until the stage has logged two steps and saved one."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        text = (folder / "metrics.jsonl").read_text() if (folder / "metrics.jsonl").exists() else ""
        saved = list(folder.glob(f"stages/*_{stage}/checkpoint-*/manifest.json"))
        if text.count(f'"stage": "{stage}"') >= 2 and saved:
            return
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.02)
    raise AssertionError(f"stage {stage} did not begin within {seconds} s")


@pytest.mark.slow
def test_a_stage_ends_early_when_it_has_reached_its_goal(tmp_path):
    goal = "until:{metric:rewards/length/mean,above:-1000,window:2}"
    first = f"{{name:a,rewards:[{{name:length,params:{{longest:5,unit:words}}}}],training:{{max_steps:9}},{goal}}}"
    stages = f"stages=[{first},{{name:b,training:{{max_steps:1}}}}]"
    assert main(["quickstart", f"output_dir={tmp_path / 'run'}", *SMALL[:-1], stages]) == 0
    first, second = json.loads((tmp_path / "run" / "summary.json").read_text())["stages"]
    assert (first["steps"], first["ended_by"]) == (2, "until rewards/length/mean above -1000.0 over 2 steps")
    assert (second["steps"], second["ended_by"]) == (1, "steps")


def test_a_checkpoint_is_evaluated_as_its_stage_was_sampled(tmp_path):
    from rlvr_vocab.cli import load_settings
    from rlvr_vocab.config.recorded import config_yaml
    from rlvr_vocab.runs.recorded_run import recorded_run

    text = "stages=[{name:a},{name:b,generation:{max_new_tokens:8,temperature:0.3},rewards:[boxed]}]"
    settings = load_settings("train", ["experiment=quickstart", f"output_dir={tmp_path}", text])
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved))
    first, last = (recorded_run(tmp_path / folder) for folder in ("stages/1_a/checkpoint-5", "final_model"))
    assert (first.max_new_tokens, first.temperature) == (48, 1.0)
    assert (last.max_new_tokens, last.temperature) == (8, 0.3)
    assert [function.name for function in last.rewards.functions] == ["boxed"]
    assert first.folder == last.folder == tmp_path


def unfinished_without_records(run, folder):
    """As a run of an earlier version was left: nothing can be put back."""
    shutil.copytree(run, folder)
    for name in ("summary.json", "manifest.json"):
        (folder / name).unlink()
    for records in folder.glob("stages/*/checkpoint-*/records"):
        shutil.rmtree(records)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["{", '{"name": "form"}'])
def test_a_record_that_cannot_be_read_is_named(whole_run, broken, tmp_path, capsys):
    folder = unfinished_without_records(whole_run, tmp_path / "copy")
    (folder / "stages/1_form/stage.json").write_text(broken)
    assert main(["quickstart", f"output_dir={folder}", *SMALL]) == 2
    assert "1_form/stage.json is not readable" in capsys.readouterr().err


@pytest.mark.slow
def test_a_later_stage_that_has_ended_before_an_earlier_one_is_refused(whole_run, tmp_path, capsys):
    folder = unfinished_without_records(whole_run, tmp_path / "copy")
    (folder / "stages/1_form/stage.json").unlink()
    assert main(["quickstart", f"output_dir={folder}", *SMALL]) == 2
    assert "2_answers has ended, but stage 1/2 form" in capsys.readouterr().err
