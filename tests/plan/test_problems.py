"""What a plan knows of problems before they are trained on."""

import json
import math

from transformers import AutoTokenizer

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import problem_source, problem_split, prompt_style
from rlvr_vocab.data.load import load_problem_sets
from rlvr_vocab.plan import workload
from rlvr_vocab.plan.workload import longest_met, problems_ahead
from rlvr_vocab.runs.model import untrained_base

TINY = ("model=tiny", "dataset=arithmetic", "dataset.generator.num_problems=60", "dataset.max_eval_samples=2")


def rows_file(folder, texts):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps({"problem": text, "answer": "1"}) + "\n" for text in texts))
    return ("dataset=local", f"dataset.name={file}", "dataset.eval_fraction=0", "dataset.max_eval_samples=0")


def test_prompts_have_the_lengths_that_the_run_will_find():
    run = read_settings("train", [*TINY, "dataset.system_prompt=Think, then box the result."])
    sets = load_problem_sets(
        problem_source(run.dataset), prompt_style(run.dataset), problem_split(run.dataset, run.seed)
    )
    tokenizer = AutoTokenizer.from_pretrained(untrained_base(run))
    rendered = tokenizer.apply_chat_template(list(sets.train["prompt"]), add_generation_prompt=True, return_dict=False)
    ahead = problems_ahead(run)
    assert ahead.count == len(sets.train) and list(ahead.prompts) == [len(ids) for ids in rendered]


def test_prompts_beyond_the_limit_are_left_out(tmp_path):
    words = ["model=tiny", *rows_file(tmp_path, ["1+1", "1+1 and " + "more " * 40])]
    long, short = sorted(problems_ahead(read_settings("train", words)).prompts, reverse=True)
    limited = read_settings("train", [*words, f"training.max_prompt_length={long - 1}"])
    assert problems_ahead(limited).prompts == (short,)


def test_the_longest_prompts_are_counted_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(workload, "_SAMPLE", 3)
    monkeypatch.setattr(workload, "_LONGEST", 1)
    run = read_settings("train", ["model=tiny", *rows_file(tmp_path, [f"{10**i}+1" for i in range(20)])])
    ahead = problems_ahead(run)
    assert ahead.count == 20 and len(ahead.prompts) == 4
    assert max(ahead.prompts) - min(ahead.prompts) > 10


def test_without_a_tokenizer_characters_stand_for_tokens(tmp_path):
    run = read_settings("train", ["model=qwen3_0.6b", "dataset.system_prompt=null", *rows_file(tmp_path, ["x" * 300])])
    [length] = problems_ahead(run).prompts
    assert 100 < length < 130


def test_of_a_set_on_the_hub_only_its_size_is_known():
    ahead = problems_ahead(read_settings("train", ["dataset=gsm8k"]))
    assert ahead.prompts == () and ahead.count == 7_473


def test_few_draws_meet_no_extremes_and_many_meet_all():
    prompts = [*range(1, 100), 1000]
    assert longest_met(prompts, 1) == 51 and longest_met(prompts, 9) == 91
    assert longest_met(prompts, 99) == longest_met(prompts, math.inf) == 1000
    assert longest_met([7], 0.1) == 7
