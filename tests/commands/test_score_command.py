"""`rlvr-vocab score`: completions of any file, gold answers and samples, their scores, what failed, what is refused."""

import json

import pandas as pd
import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.commands.score import Row, read_completions, recorded_context, score_rows
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec, Score
from rlvr_vocab.terminal import make_console
from rlvr_vocab.vocab.layout import VocabLayout

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
  prompts with several completions: 1; with equal totals, so without a gradient: 0

Thoughts
  accuracy reads nothing of the thought
  boxed reads nothing of the thought (all scores are alike)
  measured on 3 completions of 2 problems; left out, without one closed thought: 1"""


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
    assert "prompts with several completions: 3; with equal totals, so without a gradient: 3" in greedy[-6]
    assert greedy[-1] == "  measured on 0 completions of 0 problems; left out, without one closed thought: 6"


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


# --- reading and scoring rows ---


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
