"""The problems of a run and of its stages: what the run holds out, no stage trains on."""

from rich.console import Console

from rlvr_vocab.data import held_out_keys
from rlvr_vocab.exp.data_wiring import problem_source, problem_split
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
