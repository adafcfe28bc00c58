"""The rewards of a run: dry runs on right answers, refusals, and prompts that ask for another form than is read."""

import re
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.sections import RewardSettings, prompt_style
from rlvr_vocab.data.rows import build_messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.results import ACCURACY, read_thought_reading
from rlvr_vocab.rewards.build import build_rewards
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.runs.final_model import card_of_run
from rlvr_vocab.runs.rewards import (
    answer_warnings,
    dry_run_rewards,
    dummy_context,
    example_turns,
    gold_forms,
    highest_reward_form,
    write_thought_reading,
)

TAGS = ("<think>", "</think>")
ROWS = Dataset.from_list([{"prompt": [{"role": "user", "content": "6*7?"}], "solution": "42", "level": 3}] * 3)


def rewards(*functions):
    named = [{"name": function} if isinstance(function, str) else function for function in functions]
    return RewardSettings(tuple(RewardSpec(**function) for function in named))


def accuracy(*answer_from):
    return {"name": "accuracy", "params": {"answer_from": list(answer_from)}}


@pytest.mark.parametrize(
    "functions",
    [
        ["accuracy", "boxed", "think_format", "numeric", "exact_match"],
        [accuracy("hash")],
        [accuracy("phrase", "box")],
        ["xml_tags", "xml_format", "accuracy", "numeric"],
    ],
)
def test_a_gold_turn_has_full_marks_from_rewards_that_can_all_be_met(functions):
    specs, row = rewards(*functions).functions, ROWS[0]
    form = highest_reward_form(specs, dummy_context(TAGS), gold_forms(TAGS), [row])
    turn = [{"role": "assistant", "content": example_turns([form], row)[0]}]
    for reward in build_rewards(specs, dummy_context(TAGS)):
        [score] = reward.explain(completions=[turn], solution=["42"], prompts=["6*7?"])
        assert score.value == reward.full_mark, (reward.name, score)


MINE = """
def debug(completions):
    return ['no'] * len(completions)
def nothing(completions):
    return [None] * len(completions)
def other_column(completions, difficulty):
    return difficulty
def strict(completions, **columns):
    return [float('<answer>' in turn[0]['content']) or 'no' for turn in completions]
"""


@pytest.mark.parametrize(
    ("functions", "refused"),
    [
        ("[accuracy,mine.py:debug]", "reward debug returned 'no'"),
        ("[mine.py:strict]", "reward strict returned 'no'"),
        ("[xml_format,mine.py:strict]", None),  # tried in the form that the rewards ask for
        ("[mine.py:other_column]", "have solution, level; add the column, or give the parameter as rewards=[{name: …"),
        (
            "[multiple_choice,mine.py:nothing]",
            "nothing could be learned, the first problems have no score: "
            "multiple_choice gave None (the gold answer is not one letter); nothing gave None",
        ),
        ("[multiple_choice,accuracy]", None),
        ("[multiple_choice,{name:accuracy,weight:0}]", "nothing could be learned"),
        ("[{name:accuracy,weight:0},{name:boxed,weight:0.0}]", "every weight is 0, so nothing could be learned"),
    ],
)
def test_rewards_are_tried_on_right_answers_before_training(functions, refused, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    settings = read_settings("train", ["model=tiny", "dataset=arithmetic", f"rewards={functions}"])
    with nullcontext() if refused is None else pytest.raises(UserError, match=re.escape(refused)):
        dry_run_rewards(settings, ROWS)


TAG = "rewards=[{name:accuracy,params:{answer_from:[answer_tag,phrase]}}]"


def warnings(*words, problem="A box holds 3 balls. And two boxes?"):
    own = [] if "dataset=arithmetic" in words else ["dataset=local", "dataset.name=x.jsonl"]
    settings = read_settings("train", [*own, *words])
    return list(answer_warnings(settings, [build_messages(problem, prompt_style(settings.dataset))]))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dataset.system_prompt=null"], "accuracy looks for \\boxed{…}"),
        (
            ["dataset.system_prompt=Put it into \\\\boxed.", TAG],
            "accuracy looks for <answer>…</answer> or The answer is",
        ),
        (["rewards=[xml_format]"], "xml_format looks for <answer>…</answer>"),
        (["model=tiny", "dataset=arithmetic"], "random weights and never answers correctly: set warmup.max_steps"),
        ([], None),
        (["dataset.system_prompt=Think, then box the sum."], None),
        (["dataset.system_prompt=Say: The answer is 3.", TAG], None),
        (["experiment=gsm8k_reasoning"], None),
        (["dataset.system_prompt=null", "rewards=[exact_match,numeric,multiple_choice]"], None),
        (["model=tiny", "warmup.max_steps=9", "dataset.columns.reasoning=working", "dataset.system_prompt=null"], None),
    ],
)
def test_a_form_that_is_read_and_not_asked_for_is_named_and_no_other(words, named):
    lines = warnings(*words)
    assert (named is None and lines == []) or (len(lines) == 1 and named in lines[0])
    assert warnings("dataset.system_prompt=null", problem="1+1=? Answer in \\boxed{}.") == []


def test_the_last_completions_of_a_run_are_scored_with_the_columns_of_their_problems(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def by_level(completions, level): return [x * len(c[-1]['content']) for x, c in zip(level, completions)]\n"
        "def fails(completions, absent): return [1.0] * len(completions)\n"
    )
    names = f"accuracy,{tmp_path}/mine.py:by_level,{{name: overlong, weight: 0.5}},{tmp_path}/mine.py:fails"
    words = ["model=tiny", "dataset=arithmetic", f"rewards=[{names}]", f"output_dir={tmp_path}"]
    asked = {"7?": 1, "6*7?": 3, "16*7?": 5}  # each ends like the one before
    problems = [{"prompt": [{"role": "user", "content": text}], "level": level} for text, level in asked.items()]
    (tmp_path / "completions").mkdir()
    for step in range(1, 6):  # in the last one no thought is closed any more
        texts = [f"<think>{'a' * (step * sample)}{'</think>1' * (step < 5)}" for sample in range(64)]
        rows = [{"prompt": f"{p}\n", "completion": text} for p in ("user\n6*7?", "unknown") for text in texts]
        table = pa.Table.from_pylist([{**each, "step": step, "reward": 0.0, "completion_ids": [0]} for each in rows])
        pq.write_table(table, tmp_path / "completions" / f"step_0000{step}.parquet")
    write_thought_reading(read_settings("train", words), Dataset.from_list(problems), Console(quiet=True))
    found = read_thought_reading(tmp_path)
    accuracy, by_level, overlong, fails = found["rewards"]
    assert (found["completions"], found["problems"]) == (128, 2)  # of 256, those to a known problem
    assert (accuracy["reads"], accuracy["declared"], accuracy["measured"]) == (None, "nothing", False)
    assert by_level["reads"] and by_level["share"] > 0.8 and by_level["moved"]["blank"] == 126 / 128
    assert overlong["declared"] == "length" and "completion_ids" in overlong["sentence"]
    assert not fails["measured"] and "absent" in fails["sentence"]
    card = card_of_run(tmp_path, read_settings("train", words).resolved, ACCURACY, adapter=False, steps=1)
    assert card["thoughts"] == [each["sentence"] for each in found["rewards"]]
