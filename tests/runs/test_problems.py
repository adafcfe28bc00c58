"""The problems of a run and of its stages: what the run holds out, no stage trains on."""

import json

import pytest
from rich.console import Console

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.problem_source import problem_source, problem_split
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.problem_account import check_same_division
from rlvr_vocab.runs.problems import load_run_problems

WORDS = ("experiment=quickstart", "dataset.max_eval_samples=8", "dataset.generator.num_problems=1000")


def questions(rows):
    return {" ".join(prompt[-1]["content"].split()) for prompt in rows["prompt"]}


def test_a_stage_that_cuts_the_same_set_otherwise_gets_none_of_the_held_out_problems(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load_settings("train", [*WORDS, "stages=[{name:a},{name:b,dataset:{eval_fraction:0.01}}]"])
    problems = load_run_problems(settings, Console(quiet=True))
    divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
    held_out = {problem.text for problem in divided.reserved}
    assert len(held_out) == 100  # a tenth, of which 8 are measured on
    assert len(problems.held_out) == 8
    assert [len(rows) for rows in problems.by_stage] == [900, len(questions(problems.by_stage[1]))]
    assert all(questions(rows) & held_out == set() for rows in problems.by_stage)
    assert len(problems.by_stage[1]) > 880


def test_the_account_of_a_problem_set_adds_up(tmp_path):
    rows = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(60)]
    rows += [{"problem": "", "answer": "1"}] * 2 + [{"problem": "Without an answer?", "answer": None}]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        "model=tiny",
        "dataset=local",
        f"dataset.name={file}",
        "dataset.eval_fraction=0.2",
        "dataset.max_eval_samples=5",
    ]
    small = ["training.per_device_train_batch_size=8", "training.num_generations=4", "dataset.max_train_samples=40"]
    settings = load_settings("train", [*words, *small])
    problems = load_run_problems(settings, Console(quiet=True))
    account = problems.account([(38, 26)])
    assert (account["held_out"]["measured_on"], account["held_out"]["unusable_gold_answers"]) == (5, 0)
    [training] = account["training"]
    assert training["rows_read"] == 63 and sum(training["left_out"].values()) == 3 and training["usable"] == 60
    assert [training[name] for name in ("held_out", "beyond_max_eval_samples", "beyond_max_train_samples")] == [5, 7, 8]
    assert training["prompts_too_long"] == 2 and training["trained_on"] == 38
    assert training["longest_prompt"] == 26
    assert "stage" not in training


def test_a_run_goes_on_with_the_problems_that_it_began_with_or_not_at_all(tmp_path, capsys):
    rows = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(40)]
    file, run = tmp_path / "problems.jsonl", tmp_path / "run"
    words = ["model=tiny", "dataset=local", f"dataset.name={file}", "dataset.eval_fraction=0.2", f"output_dir={run}"]

    file.write_text(json.dumps(rows[0]) + "\n")
    settings = load_settings("train", words)

    def check_with_the_last_row(**changed):
        written = [*rows[:-1], {**rows[-1], **changed}]
        file.write_text("".join(json.dumps(row) + "\n" for row in written))
        problems = load_run_problems(settings, Console(quiet=True))
        check_same_division(settings, problems.account(), Console())
        return problems

    account = check_with_the_last_row().account([(32, 26)])
    (run / "initial_model").mkdir(parents=True)
    (run / "problems.json").write_text(json.dumps(account))
    check_with_the_last_row()
    assert capsys.readouterr().out == ""

    with pytest.raises(UserError, match=r"divided otherwise than when this run began \(.*give it back its problem set"):
        check_with_the_last_row(problem="3. what is 0 + 1")
    with pytest.raises(UserError, match=r"\((training|held out): as many problems, but others\)"):
        check_with_the_last_row(answer="7")
    (run / "problems.json").write_text('{"held_out"')
    check_with_the_last_row()
    assert "problems.jsoncannotberead" in "".join(capsys.readouterr().out.split())
