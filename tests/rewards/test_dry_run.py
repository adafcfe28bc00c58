"""Before anything is trained a reward function is called once, and refused with what it did wrong and where."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward, dry_run

ROWS = [{"prompt": [{"role": "user", "content": f"{number}?"}], "solution": str(number)} for number in (1, 2, 3)]
TURNS = [[{"role": "assistant", "content": f"\\boxed{{{number}}}"}] for number in (1, 2, 3)]


def refusal(function):
    with pytest.raises(UserError) as caught:
        dry_run(Reward(function, "mine"), ROWS, TURNS)
    return str(caught.value)


def test_a_function_gets_what_a_trainer_hands_over():
    def thorough(prompts, completions, completion_ids, solution, trainer_state, log_extra, log_metric):
        assert [prompt[0]["content"] for prompt in prompts] == ["1?", "2?", "3?"]
        assert [turn[0]["content"] for turn in completions] == ["\\boxed{1}", "\\boxed{2}", "\\boxed{3}"]
        assert solution == ["1", "2", "3"]
        assert [len(ids) for ids in completion_ids] == [9, 9, 9]
        assert trainer_state.global_step / trainer_state.max_steps == 0
        log_extra("seen", solution)
        log_metric("rows", 3.0)
        return [1.0, None, 0]

    scores = dry_run(Reward(thorough, "mine"), ROWS, TURNS)
    assert [score.value for score in scores] == [1.0, None, 0.0]


def test_a_row_that_raises_is_named():
    def fussy(completions, solution, **columns):
        return [1 / (int(answer) - 2) for answer in solution]

    message = refusal(fussy)
    assert message.startswith("reward mine raised ZeroDivisionError: division by zero (test_dry_run.py, line ")
    assert message.endswith(r" for row 2 ('\\boxed{2}') in its trial")


def test_a_value_that_is_no_score_is_named_with_its_row():
    message = refusal(lambda completions, **columns: [1.0, 1.0, "yes"])
    assert message == r"reward mine returned 'yes' (a str), not a number for row 3 ('\\boxed{3}') in its trial"


def test_a_result_of_another_length_is_refused_with_what_would_be_right():
    message = refusal(lambda completions, **columns: [1.0])
    assert message == "reward mine returned 1 value for 3 rows; it must return a list with a number or None per row"
