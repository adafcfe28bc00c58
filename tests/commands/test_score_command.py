"""`rlvr-vocab score` end to end: completions, gold answers and samples, their scores, what failed, what is refused."""

import json

import pandas as pd
import pytest

from rlvr_vocab.cli import main

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

def picky(completions, difficulty, prompts):
    return [float(len(prompt)) for prompt in prompts]
"""
ARITHMETIC = ("dataset=arithmetic", "dataset.generator.num_problems=50")


@pytest.fixture
def completions(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in COMPLETIONS))
    return path


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@pytest.fixture
def score(capsys):
    """Runs the command and returns the lines it shows."""

    def run(*words, code=0):
        found = main(["score", *words])
        shown = capsys.readouterr()
        assert found == code, shown.err
        return shown.out.splitlines()

    return run


def below(lines, title):
    """The lines below a title, without their indent."""
    start = next(number for number, line in enumerate(lines) if line.startswith(title))
    rest = [*lines[start + 1 :], ""]
    return [line.strip() for line in rest[: rest.index("")]]


SCREEN = """\
{completions}: 4 rows
scoring 4/4

Lowest totals, 4 of 4
  row 3: total 0; accuracy 0 (no answer); boxed 0 (thinking never closed); text: <think>␛[2J <U+D800> (gold 1/2)
  row 2: total 0.5; accuracy 0 (different: 41 is not 42); boxed 1; text: <think>6*7</think>\\boxed{{41}} (gold 42)
  row 4: total 0.5; accuracy none (unusable gold answer: empty); boxed 1; text: <think>6*7</think>\\boxed{{4}}
  row 1: total 1.5; accuracy 1; boxed 1; text: <think>6*7</think>\\boxed{{42}} (gold 42)

Rewards
  accuracy: mean 0.3333, full mark 1, at full mark 1 of 4 (25.0%), without a score 1, weight 1
  boxed: mean 0.75, full mark 1, at full mark 3 of 4 (75.0%), without a score 0, weight 0.5
  total: mean 0.625
  prompts with several completions: 1; with equal totals, so without a gradient: 0"""


def test_the_lowest_totals_come_first_with_what_they_lack(score, completions):
    lines = score("rewards=[accuracy,{name:boxed,weight:0.5}]", f"completions={completions}")
    assert lines == SCREEN.format(completions=completions).splitlines()


def test_order_and_number_of_rows_are_chosen(score, completions):
    highest = score("rewards=[accuracy]", f"completions={completions}", "order=highest", "show=2")
    # Row 4, whose gold answer is missing, has no score at all: something is wrong with it.
    assert [line[:5] for line in below(highest, "Highest totals, 2 of 4")] == ["row 4", "row 1"]


def test_the_file_holds_every_row_with_scores_and_reasons(score, completions, tmp_path):
    out = tmp_path / "new" / "scores.jsonl"
    score("rewards=[accuracy,boxed]", f"completions={completions}", "show=1", f"out={out}")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["row"], row["total"]) for row in rows] == [(1, 2.0), (2, 1.0), (3, 0.0), (4, 1.0)]
    assert [row["completion"] for row in rows] == [row["completion"] for row in COMPLETIONS]
    assert [row["solution"] for row in rows] == ["42", "42", "1/2", None]
    read = {"score": 0.0, "reason": "different: 41 is not 42", "failed": False}
    assert rows[1]["rewards"]["accuracy"].items() >= read.items()
    assert rows[1]["rewards"]["boxed"] == {"score": 1.0, "reason": "one box", "failed": False}


def test_what_a_function_of_the_users_does_wrong_is_shown_and_is_exit_code_1(score, completions, mine):
    functions = ",".join(f"{mine}:{name}" for name in ("fussy", "twice", "short", "half"))
    lines = score(f"rewards=[{functions}]", f"completions={completions}", code=1)
    fussy, twice, short = (below(lines, f"{name} failed on") for name in ("fussy", "twice", "short"))
    assert fussy[0].startswith("row 3: raised ValueError: invalid literal for int() with base 10: '1/2' (mine.py, line")
    assert fussy[1].startswith("row 4: raised ZeroDivisionError: division by zero") and len(fussy) == 2
    assert [line.split(",")[0] for line in twice] == ["row 2: returned 'yes' (str)", "row 3: returned nan"]
    assert short == ["row 1: returned 1 value for 4 rows; text: <think>6*7</think>\\boxed{42}"]
    assert not any(line.startswith("half failed") for line in lines)


PROBLEMS = {"6*7?": "42", "Half?": r"\frac12", "Which letter?": "(C)", "Long?": "9" * 20_000, "": "1", "Shop?": "7-11"}


@pytest.fixture
def problems(tmp_path):
    """A CSV file of problems, with another of held-out ones, as words of the command line."""
    columns = ("question", "expert_answer")
    pd.DataFrame(list(PROBLEMS.items()), columns=columns).to_csv(tmp_path / "problems.csv", index=False)
    pd.DataFrame([("Other?", "x" * 20_000)], columns=columns).to_csv(tmp_path / "test.csv", index=False)
    words = ["dataset.columns.problem=question", "dataset.columns.answer=expert_answer", "dataset.eval_fraction=0"]
    files = [f"dataset.name={tmp_path}/problems.csv", f"dataset.eval_split={tmp_path}/test.csv"]
    return ["dataset=local", *files, *words]


def test_gold_answers_that_a_reward_does_not_find_right_are_counted_and_shown(score, problems, tmp_path):
    shown = score("rewards=[accuracy,multiple_choice,boxed,repetition]", *problems)
    assert "repetition: not judged: it counts sampled tokens, and a made-up turn has none" in shown
    assert r"judged in made-up turns like '<think>Work it out.</think>\\boxed{42}'" in shown
    rows = below(shown, "Lowest totals, 5 of 5")
    assert [line.split(":")[0] for line in rows] == [
        "row 4", f"split {tmp_path}/test.csv, row 1", "row 1", "row 2", "row 6"
    ]  # fmt: skip
    assert "accuracy none (unusable gold answer" in rows[0] and rows[0].endswith(f"(gold {'9' * 59}…)")
    accuracy, choice, boxed, *_ = below(shown, "Rewards")
    assert "at full mark 4 of 6 (66.7%), without a score 2" in accuracy
    assert "at full mark 1 of 6 (16.7%), without a score 5" in choice
    assert "at full mark 6 of 6 (100.0%)" in boxed


def test_gold_answers_have_to_reach_a_full_mark_of_ones_own(score, mine):
    lines = score(*ARITHMETIC, f"rewards=[{mine}:half]")
    assert "at full mark 0 of 50 (0.0%)" in lines[-1] and len(below(lines, "Lowest totals, 20 of 50")) == 20
    lines = score(*ARITHMETIC, f"rewards=[{{name:'{mine}:half',full_mark:0.5}}]", "max_samples=20")
    assert "at full mark 20 of 20 (100.0%)" in lines[-1] and not any("Lowest" in line for line in lines)


def test_a_base_model_answers_a_few_training_problems(score, make_shape):
    words = ["rewards=[{name:length,params:{shortest:1,longest:4}},accuracy]", *ARITHMETIC[:1], "samples=2"]
    words += [f"model.name={make_shape('qwen3').folder}", "model.model_kwargs.torch_dtype=fp32", "max_samples=3"]
    words += ["model.generation_kwargs.max_new_tokens=4", "model.reasoning_vocab_size=20"]
    lines = score(*words, "show=5")
    titles = [line.split(":")[0] for line in lines if ", sample " in line]
    assert [title.rpartition(" ")[2] for title in titles] == ["1", "2", "1", "2", "1"]
    assert titles[0].split(",")[0] == titles[1].split(",")[0] != titles[2].split(",")[0]
    assert "at full mark 6 of 6 (100.0%)" in below(lines, "Rewards")[0]  # at most four tokens
    assert any(line.startswith("  asked: ") and "(gold " in line for line in lines)
    turns = [line for line in lines if line.startswith("  │ ")]
    assert turns and [line for line in score(*words, "show=5") if "│" in line] == turns  # the same seed
    greedy = score(*words, "model.generation_kwargs.temperature=0")
    assert "prompts with several completions: 3; with equal totals, so without a gradient: 3" in greedy[-1]


def test_completions_and_gold_answers_with_decimal_commas(score, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps({"completion": r"\boxed{12,50}", "solution": "12,5"}))
    words = ("rewards=[accuracy]", f"completions={path}")
    assert "at full mark 1 of 1" in "".join(score(*words, "dataset.decimal=comma"))
    warning = "warning: answers such as 12,5: if that means 12.5, set dataset.decimal=comma"
    assert warning in "".join(score(*words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to score: give completions=FILE, dataset=…"),
        (["completions={completions}", "dataset=arithmetic"], "completions=… and dataset=… are two things to score"),
        (["model=tiny"], "nothing to score: give completions=FILE, dataset=…"),
        (["completions={completions}", "dataset.answer_format=hash"], "has no dataset to apply to"),
        (["dataset=arithmetic", "model=tiny", "model.generation_kwargs.top_p=0.9"], "unknown key"),
        (["completions={completions}", "out={completions}"], "out={completions}"),
        (["completions=no.jsonl"], "no.jsonl does not exist"),
        (["completions={mine}"], "is not a file with one of the extensions"),
        (["completions={completions}", "rewards=[{mine}:picky]"], "picky needs difficulty; {completions} has "),
        (["completions={completions}", "rewards=[overlong]"], "overlong needs completion_ids; {completions} has "),
        (["dataset=arithmetic", "model=tiny", "rewards=[{mine}:picky]"], "picky needs a column 'difficulty'"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(words, said, error_of, completions, mine):
    names = {"completions": completions, "mine": mine}
    assert said.format(**names) in error_of("score", *(word.format(**names) for word in words))


def test_prompts_that_a_reward_needs_are_asked_for(error_of, mine, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"completion": "c", "difficulty": 3, "question": "q"}')
    message = error_of("score", f"rewards=[{mine}:picky]", f"completions={path}")
    assert "needs prompts" in message and "prompt_column=…" in message
