"""`dataset=reasoning_gym` in the commands: refused before anything loads, checked, scored, trained, evaluated."""

import json
import re

import pandas as pd
import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.results import ProblemResult, read_lines
from rlvr_vocab.runs.model import untrained_base
from tests.settings import load_settings, refusal

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install -e '.[gym]'")

GYM = "dataset=reasoning_gym"
SUMS = "{name: chain_sum, params: {max_terms: 2, max_digits: 1}}"
TINY = ("model=tiny", "logging=disabled", GYM)


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("train", [GYM], "dataset.tasks is missing, as in"),
        ("check", [GYM, "dataset.tasks=[lcm,gdc]"], "no task gdc; did you mean gcd?"),
        ("train", [GYM, "dataset.tasks=[{name:lcm,weight:0}]"], "dataset.tasks[0].weight=0: should be greater than 0"),
        ("train", ["dataset=gsm8k", "dataset.tasks=[lcm]"], "belong to dataset=reasoning_gym"),
        ("train", [GYM, "dataset.tasks=[lcm]", "dataset.eval_fraction=0"], "set dataset.eval_split=null too"),
        ("train", [GYM, "dataset.tasks=[lcm]", "dataset.columns.problem=text"], 'no column "text"'),
        ("quickstart", [GYM, f"dataset.tasks=[{SUMS},countdown]"], "no worked solutions of countdown"),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_loads(command, words, said):
    assert said in refusal(command, ["logging=disabled", *words] if command == "train" else words)


def test_the_tasks_own_scorer_is_the_reward_unless_another_is_named():
    def rewards(*words):
        return [each.name for each in read_settings("train", list(words)).rewards.functions]

    tasks = "dataset.tasks=[lcm]"
    assert rewards(GYM, tasks) == rewards("experiment=gym_mixed") == ["reasoning_gym"]
    assert rewards() == rewards("dataset=gsm8k") == rewards(GYM, tasks, "rewards=accuracy") == ["accuracy"]
    [stage] = read_settings("train", ["dataset=gsm8k", "stages=[{name: a, dataset: reasoning_gym}]", tasks]).stages
    assert [each.name for each in stage.run.rewards.functions] == ["reasoning_gym"]


def test_check_and_score_say_what_the_scorers_make_of_it(capsys):
    tasks = [GYM, f"dataset.tasks=[{SUMS},spell_backward]", "dataset.num_problems=60"]
    assert main(["check", *tasks]) == 0
    shown = capsys.readouterr().out
    assert "each task scores answers with its own scorer" in shown
    assert "Shared with" not in shown
    usable = int(re.findall(r"60 rows read, (\d+) usable", shown)[0])
    assert main(["score", *tasks]) == 0
    assert f"at full mark {usable} of {usable} (100.0%)" in capsys.readouterr().out


def test_the_embedded_model_knows_the_words_of_the_tasks():
    from transformers import AutoTokenizer

    settings = load_settings("train", [*TINY, f"dataset.tasks=[{SUMS},spell_backward]"])
    tokenizer = AutoTokenizer.from_pretrained(untrained_base(settings.model, settings.seed, settings.dataset))
    pieces = tokenizer.tokenize("State the final answer to the following arithmetic problem: 12 + 34 =")
    assert [piece.lstrip("Ġ") for piece in pieces if piece.strip("Ġ").isalpha()] == (
        ["State", "the", "final", "answer", "to", "the", "following", "arithmetic", "problem"]
    )
    assert "Ġbackward" in tokenizer.tokenize("Spell this word backward (example: sun -> nus): cat")


@pytest.mark.slow
def test_a_run_is_trained_measured_and_evaluated_by_task(tmp_path, capsys):
    run = tmp_path / "run"
    words = [
        f"dataset.tasks=[{SUMS},{{name: spell_backward, params: {{max_word_len: 3}}}}]",
        *("dataset.num_problems=300", "dataset.max_eval_samples=20"),
        *("warmup.max_steps=4", "warmup.check_every=4", "warmup.num_check_problems=8"),
        *("training.max_steps=2", "training.per_device_train_batch_size=16", "training.num_generations=4"),
        *("training.eval_steps=null", f"output_dir={run}"),
    ]
    assert main(["quickstart", GYM, *words]) == 0
    rows = pd.read_parquet(run / "completions" / "step_00001.parquet")
    assert set(rows["task"]) <= {"chain_sum", "spell_backward"} and rows["difficulty"].str.len().min() > 0
    assert "reward/reasoning_gym" in rows
    after = read_lines(run / "evaluation" / "after.jsonl", ProblemResult)
    assert {each.task for each in after} == {"chain_sum", "spell_backward"}
    summary = json.loads((run / "summary.json").read_text())
    assert summary["grader"]["name"] == "reasoning_gym" and summary["accuracy_after"] is not None

    assert main(["quickstart", GYM, *words]) == 0  # shown again: the same problems are the same run
    capsys.readouterr()
    held_out, test = tmp_path / "held_out", tmp_path / "test"
    assert main(["evaluate", f"checkpoint={run}/final_model", f"out={held_out}"]) == 0
    assert "problems held out by the run" in (shown := capsys.readouterr().out)
    assert "spell_backward" in shown.partition("task ")[2]
    assert main(["evaluate", f"checkpoint={run}/final_model", f"out={test}", "dataset.eval_split=test"]) == 0
    tasks = json.loads((test / "summary.json").read_text())["tasks"]
    assert tasks.keys() == {"chain_sum", "spell_backward"} and tasks["chain_sum"]["avg@1"]["problems"] > 0
