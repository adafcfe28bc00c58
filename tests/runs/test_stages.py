"""What the stages of a run have left, as a resumed run and an evaluation read it; no training."""

import json
import weakref
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from rich.console import Console

from rlvr_vocab.config.checks.run import check_run
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import stages_of
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs import stages as stages_module
from rlvr_vocab.runs.folder import Run, run_facts, run_of_checkpoint, stage_of
from rlvr_vocab.runs.stages import DisplayCallback, Stage, StagedRun, StageRecord, checkpoint_to_resume, ended_records
from rlvr_vocab.training.stage import StageContext
from rlvr_vocab.vocab.layout import VocabLayout
from tests.settings import load_settings


@pytest.fixture
def stages(tmp_path):
    settings = load_settings("train", ["experiment=quickstart", f"output_dir={tmp_path}"])
    return [Stage(number, 2, name, settings, None, None, ()) for number, name in ((1, "form"), (2, "answers"))]


def end(stage):
    record = StageRecord(stage.name, 4, "steps", {}, 1.5)
    stage.folder.mkdir(parents=True)
    (stage.folder / "stage.json").write_text(json.dumps(asdict(record)))
    return record


def test_the_stages_that_have_ended_are_known_by_their_records(stages):
    last = end(stages[1])
    with pytest.raises(UserError, match="stage 1/2 form has not ended, but a later stage has"):
        ended_records(stages)
    first = end(stages[0])
    assert ended_records(stages) == [first, last]
    for broken in ("{", '{"name": "form"}', '{"name": "form", "steps": "six"}'):
        (stages[0].folder / "stage.json").write_text(broken)
        with pytest.raises(UserError, match=r"1_form/stage\.json is damaged"):
            ended_records(stages)


def test_a_checkpoint_is_evaluated_as_its_stage_was_sampled(tmp_path):
    text = "stages=[{name:a},{name:b,generation:{max_new_tokens:8,temperature:0.3},rewards:[boxed]}]"
    settings = load_settings("train", ["experiment=quickstart", f"output_dir={tmp_path}", text])
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved))
    first, last = (run_of_checkpoint(tmp_path / folder) for folder in ("stages/1_a/checkpoint-5", "final_model"))
    assert (first.max_new_tokens, first.temperature) == (48, 1.0)
    assert (last.max_new_tokens, last.temperature) == (8, 0.3)
    assert stage_of(tmp_path / "final_model", settings).rewards.functions[0].name == "boxed"
    assert first.folder == last.folder == tmp_path


def test_the_last_checkpoint_of_an_ended_stage_must_be_whole(stages):
    end(stages[0])
    staged = StagedRun(run_of(stages), stages, None, None)
    with pytest.raises(UserError, match=r"1_form/checkpoint-4: manifest\.json is missing.*; the stage has ended"):
        staged._load_last_stage()


def run_of(stages):
    return Run(stages[0].settings, VocabLayout(4, (), 1, 2, (), ()), Console(quiet=True))


class Trainer:
    """One in a reference cycle, like the real one."""

    def __init__(self):
        self.itself, self.optimizer = self, None
        self.checkpoints = SimpleNamespace(load_weights=lambda folder: None)


def test_the_trainer_of_a_stage_is_gone_before_the_next_one_loads(stages, monkeypatch):
    made = []

    def new_trainer(*_):
        assert not any(each() for each in made)
        trainer = Trainer()
        made.append(weakref.ref(trainer))
        return trainer

    monkeypatch.setattr(StagedRun, "_make_trainer", new_trainer)
    monkeypatch.setattr(stages_module, "problem_of_checkpoint", lambda folder: None)
    monkeypatch.setattr(
        StagedRun, "_train", lambda run, stage, checkpoint: StageRecord(stage.name, 4, "steps", {}, 1.5)
    )
    held_out = SimpleNamespace(measure_before=lambda trainer: None)
    StagedRun(run_of(stages), stages, held_out, None).train()
    assert len(made) == 2


def test_a_budget_of_tokens_is_the_goal_of_a_run_and_of_each_stage():
    words = ["experiment=quickstart", "training.max_tokens=5000"]
    [alone] = stages_of(load_settings("train", words))
    assert alone.until.reached([{"num_tokens": 5000.0}]) and not alone.until.reached([{"num_tokens": 4999.0}])
    staged = load_settings("train", [*words, "stages=[{name: a, training: {max_tokens: 100}}, {name: b}]"])
    assert [stage.until.above for stage in stages_of(staged)] == [99, 4999]
    goal = "stages=[{name: a, until: {metric: reward, above: 0.5}, training: {max_tokens: 100}}]"
    with pytest.raises(UserError, match=r"until and training\.max_tokens=100"):
        check_run(load_settings("train", [words[0], goal]))


def test_a_checkpoint_of_another_stage_leaves_an_ended_run_as_it_is(stages):
    for stage in stages:
        end(stage)
    checkpoint = stages[0].folder / "checkpoint-4"
    checkpoint.mkdir()
    with pytest.raises(UserError, match=r"the training to resume are in .*2_answers"):
        checkpoint_to_resume(stages[1].folder, str(checkpoint), Console(quiet=True))
    assert (stages[1].folder / "stage.json").is_file()


def test_the_main_process_shows_each_row_and_a_finding_once_over_stages_and_resumes(tmp_path):
    """The KL is too high after step 30."""
    facts = run_facts(read_settings("train", ["experiment=quickstart"]).resolved, tmp_path)
    for part, found in ((range(1, 61), 1), (range(61, 71), 0), (range(71, 91), 0)):
        rows, findings = [], []
        display = SimpleNamespace(
            begins=lambda *_: None,
            row=lambda row, *_, rows=rows: rows.append(row["step"]),
            finding=lambda line, _, findings=findings: findings.append(line),
        )
        callback = DisplayCallback(facts, StageContext(tmp_path), display)
        at_first = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=90)
        callback.on_train_begin(None, at_first, None)
        for step in part:
            figures = {"reward": 0.3 + 0.002 * step, "reward_std": 0.4, "frac_reward_zero_std": 0.1, "entropy": 0.6}
            logs = {"loss": 0.01, "learning_rate": 1e-4, "grad_norm": 0.3, "kl": 0.9 * (step > 30), **figures}
            with (tmp_path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, **logs}) + "\n")
            for main in (False, True):
                state = SimpleNamespace(global_step=step, max_steps=90, is_world_process_zero=main)
                callback.on_log(None, state, None, logs=logs)
        assert rows == list(part)
        assert len(findings) == found and all("(step 3" in line for line in findings)
