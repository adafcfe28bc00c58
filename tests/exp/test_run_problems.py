"""The problems of a run and of its stages: what the run holds out, no stage trains on."""

import json

from rich.console import Console

from rlvr_vocab.data import held_out_keys
from rlvr_vocab.exp.data_wiring import problem_source, problem_split
from rlvr_vocab.exp.problem_account import problem_account
from rlvr_vocab.exp.run_problems import load_run_problems
from rlvr_vocab.exp.settings import load_settings

WORDS = ("experiment=quickstart", "dataset.max_eval_samples=8", "dataset.generator.num_problems=1000")


def questions(rows):
    return {" ".join(prompt[-1]["content"].split()) for prompt in rows["prompt"]}


def test_a_stage_that_cuts_the_same_set_otherwise_gets_none_of_the_held_out_problems(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = load_settings("train", [*WORDS, "stages=[{name:a},{name:b,dataset:{eval_fraction:0.01}}]"])
    problems = load_run_problems(settings, Console(quiet=True))
    held_out = held_out_keys(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
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
    account = problem_account(5, problems.unusable_held_out, [("", problems.accounts[0], 38, 26)])
    assert account["held_out"] == {"measured_on": 5, "unusable_gold_answers": 0}
    [training] = account["training"]
    assert training["rows_read"] == 63 and sum(training["left_out"].values()) == 3 and training["usable"] == 60
    assert [training[name] for name in ("held_out", "beyond_max_eval_samples", "beyond_max_train_samples")] == [5, 7, 8]
    assert training["prompts_too_long"] == 2 and training["trained_on"] == 38
    assert training["longest_prompt"] == 26
    assert "stage" not in training
