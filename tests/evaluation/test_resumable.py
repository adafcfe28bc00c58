"""An evaluation that was stopped anywhere ends like one that was not."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import complete_results, kept_results, questions_of, seed_at, seeded_sampler
from rlvr_vocab.evaluation.sampling import SamplingSettings
from rlvr_vocab.record.results import ProblemResult

ROWS = [{"prompt": [{"role": "user", "content": f"p{number}"}], "solution": str(number)} for number in range(5)]
SIZE = 3
BROKEN = "a\nb \ud800 \x00 \u2028 \x85"  # signs that some readers take for the end of a line, and no text at all


class Stopped(Exception):
    pass


def answering(stop_at=None):
    """Answers that depend on their place alone, and a process that ends at one."""

    def answer(batch, place):
        if place == stop_at:
            raise Stopped
        return [
            ProblemResult(each.problem, each.sample, "p", "s", f"{BROKEN} {place + n}", 1.0, 1, 0, 0, True, True)
            for n, each in enumerate(batch)
        ]

    return answer


def completed(path, samples, stop_at=None):
    questions = questions_of(ROWS, samples)
    return complete_results(path, kept_results(path, questions, SIZE), questions, SIZE, answering(stop_at))


def test_a_file_that_was_cut_anywhere_is_taken_back_to_its_last_whole_batch(tmp_path):
    whole = tmp_path / "whole.jsonl"
    completed(whole, 2)
    content, path = whole.read_bytes(), tmp_path / "cut.jsonl"
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        completed(path, 2)
        assert path.read_bytes() == content


def test_more_samples_are_asked_for_at_the_end_and_fewer_are_refused(tmp_path):
    path = tmp_path / "results.jsonl"
    first = completed(path, 1)  # its last batch has two of three answers
    assert completed(path, 3)[:5] == first
    completed(tmp_path / "at_once.jsonl", 3)
    assert path.read_bytes() == (tmp_path / "at_once.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"holds 15 answers and 10 are asked for"):
        completed(path, 2)


def test_what_is_finished_stays_when_the_next_samples_never_come(tmp_path):
    path = tmp_path / "results.jsonl"
    completed(path, 1)
    finished = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"problem": 0, "sam')
    torn, questions = path.read_bytes(), questions_of(ROWS, 2)
    kept = kept_results(path, questions, SIZE)
    with pytest.raises(Stopped):
        complete_results(path, kept, questions, SIZE, answering(5))
    assert len(kept) == 5 and path.read_bytes() == torn
    with pytest.raises(Stopped):
        complete_results(path, kept, questions, SIZE, answering(8))
    assert path.read_bytes()[: len(finished)] == finished
    assert len(path.read_bytes().splitlines()) == 8


def test_each_batch_is_sampled_from_a_seed_of_its_own(checkpoint, rows):
    settings = SamplingSettings(max_new_tokens=8, seed=3, batch_size=2)
    sample = seeded_sampler(checkpoint, settings)
    rows = rows[:2]
    first, second = sample(rows, 0), sample(rows, 2)
    assert sample(rows, 0) == first != second
    assert seeded_sampler(checkpoint, SamplingSettings(max_new_tokens=8, seed=4))(rows, 0) != first
    seeds = {seed_at(seed, place) for seed in range(30) for place in range(300)}
    assert len(seeds) > 8_990 and min(seeds) >= 0 and max(seeds) < 2**31
