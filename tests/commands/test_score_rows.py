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
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.terminal import make_console
from rlvr_vocab.vocab.layout import VocabLayout


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path, most: int | None = None, **columns: str) -> tuple[Rows, list[str]]:
    words = [f"completions={path}", *(f"{key}={value}" for key, value in columns.items())]
    settings = read_settings("score", words if most is None else [*words, f"max_samples={most}"])
    return read_completions(settings, path)


def turn(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def refusal(path: Path, **columns: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(path, **columns)
    return str(caught.value)


def test_columns_go_by_the_names_that_are_given(tmp_path: Path) -> None:
    path = written(
        tmp_path / "r.jsonl", {"question": "q", "response": "r", "expert_answer": "#### 1,000", "answer": "a"}
    )
    columns = {
        "completion_column": "response", "prompt_column": "question", "solution_column": "expert_answer",
        "solution_format": "hash",
    }  # fmt: skip
    rows, _ = read(path, **columns)
    assert rows.columns["completions"] == [turn("r")] and rows.columns["prompts"] == [
        [{"role": "user", "content": "q"}]
    ]
    golds = {"solution": ["1000"], "answer": ["1000"]}
    assert rows.columns.items() >= {"expert_answer": ["#### 1,000"], "raw_answer": ["a"], **golds}.items()


def test_without_a_solution_the_answer_is_the_gold_answer_and_without_both_there_is_none(tmp_path: Path) -> None:
    rows, _ = read(written(tmp_path / "a.jsonl", {"completion": "c", "answer": 0.5}))
    assert rows.columns == {"completions": [turn("c")], "answer": [0.5], "solution": [0.5]}
    rows, _ = read(written(tmp_path / "b.jsonl", {"completion": "c"}))
    assert rows.columns == {"completions": [turn("c")]}


def test_messages_stay_messages(tmp_path: Path) -> None:
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}, {"role": "tool", "content": None}]
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    rows, _ = read(written(tmp_path / "m.jsonl", {"completion": parts, "prompt": prompt}, {"completion": []}))
    assert rows.columns["completions"] == [parts, []] and rows.columns["prompts"] == [prompt, None]


def test_what_is_missing_is_counted_and_scored_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("completion,solution\n\\boxed{1},1\n,2\n\\boxed{3}\n")
    rows, notes = read(path)
    assert rows.columns["completions"] == [turn("\\boxed{1}"), turn(""), turn("\\boxed{3}")]
    assert rows.columns["solution"] == ["1", "2", None]
    assert notes == ["rows without a gold answer in the column solution: 1"]
    rows, notes = read(written(tmp_path / "null.jsonl", {"completion": None}, {"completion": 42}))
    assert rows.columns["completions"] == [turn(""), turn("42")]
    assert notes == ["rows without a completion, scored as empty ones: 1"]


def test_worked_solutions_are_noticed_where_a_bare_answer_is_expected(tmp_path: Path) -> None:
    path = written(tmp_path / "w.jsonl", {"completion": "c", "solution": "So it is #### 72"})
    assert read(path)[1] == [
        "the gold answers in the column solution seem to be worked solutions: try solution_format=hash"
    ]
    assert read(path, solution_format="hash")[1] == []


def test_columns_called_like_what_a_trainer_passes_are_renamed(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.jsonl", {"completion": "c", "completions": 1, "trainer_state": 2, "completion_ids": [3]}
    )
    assert read(path)[0].columns == {
        "completions": [turn("c")],
        "raw_completions": [1],
        "raw_trainer_state": [2],
        "completion_ids": [[3]],
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (17, "row 2 is 17, not an object"),
        ({"completion": {"text": "c"}}, "row 2: its completion is {'text': 'c'}, neither text nor the messages of"),
        ({"completion": ["c"]}, "row 2: its completion is ['c'], neither text nor the messages of"),
        ({"completion": [{"role": "assistant", "content": 3}]}, "row 2: its completion is [{'role'"),
        ({"completion": [{"role": "user", "content": "q"}]}, "neither text nor the messages of an assistant's turn"),
    ],
)
def test_a_row_that_holds_no_turn_is_refused_by_its_number(row: Any, said: str, tmp_path: Path) -> None:
    assert said in refusal(written(tmp_path / "r.jsonl", {"completion": "fine"}, row))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"completion_column": "respons"}, "has no column respons; its columns are question, response; set "
                                           "completion_column=response"),
        ({"completion_column": "response", "solution_column": "s"}, "set solution_column=…"),
    ],
)  # fmt: skip
def test_a_missing_column_is_named_with_those_there_are(columns: dict[str, str], said: str, tmp_path: Path) -> None:
    assert said in refusal(written(tmp_path / "r.jsonl", {"question": "q", "response": "r"}), **columns)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("[]")
    assert refusal(tmp_path / "none.json").endswith("none.json has no rows; it must hold at least one completion")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The completions of three steps of a run, as a trainer writes them, two rows each."""
    folder = tmp_path / "run" / "completions"
    folder.mkdir(parents=True)
    for step in (2, 20_000, 100_000):
        columns = {
            "step": step, "prompt": "<user>6*7?", "completion": [f"a{step}", f"b{step}"], "prompt_ids": [[1], [1]],
            "completion_ids": [[7, 8], [9]], "solution": "42", "advantage": 0.5, "reward": 1.0, "reward/accuracy": 1.0,
            "sampling_logps": [[-1.0, -1.0], [-1.0]], "sampling_entropies": [[1.0, 1.0], [1.0]],
            "sampling_copy_entropies": [[0.5, 0.5], [0.5]],
        }  # fmt: skip
        pd.DataFrame(columns).to_parquet(folder / f"step_{step:05d}.parquet", index=False)
    return folder


def test_the_steps_of_a_run_come_in_their_order_without_what_training_hands_to_no_function(run: Path) -> None:
    rows, _ = read(run)
    assert [turn_[0]["content"] for turn_ in rows.columns["completions"]] == [
        "a2",
        "b2",
        "a20000",
        "b20000",
        "a100000",
        "b100000",
    ]
    assert rows.places[:3] == [{"step": 2, "row": 1}, {"step": 2, "row": 2}, {"step": 20_000, "row": 1}]
    assert rows.columns["completion_ids"][:2] == [[7, 8], [9]]
    assert set(rows.columns) == {
        "completions",
        "prompts",
        "step",
        "completion_ids",
        "solution",
        "answer",
        "reward/accuracy",
    }
    assert read(run / "step_20000.parquet")[0].places == [{"step": 20_000, "row": 1}, {"step": 20_000, "row": 2}]


def test_no_more_rows_are_read_than_are_wanted(run: Path) -> None:
    assert [len(read(run, most=most)[0]) for most in (3, 99)] == [3, 6]


def test_what_holds_no_completions_is_refused_with_what_does(run: Path, tmp_path: Path) -> None:
    check_completions(run)
    check_completions(run / "step_20000.parquet")
    (tmp_path / "evaluation" / "gsm8k").mkdir(parents=True)
    (tmp_path / "evaluation" / "gsm8k" / "results.jsonl").touch()
    for path, said in [
        (run.parent, f"did you mean {run}?"),
        (tmp_path / "evaluation" / "gsm8k", "results.jsonl?"),
        (tmp_path / "evaluation", "a folder without step_"),
        (run / "step_20001.parquet", "does not exist; the nearest file there is step_20000.parquet"),
    ]:
        with pytest.raises(UserError) as caught:
            check_completions(path)
        assert said in str(caught.value)


WORDS = ["model=tiny", "dataset=arithmetic", "model.think_tags=['[r]','[/r]']", "training.max_completion_length=48"]
EXPECTED = RewardContext(("[r]", "[/r]"), 100, 7, 8, 48)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """The folder of a run with a staged checkpoint."""
    folder = tmp_path / "out" / "run"
    for model in (folder / "initial_model", folder / "checkpoint-20", folder / "stages" / "1_format" / "checkpoint-20"):
        model.mkdir(parents=True)
        VocabLayout(100, (1, 2, 3), 7, 8, (5,), ()).save(model)
    (folder / "config.yaml").write_text(config_yaml(read_settings("train", WORDS).resolved))
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "completions",
        "evaluation/after.jsonl",
        "stages/1_format/checkpoint-20/evaluation/gsm8k/results.jsonl",
    ],
)
def test_what_a_run_left_is_judged_with_what_the_run_knew(run_folder: Path, path: str) -> None:
    assert recorded_context(run_folder / path) == EXPECTED


def test_a_run_folder_without_its_model_still_knows_tags_and_limit(run_folder: Path) -> None:
    (run_folder / "initial_model" / "reasoning_vocab.json").unlink()
    assert recorded_context(run_folder / "completions") == RewardContext(("[r]", "[/r]"), max_completion_length=48)


@pytest.mark.parametrize("path", ["samples.jsonl", "completions/mine.csv", "evaluation/mine.csv"])
def test_a_file_that_lies_elsewhere_is_no_runs(path: str, tmp_path: Path) -> None:
    assert recorded_context(tmp_path / path) == RewardContext(THINK_TAGS)
    (tmp_path / "config.yaml").write_text("something: else\n")
    assert recorded_context(tmp_path / "samples.jsonl") == RewardContext(THINK_TAGS)


def rows_of(prompts: list[str] | None, texts: list[str], **columns: list[Any]) -> Rows:
    turns = [turn(text) for text in texts]
    known = {} if prompts is None else {"prompts": prompts}
    return Rows([{"row": number} for number in range(1, len(texts) + 1)], {"completions": turns, **known, **columns})


def scored(names: list[str], rows: Rows) -> Scores:
    specs = tuple(RewardSpec(name, weight) for name, weight in zip(names, (2.0, 0.5), strict=False))
    return score_rows(RewardSettings(specs), rows, RewardContext(("<think>", "</think>")), make_console())


def test_rows_are_scored_64_at_once_with_the_rest_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(Reward, "explain", lambda self, completions, **_: sizes.append(len(completions)) or [])
    scored(["boxed"], rows_of(None, ["t"] * 150))
    scored(["boxed"], rows_of(["a"] * 63 + ["b"] * 10 + [str(number) for number in range(77)], ["t"] * 150))
    scored(["boxed"], rows_of(["a"] * 150, ["t"] * 150))
    assert sizes == [64, 64, 22, 73, 64, 13, 150]


def test_every_row_has_the_scores_that_it_has_alone_and_a_total_leaves_out_rewards_without_one() -> None:
    texts = [f"<think>\\boxed{{{number}}}</think>\\boxed{{{number % 3}}}" for number in range(150)]
    scores = scored(["accuracy", "boxed"], rows_of([f"{n}?" for n in range(150)], texts, solution=["1"] * 149 + [None]))
    accuracy, boxed = scores.by_reward
    assert [score.value for score in accuracy[:149]] == [float(number % 3 == 1) for number in range(149)]
    assert [score.details["answer"] for score in accuracy[:4]] == ["0", "1", "2", "0"]
    assert {score.reason for score in boxed} == {"2 boxes"}
    assert [scores.total(row) for row in (0, 1, 149)] == [0.0, 2.0, 0.0]
    assert scored(["accuracy"], rows_of(None, ["1"], solution=[None])).total(0) is None
