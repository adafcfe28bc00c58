"""Which problems `evaluate` measures on: by default those of the run that the checkpoint belongs to."""

import functools
import json
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_vocab.commands.evaluate import _rows
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import problem_source, problem_split
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.record.files import run_folder_of
from rlvr_vocab.runs.folder import run_of_checkpoint, stage_of
from rlvr_vocab.runs.problems import load_run_problems, problems_line

pytestmark = pytest.mark.slow

FEW = "dataset.generator.num_problems=500"
RUN = ("experiment=quickstart", "dataset.eval_fraction=0.2", "dataset.max_eval_samples=20", FEW, "seed=5")
CHECKPOINT = "checkpoint=out/run/final_model"


@functools.cache
def problems_of_the_run():
    """The `problems.json` of the run."""
    settings = read_settings("train", [*RUN, "exp_name=run"])
    return json.dumps(load_run_problems(settings, Console(quiet=True)).report)


@pytest.fixture(autouse=True)
def recorded():
    """The config.yaml of a run in out/run."""
    settings = read_settings("train", [*RUN, r"dataset.system_prompt=pay ${amount}", "exp_name=run"])
    Path("out/run").mkdir(parents=True)
    path = Path("out/run/config.yaml")
    path.write_text(config_yaml(settings.resolved))
    path.with_name("problems.json").write_text(problems_of_the_run())
    return path


def line_for(*words, seed=5):
    """What an evaluation of the problems that the words name, divided by that seed, says first of them."""
    settings = read_settings("evaluate", [CHECKPOINT, *words])
    sets = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, seed))
    problems = sets.trained if settings.split == "train" else [sets.problems[index] for index in sets.parts.held_out]
    line = problems_line(settings.dataset.name, [each.key for each in problems], run_of_checkpoint(settings.checkpoint))
    assert "\n" not in line
    return line


def test_the_dataset_section_of_the_run_is_the_default_and_single_keys_apply_over_it(recorded):
    of_the_run = read_settings("train", [f"config={recorded}"]).dataset
    assert read_settings("evaluate", [CHECKPOINT]).dataset == of_the_run
    assert of_the_run.system_prompt == "pay ${amount}" and of_the_run.eval_fraction == 0.2
    words = ["dataset.max_eval_samples=null", "dataset.generator.digits=3"]
    dataset = read_settings("evaluate", [CHECKPOINT, *words]).dataset
    assert dataset.max_eval_samples is None and dataset.eval_fraction == 0.2
    assert dataset.generator is not None and dataset.generator.digits == 3


def test_a_checkpoint_behind_a_link_belongs_to_the_run_that_it_lies_in(recorded, tmp_path):
    run = recorded.parent.absolute()
    checkpoint = run / "stages" / "1_easy" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    link = tmp_path / "best"
    link.symlink_to(checkpoint)
    assert run_folder_of(link) == run
    settings = read_settings("train", [*RUN, "stages=[{name: easy, training: {max_steps: 5}}, {name: hard}]"])
    easy, hard = (stage.run for stage in settings.stages)
    assert stage_of(link, settings) is easy and stage_of(run / "final_model", settings) is hard
    (run / "final_model").symlink_to(checkpoint)
    assert run_folder_of(Path("out/run/final_model")) == Path("out/run")  # the one that it is in by its name is first


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("dataset.max_eval_samples=null", "dataset.system_prompt=null", "dataset.columns.reasoning=null"),
        ("dataset=arithmetic", "dataset.eval_fraction=0.2", FEW),
    ],
)
def test_problems_divided_as_by_the_run_are_said_to_be_held_out_by_it(words):
    assert line_for(*words) == "problems held out by the run in out/run"


def test_of_the_runs_own_set_divided_otherwise_the_problems_that_it_trained_on_are_counted():
    every = ["dataset.max_eval_samples=null"]
    assert line_for(*every, "dataset.eval_fraction=0.3") == (
        "warning: the run in out/run trained on 50 of these 150 problems"  # 0.3 less 0.2 of 500
    )
    assert line_for(*every, "split=train") == "warning: the run in out/run trained on 400 of these 400 problems"
    assert line_for(*every, seed=6).startswith("warning: the run in out/run trained on")


def test_another_set_is_searched_for_what_the_run_trained_on():
    dataset = read_settings("train", [*RUN]).dataset
    problem = read_problems(problem_source(dataset), problem_split(dataset, 5)).trained[0]
    rows = [{"problem": text, "answer": "13"} for text in (f"Problem 3: {problem.text.lower()}", "find y", "And why?")]
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("dataset.name=asked.jsonl", "dataset.columns.reasoning=null", "dataset.eval_fraction=0", "split=train")
    words += ("dataset.generator=null", "dataset.max_train_samples=null")
    assert line_for(*words) == "warning: the run in out/run trained on 1 of these 3 problems"
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    assert line_for(*words) == "problems of asked.jsonl; the run in out/run trained on none of them"


def test_a_checkpoint_of_no_run_and_a_run_without_a_record_are_named(recorded):
    alone = problems_line("openai/gsm8k", ["x"], run_of_checkpoint(Path("elsewhere/model")))
    assert alone == "problems of openai/gsm8k; the checkpoint is not in the folder of a run"
    recorded.with_name("problems.json").unlink()
    assert "it may have trained on these" in line_for()


def test_a_file_that_the_run_does_not_train_on_is_taken_whole_unless_a_key_divides_it(capsys):
    rows = [{"problem": f"Which is {n}?", "answer": f"{n}"} for n in range(40)]
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def taken(*words):
        settings = read_settings("evaluate", [CHECKPOINT, *words])
        return len(_rows(settings, run_of_checkpoint(settings.checkpoint), Console()))

    assert taken("dataset=asked.jsonl") == 40
    assert "evaluated: 40 of 40 usable problems, by split=all" in capsys.readouterr().out
    assert taken("dataset=asked.jsonl", "split=eval") == 1
    assert "evaluated: 1 of 40 usable problems, by split=eval; split=all takes all" in capsys.readouterr().out
    assert taken("dataset=asked.jsonl", "dataset.eval_fraction=0.1") == 4
    assert taken() == 20 and taken("split=all", "max_samples=30") == 30
