"""Completions come out of files of any kind as training would hand them over, or are refused with row and reason."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlvr_vocab.commands.score import Rows, Scores, read_completions, recorded_context, score_rows
from rlvr_vocab.config.checks.commands import check_completions
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RewardSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec
from rlvr_vocab.terminal import make_console
from rlvr_vocab.vocab.layout import VocabLayout


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Reads a path, or rows of a file, with keys of the command."""

    def run(given: Path | list[Any], **keys: Any) -> tuple[Rows, list[str]]:
        if isinstance(given, list):
            text = "".join(json.dumps(row) + "\n" for row in given)
            (given := tmp_path / "rows.jsonl").write_text(text)
        words = [f"completions={given}", *(f"{key}={value}" for key, value in keys.items())]
        return read_completions(read_settings("score", words), given)

    return run


def turn(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


PARTS = [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}, {"role": "tool", "content": None}]
QUESTION = [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"answer": 0.5}, {"answer": [0.5], "solution": [0.5]}),
        ({"prompt": "q"}, {"prompts": [QUESTION]}),
        ({"prompt": QUESTION}, {"prompts": [QUESTION]}),
        ({"completions": 1, "completion_ids": [3]}, {"raw_completions": [1], "completion_ids": [[3]]}),  # as TRL's
        ({"completion": PARTS}, {"completions": [PARTS]}),
        ({"completion": None}, {"completions": [turn("")]}),
        ({"completion": 42}, {"completions": [turn("42")]}),
    ],
)
def test_a_row_becomes_the_columns_of_a_reward(row: Any, columns: Any, read: Any) -> None:
    assert read([{"completion": "c", **row}])[0].columns == {"completions": [turn("c")], **columns}


def test_columns_go_by_the_names_that_are_given(read: Any) -> None:
    row = {"question": "q", "response": "r", "expert_answer": "#### 1,000", "answer": "a"}
    columns = {"completion_column": "response", "prompt_column": "question", "solution_column": "expert_answer"}
    golds = {"solution": ["1000"], "answer": ["1000"], "expert_answer": ["#### 1,000"], "raw_answer": ["a"]}
    found = read([row], **columns, solution_format="hash")[0].columns
    assert found == {"completions": [turn("r")], "prompts": [QUESTION], **golds}


def test_what_is_missing_is_counted_and_worked_solutions_are_noticed(read: Any, tmp_path: Path) -> None:
    (tmp_path / "gaps.csv").write_text("completion,solution\n\\boxed{1},1\n,2\n\\boxed{3}\n")
    rows, notes = read(tmp_path / "gaps.csv")
    assert rows.columns["completions"] == [turn("\\boxed{1}"), turn(""), turn("\\boxed{3}")]
    assert rows.columns["solution"] == ["1", "2", None]
    assert notes == ["rows without a gold answer in the column solution: 1"]
    assert read([{"completion": None}, {"completion": 1}])[1] == ["rows without a completion, scored as empty ones: 1"]
    worked = [{"completion": "c", "solution": "So it is #### 72"}]
    assert "try solution_format=hash" in read(worked)[1][0] and read(worked, solution_format="hash")[1] == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"completion": "c"}, 17], "row 2 is 17, not an object"),
        ([{"completion": {"text": "c"}}], "row 1: its completion is {'text': 'c'}, neither text nor the messages of"),
        ([{"completion": [{"role": "assistant", "content": 3}]}], "row 1: its completion is [{'role'"),
        ([{"completion": [{"role": "user", "content": "q"}]}], "neither text nor the messages of an assistant's turn"),
        ([{"completions": "c"}], "has no column completion; its columns are completions; set completion_column=compl"),
        ([], "has no rows; it must hold at least one completion"),
    ],
)
def test_a_file_without_turns_is_refused_by_row_or_column(rows: Any, said: str, read: Any) -> None:
    with pytest.raises(UserError) as caught:
        read(rows)
    assert said in str(caught.value)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that thinks between other tags, with a staged checkpoint and the completions of three steps of two rows."""
    words = ["model=tiny", "dataset=arithmetic", "model.think_tags=['[r]','[/r]']", "training.max_completion_length=48"]
    folder = tmp_path / "out" / "run"
    for model in (folder / "initial_model", folder / "stages" / "1_format" / "checkpoint-20"):
        model.mkdir(parents=True)
        VocabLayout(100, (1, 2, 3), 7, 8, (5,), ()).save(model)
    (folder / "config.yaml").write_text(config_yaml(read_settings("train", words).resolved))
    (folder / "completions").mkdir()
    of_each_token = ("sampling_logps", "sampling_entropies", "sampling_copy_entropies")
    for step in (2, 20_000, 100_000):
        columns = {"step": step, "prompt": "<user>6*7?", "completion": [f"a{step}", f"b{step}"], "advantage": 0.5}
        columns |= {"completion_ids": [[7, 8], [9]], "prompt_ids": [[1], [1]], "solution": "42", "reward": 1.0}
        columns |= {"reward/accuracy": 1.0, **{name: [[-1.0, -1.0], [-1.0]] for name in of_each_token}}
        pd.DataFrame(columns).to_parquet(folder / "completions" / f"step_{step:05d}.parquet", index=False)
    return folder


def test_the_steps_of_a_run_come_in_order_without_what_training_hands_to_no_function(run: Path, read: Any) -> None:
    rows, _ = read(run / "completions")
    texts = [completion[0]["content"] for completion in rows.columns["completions"]]
    assert texts == ["a2", "b2", "a20000", "b20000", "a100000", "b100000"]
    assert rows.places[1:3] == [{"step": 2, "row": 2}, {"step": 20_000, "row": 1}]
    assert rows.columns["completion_ids"][:2] == [[7, 8], [9]]
    passed_on = {"completions", "prompts", "step", "completion_ids", "solution", "answer", "reward/accuracy"}
    assert set(rows.columns) == passed_on
    assert read(run / "completions" / "step_20000.parquet")[0].places[0] == {"step": 20_000, "row": 1}
    assert [len(read(run / "completions", max_samples=most)[0]) for most in (3, 99)] == [3, 6]


def test_what_holds_no_completions_is_refused_with_what_does(run: Path, tmp_path: Path) -> None:
    check_completions(run / "completions")
    (results := tmp_path / "evaluation" / "gsm8k").mkdir(parents=True)
    (results / "results.jsonl").touch()
    for path, said in [
        (run, f"did you mean {run}/completions?"),
        (results, "results.jsonl?"),
        (results.parent, "a folder without step_"),
        (run / "completions" / "step_20001.parquet", "does not exist; the nearest file there is step_20000.parquet"),
    ]:
        with pytest.raises(UserError) as caught:
            check_completions(path)
        assert said in str(caught.value)


def test_what_a_run_left_is_judged_with_what_the_run_knew(run: Path, tmp_path: Path) -> None:
    for path in ("evaluation/after.jsonl", "stages/1_format/checkpoint-20/evaluation/gsm8k/results.jsonl"):
        assert recorded_context(run / path) == RewardContext(("[r]", "[/r]"), 100, 7, 8, 48)
    (run / "initial_model" / "reasoning_vocab.json").unlink()
    assert recorded_context(run / "completions") == RewardContext(("[r]", "[/r]"), max_completion_length=48)
    for path in ("samples.jsonl", "completions/mine.csv"):  # of no run
        assert recorded_context(tmp_path / path) == RewardContext(THINK_TAGS)


def scored(names: list[str], prompts: list[str], texts: list[str], **columns: list[Any]) -> Scores:
    places = [{"row": number} for number in range(1, len(texts) + 1)]
    rows = Rows(places, {"completions": [turn(text) for text in texts], "prompts": prompts, **columns})
    specs = tuple(RewardSpec(name, weight) for name, weight in zip(names, (2.0, 0.5), strict=False))
    return score_rows(RewardSettings(specs), rows, RewardContext(THINK_TAGS), make_console())


def test_rows_are_scored_64_at_once_with_the_rest_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(Reward, "explain", lambda self, completions, **_: sizes.append(len(completions)) or [])
    scored(["boxed"], ["a"] * 63 + ["b"] * 10 + [str(number) for number in range(77)], ["t"] * 150)
    scored(["boxed"], ["a"] * 150, ["t"] * 150)
    assert sizes == [73, 64, 13, 150]


def test_every_row_has_the_scores_that_it_has_alone_and_a_total_leaves_out_rewards_without_one() -> None:
    texts = [f"<think>\\boxed{{{number}}}</think>\\boxed{{{number % 3}}}" for number in range(150)]
    prompts = [f"{number}?" for number in range(150)]
    scores = scored(["accuracy", "boxed"], prompts, texts, solution=["1"] * 149 + [None])
    accuracy, boxed = scores.by_reward
    assert [score.value for score in accuracy[:149]] == [float(number % 3 == 1) for number in range(149)]
    assert {score.reason for score in boxed} == {"2 boxes"}
    assert [scores.total(row) for row in (0, 1, 149)] == [0.0, 2.0, 0.0]
    assert scored(["accuracy"], ["p"], ["1"], solution=[None]).total(0) is None
