"""The problems and prompts of a forecast."""

import math

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.plan.devices import device_named
from rlvr_vocab.plan.forecast import longest_met
from rlvr_vocab.plan.workload import configured_problems, workload_of


def test_the_number_of_problems_follows_from_the_configuration():
    for words, problems in (
        (["dataset=gsm8k"], 7_473),
        (["dataset=gsm8k", "dataset.max_train_samples=100"], 100),
        (["dataset=arithmetic", "dataset.generator.num_problems=60", "dataset.eval_fraction=0.1"], 54),
        (["dataset=local", "dataset.name=mine.jsonl"], None),
    ):
        assert configured_problems(read_settings("train", words)) == problems


def test_the_schemas_of_tools_lengthen_prompts_of_unknown_length():
    run = read_settings("plan", ["model=tiny", "tools=[calculator,mine.py:f]"])  # whose file is not imported
    device = device_named("h100")
    assert workload_of(run, device).prompt == 256 + 100 + 2 * 100
    assert workload_of(run, device, prompt=31).prompt == 31
    assert workload_of(read_settings("plan", ["model=tiny"]), device).prompt == 256


def test_few_draws_meet_no_extremes_and_many_meet_all():
    prompts = [*range(1, 100), 1000]
    assert longest_met(prompts, 1) == 51 and longest_met(prompts, 9) == 91
    assert longest_met(prompts, 99) == longest_met(prompts, math.inf) == 1000
    assert longest_met([7], 0.1) == 7
