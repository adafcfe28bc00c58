"""kill -9 before every kind of change to a run's files: between two of them it leaves the same."""

import re
import signal

import pytest
from safetensors.torch import load_file

from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.training.checkpoint_folders import steps_in

# One save in the middle of the run, with the deletion of an old checkpoint after it; and what lies around it.
# Whatever is written before the folder of a checkpoint takes its name leaves the same behind.
POINTS = (
    "os.rename .config.yaml.partial",
    "os.rename initial_model.partial-*",
    "open evaluation/.before.jsonl.partial",
    "open metrics.jsonl",
    "after torch.save .saving/checkpoint-4/optimizer.pt",
    "fsync .saving/checkpoint-4/manifest.json",
    "os.rename .saving/checkpoint-4",
    "os.rmdir .saving",
    "os.rename checkpoint-2",
    "os.remove .deleting/checkpoint-2/manifest.json",
    "os.rename checkpoint-4",  # after the last save: nothing is left to train, and this to delete
    "os.rename final_model.partial-*",
    "os.rename .summary.json.partial",
)


def number_of(point, events):
    """The number of the change that a point describes, counted from 1."""
    pattern = re.escape(point).replace(r"\*", r"\w*").replace(r"\ ", " ")
    numbers = [number for number, event in enumerate(events, 1) if re.fullmatch(pattern, event)]
    assert numbers, f"no run does this any more: {point}"
    return numbers[0]


def require_the_same_end(forks, folder, expected, outcome_of, *words):
    """Every checkpoint that is there is whole, and the next start ends as the undisturbed run did."""
    assert all(problem_with(checkpoint) is None for checkpoint in steps_in(folder).values())
    assert forks.run(folder, *words) == 0, forks.said(folder)
    assert outcome_of(folder) == expected
    left = [path.name for path in folder.rglob("*") if re.search(r"^\.|broken|\.partial", path.name)]
    assert left == []


@pytest.mark.parametrize("point", POINTS)
def test_killed_before_a_change_of_a_file(point, forks, undisturbed, outcome_of, tmp_path):
    expected, events = outcome_of(undisturbed()), forks.changes(undisturbed())
    assert forks.run(tmp_path / "run", kill_at=number_of(point, events)) == -signal.SIGKILL
    require_the_same_end(forks, tmp_path / "run", expected, outcome_of)


@pytest.mark.parametrize(
    ("rank", "point"),
    [
        *((rank, "os.rename .saving/checkpoint-4") for rank in ("null", 16, 0)),
        *((16, point) for point in ("open metrics.jsonl", "os.rename final_model.partial-*")),
    ],
)
def test_killed_with_reasoning_rows_in_each_rank(rank, point, forks, undisturbed, outcome_of, tmp_path):
    words = (f"model.reasoning_rank={rank}", "dataset.open_thinking=prefill")  # untrained, it opens none by itself
    run = undisturbed(*words)
    expected, events = outcome_of(run), forks.changes(run)
    if rank == 16:
        differences = run / "final_model" / "reasoning_rows" / "differences.safetensors"
        assert load_file(differences)["input.B"].any() and str(differences.relative_to(run)) in expected.weights
    assert forks.run(tmp_path / "run", *words, kill_at=number_of(point, events)) == -signal.SIGKILL
    require_the_same_end(forks, tmp_path / "run", expected, outcome_of, *words)


def test_killed_between_turns_that_call_a_tool(forks, undisturbed, outcome_of, tmp_path):
    words = (
        *("experiment=calculator", "dataset.generator.digits=1", "dataset.generator.num_problems=40"),
        *("warmup.max_steps=70", "warmup.batch_size=16", "warmup.learning_rate=5e-3"),
        *("training.max_completion_length=128", "training.learning_rate=1e-5", "training.max_steps=5"),
    )
    run = undisturbed(*words)
    expected, events = outcome_of(run), forks.changes(run)
    assert all(row["tools/call_frequency"] > 0 for row in expected.rows if "reward" in row)
    killed = number_of("os.rename .saving/checkpoint-4", events)
    assert forks.run(tmp_path / "run", *words, kill_at=killed) == -signal.SIGKILL
    require_the_same_end(forks, tmp_path / "run", expected, outcome_of, *words)
