"""The problems of a run and of its stages: what the run holds out, no stage trains on."""

import hashlib
import json

import pytest
from rich.console import Console

from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.folder import Run
from rlvr_vocab.runs.problems import load_run_problems, write_problems_record
from rlvr_vocab.vocab.layout import VocabLayout
from tests.settings import load_settings


def run_problems(tmp_path, rows, *words, settings=None):
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["training.per_device_train_batch_size=4", "training.num_generations=4"]
    given = ["model=tiny", "dataset=local", f"dataset.name={file}", *small, *words]
    return load_run_problems(settings or load_settings("train", given), Console(quiet=True))


def test_gold_numbers_are_handed_on_as_numbers_and_fingerprinted_as_their_text(tmp_path):
    numbers = [{"problem": f"What is {number} + 1?", "answer": number + 1.0} for number in range(30)]
    texts = [{**row, "answer": str(int(row["answer"]))} for row in numbers]
    as_numbers, as_texts = (run_problems(tmp_path, rows, "dataset.eval_fraction=0.1") for rows in (numbers, texts))
    assert as_numbers.report == as_texts.report
    [row] = as_numbers.by_stage[0].select([0])
    assert isinstance(row["solution"], float) and row["solution"] == row["answer"]
    # What version 0 wrote: SHA-256 of the JSON of [text, solution] of each problem, in its order.
    pairs = [[row["prompt"][-1]["content"], row["solution"]] for row in as_texts.held_out]
    expected = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
    assert as_texts.report["held_out"]["sha256"] == expected


def test_golds_that_are_lists_or_objects_are_left_out_for_the_verifier_and_kept_for_others(tmp_path):
    golds = [1, "2", [3], {"four": 4}, True, 6, 7, 8]
    rows = [{"problem": f"What is {number}?", "answer": gold} for number, gold in enumerate(golds)]
    (tmp_path / "mine.py").write_text("def mine(completions, solution):\n    return [0.0] * len(completions)\n")
    words = ["dataset.eval_fraction=0"]
    verified = run_problems(tmp_path, rows, *words, "rewards=[accuracy]")
    kept = sorted(row["problem"] for row in verified.by_stage[0])
    assert kept == [f"What is {number}?" for number in (0, 1, 4, 5, 6, 7)]
    own = run_problems(tmp_path, rows, *words, f"rewards=[{tmp_path}/mine.py:mine]")
    handed_on = {row["problem"]: row["solution"] for row in own.by_stage[0]}
    assert [handed_on[f"What is {number}?"] for number in range(8)] == golds
    assert handed_on["What is 4?"] is True


def test_a_grader_that_raises_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "mine.py").write_text("def broken(completions):\n    raise KeyError('x')\n")
    rows = [{"problem": f"{number}+1?", "answer": str(number + 1)} for number in range(20)]
    with pytest.raises(UserError, match="reward broken raised KeyError"):
        run_problems(tmp_path, rows, f"evaluation.grader={tmp_path}/mine.py:broken")


def test_a_run_goes_on_with_the_problems_that_it_began_with_or_not_at_all(tmp_path):
    rows = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(40)]
    file, run = tmp_path / "problems.jsonl", tmp_path / "run"
    file.write_text(json.dumps(rows[0]) + "\n")
    words = ["model=tiny", "dataset=local", f"dataset.name={file}", "dataset.eval_fraction=0.2", f"output_dir={run}"]
    settings = load_settings("train", [*words, "dataset.max_eval_samples=5"])

    def with_the_last_row(**changed):
        return run_problems(tmp_path, [*rows[:-1], {**rows[-1], **changed}], settings=settings)

    (run / "initial_model").mkdir(parents=True)
    problems, layout = with_the_last_row(), VocabLayout(4, (), 1, 2, (), ())
    write_problems_record(Run(settings, layout, Console(quiet=True)), problems, [30], {"name": "accuracy"})
    written = json.loads((run / "problems.json").read_text())
    assert written["held_out"]["measured_on"] == 5 and written["training"][0]["trained_on"] == 30
    assert written["grader"] == {"name": "accuracy"} and written["system_prompt_used"] is True
    with_the_last_row()
    with pytest.raises(UserError, match=r"split changed since this run started \(.*restore its problem set"):
        with_the_last_row(problem="3. what is 0 + 1")
    with pytest.raises(UserError, match=r"\((training|held out)\)"):
        with_the_last_row(answer="7")
    (run / "problems.json").write_text('{"held_out"')
    with pytest.raises(UserError, match=r"problems\.json is not readable JSON"):
        with_the_last_row()
    (run / "problems.json").write_text('{"held_out": {}}')
    with pytest.raises(UserError, match=r"problems\.json is damaged"):
        with_the_last_row()
    (run / "problems.json").unlink()  # a start that was killed before it trained
    with_the_last_row()
