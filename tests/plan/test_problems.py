"""The problems and prompts that a plan reckons with."""

import json
import math

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.plan.forecast import longest_met
from rlvr_vocab.plan.problems import problems_ahead


def test_prompts_of_a_file_are_estimated_by_their_characters_up_to_the_limit(tmp_path):
    file = tmp_path / "rows.jsonl"
    texts = ("x" * 300, "x" * 600)
    file.write_text("".join(json.dumps({"problem": text, "answer": "1"}) + "\n" for text in texts))
    words = ["dataset=local", f"dataset.name={file}", "dataset.eval_fraction=0", "dataset.max_eval_samples=0"]
    words += ["model=qwen3_0.6b", "dataset.system_prompt=null"]
    problems, prompts = problems_ahead(read_settings("train", words))
    assert problems == 2 and sorted(prompts) == [300 // 3 + 12, 600 // 3 + 12]
    assert problems_ahead(read_settings("train", [*words, "training.max_prompt_length=200"]))[1] == (112,)


def test_of_a_set_on_the_hub_only_its_size_is_known():
    assert problems_ahead(read_settings("train", ["dataset=gsm8k"])) == (7_473, ())


def test_few_draws_meet_no_extremes_and_many_meet_all():
    prompts = [*range(1, 100), 1000]
    assert longest_met(prompts, 1) == 51 and longest_met(prompts, 9) == 91
    assert longest_met(prompts, 99) == longest_met(prompts, math.inf) == 1000
    assert longest_met([7], 0.1) == 7
