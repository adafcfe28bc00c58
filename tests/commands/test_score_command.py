"""`rlvr-vocab score` end to end: completions, gold answers and samples, their scores, and what failed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from rlvr_vocab.cli import main
from rlvr_vocab.commands import score as score_command
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.vocab.layout import VocabLayout

ROOT = Path(__file__).resolve().parents[2]
THOUGHT = "<think>6*7</think>"
COMPLETIONS = [
    {"prompt": "6*7?", "completion": f"{THOUGHT}\\boxed{{42}}", "solution": "42"},
    {"prompt": "6*7?", "completion": f"{THOUGHT}\\boxed{{41}}", "solution": "42"},
    {"prompt": "1/2?", "completion": "<think>\x1b[2J \ud800", "solution": "1/2"},
    {"prompt": "2+2?", "completion": f"{THOUGHT}\\boxed{{4}}", "solution": ""},
]
MINE = """
def fussy(completions, solution, **columns):
    return [1 / (int(gold or 41) - 41) for gold in solution]

def twice(completions, **columns):
    return [2.0, "yes", float("nan"), None]

def short(completions, **columns):
    return [1.0]

def half(completions, **columns):
    return [0.5] * len(completions)

async def later(completions):
    return [1.0] * len(completions)
"""


@pytest.fixture
def completions(tmp_path: Path) -> Path:
    return written(tmp_path / "samples.jsonl", COMPLETIONS)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def score(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs the command and returns the lines it shows."""

    def run(*words: str, code: int = 0) -> list[str]:
        found = main(["score", *words])
        shown = capsys.readouterr()
        assert found == code, shown.err
        return shown.out.splitlines()

    return run


def below(lines: list[str], title: str) -> list[str]:
    """The lines below a title, without their indent."""
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    rest = [*lines[start + 1 :], ""]
    return [line.strip() for line in rest[: rest.index("")]]


# --- completions --------------------------------------------------------------------------------


def test_the_lowest_totals_come_first_with_what_they_lack(score: Callable[..., list[str]], completions: Path) -> None:
    lines = score("rewards=[accuracy,{name:boxed,weight:0.5}]", f"completions={completions}")
    assert lines[:2] == [f"{completions}: 4 rows", "rows without a gold answer in the column solution: 1"]
    assert below(lines, "Lowest totals, 4 of 4") == [
        "row 3: total 0; accuracy 0 (no answer); boxed 0 (thinking never closed); text: <think>\\x1b[2J \\ud800",
        "row 2: total 0.5; accuracy 0 (different: 41 is not 42); boxed 1; text: <think>6*7</think>\\boxed{41}",
        "row 4: total 0.5; accuracy none (unusable gold answer: empty); boxed 1; text: <think>6*7</think>\\boxed{4}",
        "row 1: total 1.5; accuracy 1; boxed 1; text: <think>6*7</think>\\boxed{42}",
    ]
    assert below(lines, "Rewards") == [
        "accuracy: mean 0.3333, full mark 1, at full mark 1 of 4 (25.0%), without a score 1, weight 1",
        "boxed: mean 0.75, full mark 1, at full mark 3 of 4 (75.0%), without a score 0, weight 0.5",
        "total: mean 0.625",
        "prompts with several completions: 1; of one total, so with nothing to learn from: 0",
    ]


def test_order_and_number_of_rows_are_chosen(score: Callable[..., list[str]], completions: Path) -> None:
    highest = score("rewards=[accuracy]", f"completions={completions}", "order=highest", "show=2")
    # Row 4, whose gold answer is missing, has no score at all: something is wrong with it.
    assert [line[:5] for line in below(highest, "Highest totals, 2 of 4")] == ["row 4", "row 1"]
    as_it_is = score(f"completions={completions}", "order=file", "max_samples=3")
    assert [line[:5] for line in below(as_it_is, "Rows, 3 of 3")] == ["row 1", "row 2", "row 3"]
    assert not any("totals" in line for line in score(f"completions={completions}", "show=0"))


def test_the_file_holds_every_row_with_scores_reasons_and_what_the_verifier_read(
    score: Callable[..., list[str]], completions: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "scores.jsonl"
    score("rewards=[accuracy,boxed]", f"completions={completions}", "show=1", f"out={out}")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["row"], row["total"]) for row in rows] == [(1, 2.0), (2, 1.0), (3, 0.0), (4, 1.0)]
    assert [row["completion"] for row in rows] == [row["completion"] for row in COMPLETIONS]
    assert [row["solution"] for row in rows] == ["42", "42", "1/2", None]
    assert rows[1]["rewards"]["accuracy"].pop("milliseconds") >= 0
    assert rows[1]["rewards"] == {
        "accuracy": {
            "score": 0.0, "reason": "different: 41 is not 42", "failed": False, "gold": "42", "answer": "41",
        },
        "boxed": {"score": 1.0, "reason": "one box", "failed": False},
    }  # fmt: skip
    assert list(out.parent.iterdir()) == [out]


def test_what_a_function_of_the_users_does_wrong_is_shown_and_is_exit_code_1(
    score: Callable[..., list[str]], completions: Path, mine: Path, tmp_path: Path
) -> None:
    functions = ",".join(f"{mine}:{name}" for name in ("fussy", "twice", "short", "later"))
    words = (f"rewards=[{functions}]", f"completions={completions}", f"out={tmp_path}/o.jsonl")
    lines = score(*words, code=1)
    raised = "raised ValueError: invalid literal for int() with base 10: '1/2' (mine.py, line 3)"
    assert below(lines, "fussy failed on 2 of 4 rows") == [
        f"row 3: {raised}; text: <think>\\x1b[2J \\ud800",
        "row 4: raised ZeroDivisionError: division by zero (mine.py, line 3); text: <think>6*7</think>\\boxed{4}",
    ]
    assert [line.split(";")[0] for line in below(lines, "twice failed on 2 of 4 rows")] == [
        "row 2: returned 'yes' (a str), not a number",
        "row 3: returned nan, which is no finite float32",
    ]
    assert below(lines, "short failed on 4 of 4 rows") == [
        "row 1: returned 1 value for 4 rows; text: <think>6*7</think>\\boxed{42}"
    ]
    assert not any(line.startswith("later failed") for line in lines)
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert rows[2]["rewards"]["fussy"] == {"score": None, "reason": raised, "failed": True}
    assert rows[3]["rewards"]["twice"] == {"score": None, "reason": "", "failed": False}


def test_the_steps_of_a_run_are_judged_with_what_the_run_knew(score: Callable[..., list[str]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "completions").mkdir(parents=True)
    (run / "initial_model").mkdir()
    VocabLayout(100, (1, 2), 7, 8, (), ()).save(run / "initial_model")
    words = ["model=tiny", "dataset=arithmetic", "training.max_completion_length=10", "model.think_tags=['[r]','[/r]']"]
    (run / "config.yaml").write_text(config_yaml(read_settings("train", words).resolved))
    for step, ids in ((1, [7, 100, 101, 8]), (2, [7, 3, 101, 8, 1, 1, 1, 1, 1])):
        columns = {"step": step, "prompt": "p", "completion": ["[r]a b[/r]\\boxed{1}"], "completion_ids": [ids]}
        pd.DataFrame({**columns, "solution": "1", "reward/accuracy": 0.0, "prompt_ids": [[1]]}).to_parquet(
            run / "completions" / f"step_{step:05d}.parquet"
        )
    rewards = "rewards=[accuracy,reasoning_share,overlong,think_format]"
    lines = score(rewards, f"completions={run}/completions")
    # Step 2: 1 reasoning token of 3 sampled while thinking; 9 of 10 tokens, one into the last fifth.
    assert below(lines, "Lowest totals") == [
        "step 2, row 1: total 1.833; accuracy 1; reasoning_share 0.3333 (1 of 3 thinking tokens); "
        "overlong -0.5 (1 token into the last 2); think_format 1; text: [r]a b[/r]\\boxed{1}",
        "step 1, row 1: total 2.667; accuracy 1; reasoning_share 0.6667 (2 of 3 thinking tokens); overlong 0; "
        "think_format 1; text: [r]a b[/r]\\boxed{1}",
    ]
    other_tags = score("rewards=[think_format]", f"completions={run}/completions", "think_tags=['<r>','</r>']")
    assert "without a score 0" in below(other_tags, "Rewards")[0] and "mean 0," in below(other_tags, "Rewards")[0]


def test_a_terminal_gets_the_same_lines_and_nothing_that_it_obeys(
    completions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=400, color_system=None)
    monkeypatch.setattr(score_command, "make_console", lambda: console)
    assert main(["score", "rewards=[accuracy,boxed]", f"completions={completions}"]) == 0
    shown = screen.getvalue()
    assert "  row 3: total 0; accuracy 0 (no answer" in shown and "3 of 4 (75.0%)" in shown
    assert "\x1b[2J" not in shown


# --- gold answers -------------------------------------------------------------------------------

PROBLEMS = [
    {"question": "6*7?", "expert_answer": "42"},
    {"question": "Half?", "expert_answer": r"\frac12"},
    {"question": "Which letter?", "expert_answer": "(C)"},
    {"question": "Long?", "expert_answer": "9" * 20_000},
    {"question": "", "expert_answer": "1"},
    {"question": "Which shop?", "expert_answer": "7-11"},
]


@pytest.fixture
def problems(tmp_path: Path) -> tuple[str, ...]:
    """A CSV file of problems, as words of the command line."""
    pd.DataFrame(PROBLEMS).to_csv(tmp_path / "problems.csv", index=False)
    columns = ("dataset.columns.problem=question", "dataset.columns.answer=expert_answer")
    return ("dataset=local", f"dataset.name={tmp_path}/problems.csv", *columns)


def test_gold_answers_that_a_reward_does_not_find_right_are_counted_and_shown(
    score: Callable[..., list[str]], problems: tuple[str, ...]
) -> None:
    lines = below(score("rewards=[accuracy,multiple_choice,boxed,diversity]", *problems), "Gold answers")
    assert lines[0] == r"judged in made-up turns like '<think>\nWork it out.\n</think>\n\\boxed{42}'"
    assert lines[1] == ("accuracy: mean 1, full mark 1, at full mark 4 of 5 (80.0%), without a score 1, weight 1")
    assert lines[2].startswith("row 4: none, unusable gold answer") and lines[2].endswith(
        "(gold 9999" + "9" * 55 + "…)"
    )
    assert "at full mark 1 of 5 (20.0%), without a score 4" in lines[3]
    assert lines[4:8] == [
        f"row {row}: none, the gold answer is not one letter (gold {gold})"
        for row, gold in ((1, "42"), (2, r"\frac12"), (4, "9" * 59 + "…"), (6, "7-11"))
    ]
    assert "at full mark 5 of 5 (100.0%)" in lines[8]
    assert lines[9] == "diversity: not judged: it compares the completions of one prompt, and here there is one"


def test_held_out_problems_have_gold_answers_too_and_ten_rows_are_shown(
    score: Callable[..., list[str]], mine: Path
) -> None:
    words = ("dataset=arithmetic", "dataset.generator.num_problems=50", f"rewards=[{mine}:half]")
    lines = below(score(*words), "Gold answers")
    assert "at full mark 0 of 50 (0.0%)" in lines[1] and len(lines) == 14
    assert lines[2].startswith("row 1: 0.5 (gold ") and lines[-2] == "40 more"
    assert lines[-1] == "no row reaches 1; if 0.5 is its best, say full_mark: 0.5"
    lines = below(
        score(*words[:2], f"rewards=[{{name:'{mine}:half',full_mark:0.5}}]", "max_samples=20"), "Gold answers"
    )
    assert len(lines) == 2 and "at full mark 20 of 20 (100.0%)" in lines[1]


def test_a_second_file_of_held_out_problems_is_told_apart(
    score: Callable[..., list[str]], problems: tuple[str, ...], tmp_path: Path
) -> None:
    pd.DataFrame([{"question": "Other?", "expert_answer": "x" * 20_000}]).to_csv(tmp_path / "test.csv", index=False)
    split = f"dataset.eval_split={tmp_path}/test.csv"
    lines = below(score(*problems, split, "dataset.eval_fraction=0"), "Gold answers")
    assert lines[2].startswith("row 4: none") and lines[3].startswith(f"split {tmp_path}/test.csv, row 1: none")


def test_an_xml_reward_gives_the_made_up_turns_its_form(
    score: Callable[..., list[str]], problems: tuple[str, ...]
) -> None:
    lines = below(score("rewards=xml", *problems), "Gold answers")
    assert lines[0].endswith(r"like '<reasoning>\nWork it out.\n</reasoning>\n<answer>\n42\n</answer>\n'")
    assert "at full mark 5 of 5" in lines[1] and "at full mark 5 of 5" in lines[2] and "at full mark 4 of 5" in lines[3]


@pytest.mark.parametrize(
    ("pattern", "begins"),
    [
        (r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$", "<reasoning>"),
        (r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", "<reasoning>"),
        (r"^<think>.*?</think>\s*<answer>.*?</answer>$", "<think>"),
        (r"\\boxed\{", "<think>"),
    ],
)
def test_the_made_up_turns_have_the_form_that_functions_of_the_users_own_pay(
    score: Callable[..., list[str]], tmp_path: Path, pattern: str, begins: str
) -> None:
    (tmp_path / "own.py").write_text(
        "import re\n"
        "def form(completions, **kwargs):\n"
        f"    return [float(re.search(r'{pattern}', turn[0]['content']) is not None) for turn in completions]\n"
        "def answers(completions, answer, **kwargs):\n"
        "    return [float(str(gold) in turn[0]['content']) for turn, gold in zip(completions, answer)]\n"
    )
    words = ("dataset=arithmetic", "dataset.generator.num_problems=50")
    lines = below(score(*words, f"rewards=['{tmp_path}/own.py:form','{tmp_path}/own.py:answers']"), "Gold answers")
    assert f"turns like '{begins}" in lines[0]
    assert [("at full mark 50 of 50" in line) for line in lines[1:]] == [True, True]


def test_a_function_that_pays_no_made_up_turn_may_want_another_form(
    score: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("def form(completions, **kwargs): return [0.0 for turn in completions]\n")
    words = ("dataset=arithmetic", "dataset.generator.num_problems=50")
    lines = below(score(*words, f"rewards=['{tmp_path}/own.py:form']"), "Gold answers")
    assert "another form of turn" in lines[-1]


def test_rewards_that_cannot_judge_a_made_up_turn_alone_are_said_so(
    score: Callable[..., list[str]], problems: tuple[str, ...]
) -> None:
    assert below(score("rewards=[{name:length,params:{longest:9}}]", *problems), "Gold answers") == [
        "length: not judged: it counts what a model samples, and nobody sampled a made-up turn"
    ]


# --- samples of a model -------------------------------------------------------------------------

SAMPLING = ("dataset=arithmetic", "model.generation_kwargs.max_new_tokens=4", "samples=2", "max_samples=3")
SAMPLED = "rewards=[{name:length,params:{shortest:1,longest:4}},accuracy]"


def sample_titles(lines: list[str]) -> list[str]:
    return [line.split(":")[0] for line in lines if ", sample " in line]


def test_a_base_model_answers_a_few_training_problems(
    score: Callable[..., list[str]], make_shape: Callable[..., Any]
) -> None:
    words = (f"model.name={make_shape('qwen3').folder}", *SAMPLING, "model.model_kwargs.torch_dtype=fp32")
    lines = score(SAMPLED, *words, "model.reasoning_vocab_size=20", "show=5")
    titles = sample_titles(lines)
    assert len(titles) == 5 and "1 more: raise show" in lines
    assert [title.rpartition(" ")[2] for title in titles] == ["1", "2", "1", "2", "1"]
    assert titles[0].split(",")[0] == titles[1].split(",")[0] != titles[2].split(",")[0]
    assert "at full mark 6 of 6 (100.0%)" in below(lines, "Rewards")[0]  # at most four tokens
    assert any(line.startswith("  asked: ") and "(gold " in line for line in lines)
    assert any(line.startswith("  │ ") for line in lines)
    again = score(SAMPLED, *words, "model.reasoning_vocab_size=20", "show=5")
    assert [line for line in again if "│" in line] == [line for line in lines if "│" in line]  # the same seed
    greedy = score(SAMPLED, *words, "model.generation_kwargs.temperature=0")
    assert "prompts with several completions: 3; of one total, so with nothing to learn from: 3" in greedy[-1]


# --- all of them -----------------------------------------------------------------------------------


def test_completions_and_gold_answers_are_scored_without_torch(completions: Path) -> None:
    script = (
        "import sys; from rlvr_vocab.cli import main; code = main(sys.argv[1:])\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    for words in ([f"completions={completions}"], ["dataset=arithmetic", "dataset.generator.num_problems=20"]):
        command = [sys.executable, "-c", script, "score", "rewards=[accuracy,think_format]", *words]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == "[]"
