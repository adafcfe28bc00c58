"""Completions come out of files of any kind as training would hand them over, or are refused with row and reason."""

import json

import pandas as pd
import pytest

from rlvr_vocab.commands.score import Row, read_completions, recorded_context, score_rows
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec, Score
from rlvr_vocab.terminal import make_console
from rlvr_vocab.vocab.layout import VocabLayout


@pytest.fixture
def read(tmp_path):
    """Reads a path, or rows of a file, with keys of the command."""

    def run(given, **keys):
        if isinstance(given, list):
            text = "".join(json.dumps(row) + "\n" for row in given)
            (given := tmp_path / "rows.jsonl").write_text(text)
        words = [f"completions={given}", *(f"{key}={value}" for key, value in keys.items())]
        return read_completions(read_settings("score", words), given)

    return run


def turn(text):
    return [{"role": "assistant", "content": text}]


PARTS = [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}, {"role": "tool", "content": None}]
QUESTION = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"answer": 0.5}, {"answer": 0.5, "solution": 0.5}),
        ({"prompt": "q"}, {"prompts": QUESTION}),
        ({"prompt": QUESTION}, {"prompts": QUESTION}),
        ({"completions": 1, "completion_ids": [3]}, {"raw_completions": 1, "completion_ids": [3]}),  # as TRL's
        ({"completion": PARTS}, {"completions": PARTS}),
        ({"completion": QUESTION + PARTS + QUESTION}, {"prompts": QUESTION, "completions": PARTS + QUESTION}),
        ({"completion": None}, {"completions": turn("")}),
        ({"completion": 42}, {"completions": turn("42")}),
    ],
)
def test_a_row_becomes_the_columns_of_a_reward(row, columns, read):
    assert read([{"completion": "c", **row}])[0].columns == {"completions": turn("c"), **columns}


def test_conversations_are_read_from_the_first_turn_of_the_assistant_on(read):
    [row] = read([{"messages": QUESTION + PARTS, "answer": "7"}])
    assert row.columns == {"prompts": QUESTION, "completions": PARTS, "answer": "7", "solution": "7"}
    assert read([{"messages": QUESTION, "completion": "c"}])[0].columns["completions"] == turn("c")
    assert read([{"messages": PARTS, "completion": "c"}])[0].columns["completions"] == PARTS
    with pytest.raises(UserError, match="row 1: its completion is "):
        read([{"messages": QUESTION}])


def test_columns_go_by_the_names_that_are_given(read):
    row = {"question": "q", "response": "r", "expert_answer": "1,000", "answer": "a"}
    columns = {"completion_column": "response", "prompt_column": "question", "solution_column": "expert_answer"}
    golds = {"solution": "1,000", "answer": "1,000", "expert_answer": "1,000", "raw_answer": "a"}
    found = read([row], **columns)[0].columns
    assert found == {"completions": turn("r"), "prompts": QUESTION, **golds}


def test_a_row_may_lack_a_completion_or_a_gold_answer(read, tmp_path):
    (tmp_path / "gaps.csv").write_text("completion,solution\n\\boxed{1},1\n,2\n\\boxed{3}\n")
    rows = read(tmp_path / "gaps.csv")
    assert [row.text for row in rows] == ["\\boxed{1}", "", "\\boxed{3}"]
    assert [row.columns["solution"] for row in rows] == ["1", "2", None]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"completion": "c"}, 17], "row 2 is 17, not an object"),
        ([{"completion": {"text": "c"}}], "row 1: its completion is {'text': 'c'}, neither text nor the messages of"),
        ([{"completion": [{"role": "assistant", "content": 3}]}], "row 1: its completion is [{'role'"),
        ([{"completion": [{"role": "user", "content": "q"}]}], "neither text nor the messages of an assistant's turn"),
        ([{"completions": "c"}], "has no column completion; its columns are completions; set completion_column=compl"),
        (
            [{"Frage": f"1+{n}?", "Antwort Modell": "es ist 2,0", "Lösung": f"{n + 1},0"} for n in range(3)],
            "set 'completion_column=Antwort Modell' 'solution_column=Lösung'",
        ),
        ([], "is empty; it must hold at least one row"),
    ],
)
def test_a_file_without_turns_is_refused_by_row_or_column(rows, said, read):
    with pytest.raises(UserError) as caught:
        read(rows)
    assert said in str(caught.value)


@pytest.fixture
def run(tmp_path):
    """A run that thinks between other tags, with a staged checkpoint and the completions of three steps of two rows."""
    words = ["model=tiny", "dataset=arithmetic", "model.think_tags=['[r]','[/r]']", "training.max_completion_length=48"]
    folder = tmp_path / "out" / "run"
    for model in (folder / "initial_model", folder / "stages" / "1_format" / "checkpoint-20"):
        model.mkdir(parents=True)
        VocabLayout(100, (1, 2, 3), 7, 8, (5,), ()).save(model)
    (folder / "config.yaml").write_text(config_yaml(read_settings("train", words).resolved))
    (folder / "completions").mkdir()
    of_each_token = ("sampling_logps",)
    for step in (2, 20_000, 100_000):
        columns = {"step": step, "prompt": "<user>6*7?", "completion": [f"a{step}", f"b{step}"], "advantage": 0.5}
        columns |= {"completion_ids": [[7, 8], [9]], "prompt_ids": [[1], [1]], "solution": "42", "reward": 1.0}
        columns |= {"reward/accuracy": 1.0, **{name: [[-1.0, -1.0], [-1.0]] for name in of_each_token}}
        pd.DataFrame(columns).to_parquet(folder / "completions" / f"step_{step:05d}.parquet", index=False)
    return folder


def test_the_steps_of_a_run_come_in_order_without_what_training_hands_to_no_function(run, read):
    rows = read(run / "completions")
    assert [row.text for row in rows] == ["a2", "b2", "a20000", "b20000", "a100000", "b100000"]
    assert [row.place for row in rows[1:3]] == [{"step": 2, "row": 2}, {"step": 20_000, "row": 1}]
    assert [row.columns["completion_ids"] for row in rows[:2]] == [[7, 8], [9]]
    passed_on = {"completions", "prompts", "step", "completion_ids", "solution", "answer", "reward/accuracy"}
    assert set(rows[0].columns) == passed_on
    assert read(run / "completions" / "step_20000.parquet")[0].place == {"step": 20_000, "row": 1}
    assert [len(read(run / "completions", max_samples=most)) for most in (3, 99)] == [3, 6]


def test_what_a_run_left_is_judged_with_what_the_run_knew(run, tmp_path):
    for path in ("evaluation/after.jsonl", "stages/1_format/checkpoint-20/evaluation/gsm8k/results.jsonl"):
        assert recorded_context(run / path) == RewardContext(("[r]", "[/r]"), 48)
    for path in ("samples.jsonl", "completions/mine.csv"):  # of no run
        assert recorded_context(tmp_path / path) == RewardContext(THINK_TAGS)


def scored(names, prompts, texts, golds=None):
    rows = [
        Row({"row": number}, {"completions": turn(text), "prompts": prompt, "solution": gold})
        for number, (text, prompt, gold) in enumerate(zip(texts, prompts, golds or texts, strict=True), start=1)
    ]
    score_rows(rewards_of(names), rows, make_console())
    return rows


def rewards_of(names):
    specs = [RewardSpec(name, weight) for name, weight in zip(names, (2.0, 0.5), strict=False)]
    return build_rewards(specs, RewardContext(THINK_TAGS))


def test_rows_are_scored_64_at_once_with_the_rest_of_a_group(monkeypatch):
    sizes = []

    def explain(self, completions, **_):
        sizes.append(len(completions))
        return [Score(1.0, "")] * len(completions)

    monkeypatch.setattr(Reward, "explain", explain)
    scored(["boxed"], ["a"] * 63 + ["b"] * 10 + [str(number) for number in range(77)], ["t"] * 150)
    scored(["boxed"], ["a"] * 150, ["t"] * 150)
    assert sizes == [73, 64, 13, 150]


def test_every_row_has_the_scores_that_it_has_alone_and_a_total_leaves_out_rewards_without_one():
    texts = [f"<think>\\boxed{{{number}}}</think>\\boxed{{{number % 3}}}" for number in range(150)]
    prompts, names = [f"{number}?" for number in range(150)], ["accuracy", "boxed"]
    rows = scored(names, prompts, texts, ["1"] * 149 + [None])
    assert [row.scores[0].value for row in rows[:149]] == [float(number % 3 == 1) for number in range(149)]
    assert {row.scores[1].reason for row in rows} == {"2 boxes"}
    assert [rows[number].total(rewards_of(names)) for number in (0, 1, 149)] == [0.0, 2.0, 0.0]
    [alone] = scored(["accuracy"], ["p"], ["1"], [None])
    assert alone.total(rewards_of(["accuracy"])) is None
