"""The problems and prompts of a forecast."""

import math

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.plan.forecast import longest_met
from rlvr_vocab.plan.workload import configured_problems


def test_the_number_of_problems_follows_from_the_configuration():
    for words, problems in (
        (["dataset=gsm8k"], 7_473),
        (["dataset=gsm8k", "dataset.max_train_samples=100"], 100),
        (["dataset=arithmetic", "dataset.generator.num_problems=60", "dataset.eval_fraction=0.1"], 54),
        (["dataset=local", "dataset.name=mine.jsonl"], None),
    ):
        assert configured_problems(read_settings("train", words)) == problems


def test_few_draws_meet_no_extremes_and_many_meet_all():
    prompts = [*range(1, 100), 1000]
    assert longest_met(prompts, 1) == 51 and longest_met(prompts, 9) == 91
    assert longest_met(prompts, 99) == longest_met(prompts, math.inf) == 1000
    assert longest_met([7], 0.1) == 7
