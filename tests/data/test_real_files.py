"""The real problem sets load whole; what they hold is counted here in plain Python."""

import json

import pytest

from rlvr_vocab.data.load import lay_out, read_problems
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split

STYLE = PromptStyle("Box your answer.")


@pytest.mark.slow
def test_all_gsm8k_problems_load_with_a_number_as_solution(real_data):
    path = real_data / "gsm8k_train.jsonl"
    source = ProblemSource(str(path), Columns("question", "answer", reasoning="answer"), answer_format="hash")
    loaded = lay_out(read_problems(source, Split()), STYLE)
    assert len(loaded.train) == 7473
    assert loaded.account[1:] == ()
    by_question = dict(zip(loaded.train["question"], loaded.train["solution"], strict=True))
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        row = json.loads(line)
        expected = float(row["answer"].splitlines()[-1].removeprefix("#### ").replace(",", ""))
        assert float(by_question[row["question"]]) == expected


def test_deepscaler_aime_keeps_its_worked_solutions_beside_the_answers(real_data):
    source = ProblemSource(str(real_data / "deepscaler_aime.json"), Columns("problem", "answer", "solution"))
    train = lay_out(read_problems(source, Split()), STYLE).train
    assert len(train) == 975
    assert train["reasoning"][:] == train["raw_solution"][:]
    assert sum(r"\boxed" in text for text in train["reasoning"]) == 972
    assert all(isinstance(year, int) and 1983 <= year <= 2024 for year in train["year"])
