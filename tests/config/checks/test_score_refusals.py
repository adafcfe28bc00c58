"""`rlvr-vocab score` says in one line what cannot be scored, before anything heavy loads."""

import json

import pytest

ROW = {"prompt": "6*7?", "completion": "\\boxed{42}", "solution": "42"}
MINE = """
def picky(completions, difficulty, prompts):
    return [float(len(prompt)) for prompt in prompts]
"""


@pytest.fixture
def completions(tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(json.dumps(ROW))
    return path


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


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
)  # fmt: skip
def test_what_cannot_be_scored_is_refused_in_one_line(words, said, error_of, completions, mine):
    names = {"completions": completions, "mine": mine}
    assert said.format(**names) in error_of("score", *(word.format(**names) for word in words))


def test_prompts_that_a_reward_needs_are_asked_for(error_of, mine, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"completion": "c", "difficulty": 3, "question": "q"}')
    message = error_of("score", f"rewards=[{mine}:picky]", f"completions={path}")
    assert "needs prompts" in message and "prompt_column=…" in message
