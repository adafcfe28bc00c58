"""A run that is resumed from a checkpoint goes on as if it had not stopped, as far as the device repeats itself."""

STEPS = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-4, "kl_log_steps": 0}


def weights_of(trainer):
    return {name: each.clone() for name, each in trainer.model.state_dict().items()}


def farthest(one, other):
    return max((one[name] - weight).abs().max().item() for name, weight in other.items())


def test_a_resumed_run_ends_as_near_to_the_whole_one_as_a_second_whole_one(expanded, train_on, report, tmp_path):
    """Sums by atomic additions come in another order each time on a GPU: there, the same bits are not to be had."""
    ends, history = {}, {}
    for name, checkpoint in (("whole", None), ("again", None), ("resumed", tmp_path / "whole" / "checkpoint-2")):
        trainer = train_on(expanded(), tmp_path / name, max_completion_length=24, **STEPS)
        initial = weights_of(trainer)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        ends[name] = weights_of(trainer)
        history[name] = {row["step"]: row for row in trainer.state.log_history if "loss" in row}
    of_the_same, of_resumed = (farthest(ends[name], ends["whole"]) for name in ("again", "resumed"))
    moved = farthest(ends["whole"], initial)
    report(f"from a whole run: resumed {of_resumed:.1e}, a second one {of_the_same:.1e}, untrained {moved:.1e}")
    assert of_resumed <= 4 * of_the_same
    assert moved > 1e-4 and of_the_same < moved
    # What is drawn in the first step after a resume follows from the state in the checkpoint alone.
    first = {name: history[name][3] for name in ("whole", "resumed")}
    assert first["resumed"]["completions/mean_length"] == first["whole"]["completions/mean_length"]
    assert abs(first["resumed"]["entropy/text"] - first["whole"]["entropy/text"]) <= (0 if of_the_same == 0 else 1e-2)
