"""SIGTERM, SIGINT and SIGUSR1 at any moment: a code that means "resume me", and nothing of the run is lost."""

import itertools
import signal

import pytest

from tests.survival.conftest import LENGTH

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
RESUME_ME = 75
# Checkpoints come from signals alone.
RARE = "training.save_steps=100"
KINDS = {
    "a buffer of four steps": ("training.steps_per_generation=4", "training.logging_steps=2", "training.top_p=0.9"),
    "accumulated gradients, two passes over a batch": (
        "training.gradient_accumulation_steps=3",
        "training.num_iterations=2",
    ),
    "several epochs": ("dataset.max_train_samples=6", "training.max_steps=8"),
    "an adapter, measured meanwhile": ("model.lora.enabled=true", "training.eval_steps=2"),
    "two stages, adaptive rewards": (
        f"stages=[{{name:form,rewards:[think_format,{LENGTH}],training:{{max_steps:3}}}},"
        f"{{name:answers,rewards:[{{name:accuracy,adaptive:{{window:1}}}},{LENGTH}],"
        "training:{max_steps:4,steps_per_generation:4}}]",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_told_to_stop_goes_on_as_if_it_had_not_been(kind, forks, undisturbed, outcome_of, tmp_path):
    """At each start in the step after the first row that it writes: within a buffer, an epoch, a stage."""
    words, folder, stops = (RARE, *KINDS[kind]), tmp_path / "run", 0
    signals = itertools.cycle(SIGNALS)
    while (code := forks.run(folder, *words, signals_at=[["open metrics.jsonl", 1, next(signals)]])) != 0:
        assert code == RESUME_ME, forks.said(folder)
        stops += 1
    assert stops >= 2
    said = forks.said(folder)  # not each stop is within a training: the step after the last one is none
    assert said.count(", saved in checkpoint-") >= 2 and said.count("going on from") >= 2
    assert outcome_of(folder) == outcome_of(undisturbed(*words))


def test_the_step_is_finished_and_saved_and_the_last_line_says_so(forks, tmp_path):
    folder = tmp_path / "run"
    in_step_4 = [["open metrics.jsonl", 3, signal.SIGTERM]]  # once the row of step 3 is written
    assert forks.run(folder, RARE, signals_at=in_step_4) == RESUME_ME
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-4"]
    last = forks.said(folder).splitlines()[-1]
    assert last == "interrupted: by SIGTERM after step 4, saved in checkpoint-4; the same command goes on"


def test_max_hours_ends_a_run_like_a_signal(forks, undisturbed, outcome_of, tmp_path):
    folder = tmp_path / "run"
    assert forks.run(folder, RARE, "max_hours=0.0001") == RESUME_ME
    assert "by max_hours=0.0001 after step 1" in forks.said(folder)
    assert forks.run(folder, RARE) == 0
    assert outcome_of(folder) == outcome_of(undisturbed(RARE))
