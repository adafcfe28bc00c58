"""Groups whose rewards do not differ are set aside, and the batch is as full, and counted, as any."""

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.dynamic_sampling import ProblemOrder, has_spread
from rlvr_vocab.training.settings import CurriculumSettings
from rlvr_vocab.training.trainer import RegionGRPOTrainer

ROUNDS = 5
FOUR_GROUPS = {"per_device_train_batch_size": 16, "num_generations": 4, "max_steps": 3, "learning_rate": 1e-3}


class Sampled(RegionGRPOTrainer):
    """Counts the sampled tokens, and keeps the problems of each batch."""

    tokens = 0

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        replayed = self._chosen is not None
        completion_ids, logps = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        if not replayed:
            self.tokens += sum(map(len, prompt_ids)) + sum(map(len, completion_ids))
        return completion_ids, logps

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        self.trained_on = [*getattr(self, "trained_on", []), self.newest_rollouts["solution"]]
        return batch


class Planned(Sampled):
    """Completions that follow from the prompt and the place in its group."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        planned = [[5 + (sum(ids) + row % 4) % 40] * (1 + row % 3) for row, ids in enumerate(prompt_ids)]
        return planned, None


@pytest.fixture
def train(expand_shape, make_trainer, tmp_path):
    """A trained trainer of a class, with a reward; `resume` names a checkpoint below `tmp_path`."""

    def trained(trainer, reward, out="out", resume=None, rounds=ROUNDS, **more):
        made = make_trainer(
            expand_shape("qwen3", size=None), tmp_path / out, trainer=trainer, reward=reward, max_rounds=rounds,
            **{**FOUR_GROUPS, **more},
        )  # fmt: skip
        made.train(resume_from_checkpoint=None if resume is None else str(tmp_path / resume))
        return made

    return trained


def odd_ones(solution, **_):
    """Problems with even numbers score nothing, others half of their completions."""
    return [float(place % 2) * (int(number) % 2) for place, number in enumerate(solution)]


def test_every_group_of_a_batch_has_a_spread_where_there_is_any(train):
    trainer = train(Sampled, odd_ones)
    rows = trainer.state.log_history[:3]
    assert all(row["frac_reward_zero_std"] == 0 and row["reward"] == 0.5 for row in rows)
    assert max(row["dynamic/rounds"] for row in rows) > 1 and min(row["reward/sampled"] for row in rows) < 0.5
    assert all(int(number) % 2 for batch in trainer.trained_on for number in batch)
    assert rows[-1]["num_tokens"] == trainer.tokens
    assert sum(row["dynamic/tokens_thrown_away"] for row in rows) > 0
    assert max(row["sampling/logp_gap"] for row in rows) < 1e-4
    flat = train(Planned, lambda solution, **_: [0.0] * len(solution), max_steps=1)
    row = flat.state.log_history[0]
    assert row["frac_reward_zero_std"] == 1 and row["dynamic/rounds"] == ROUNDS
    assert row["dynamic/completions_thrown_away"] == 4 * 16 and len(flat.trained_on[0]) == 16


def test_it_trains_as_if_only_these_problems_had_been_drawn(train):
    trainer = train(Planned, odd_ones)
    problems = {row["solution"]: row for row in trainer.train_dataset}
    chosen = [problems[number] for batch in trainer.trained_on for number in batch[::4]]
    plain = train(Planned, odd_ones, "plain", rounds=1, rows=chosen, shuffle_dataset=False)
    assert plain.trained_on == trainer.trained_on
    others = ("step_time", "time/", "memory/", "dynamic/", "reward/sampled", "num_tokens", "epoch")
    for there, here in zip(plain.state.log_history[:3], trainer.state.log_history[:3], strict=True):
        here = {name: value for name, value in here.items() if not name.startswith(others)}
        assert here == {name: there[name] for name in here} and len(here) > 20
    assert all(map(torch.equal, plain.model.parameters(), trainer.model.parameters()))


def odd_ones_alone(solution, log_extra=None, **_):
    """The same, but problems with even numbers have no score; and a column that is cut short, as by a failure."""
    log_extra("note", [*solution][:-1])
    scores = odd_ones(solution)
    return [score if int(number) % 2 else None for score, number in zip(scores, solution, strict=True)]


def test_a_round_in_which_nothing_can_be_scored_is_no_batch_without_rewards(train):
    whole, chosen = train(Planned, odd_ones), train(Planned, odd_ones_alone, "some")
    assert chosen.trained_on == whole.trained_on
    assert max(row["dynamic/rounds"] for row in chosen.state.log_history[:3]) > 1
    with pytest.raises(UserError, match=f"none of {ROUNDS * 16} completions has a reward"):
        train(Planned, lambda solution, **_: [None] * len(solution), "none")


def test_a_reward_that_does_not_count_gives_a_group_no_spread():
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    for aggregation in ("sum_then_normalize", "normalize_then_sum"):
        assert not has_spread(rewards, torch.tensor([1.0, 0.0]), aggregation)
        assert has_spread(rewards, torch.tensor([1.0, 0.5]), aggregation)


def test_a_resume_goes_on_with_the_problems_that_were_next(train):
    saved = {"save_strategy": "steps", "save_steps": 2}
    whole = train(Sampled, odd_ones, "whole", **saved)
    resumed = train(Sampled, odd_ones, "resumed", resume="whole/checkpoint-2", **saved)
    assert resumed.trained_on == whole.trained_on[2:]
    assert all(map(torch.equal, whole.model.parameters(), resumed.model.parameters()))


def test_each_problem_is_drawn_once_in_a_pass_and_a_restored_order_goes_on():
    order = ProblemOrder(10, 3)
    drawn, state = order.draw(7), order.state()
    rest = order.draw(13)
    assert sorted(drawn + rest[:3]) == sorted(rest[3:]) == list(range(10)) and drawn + rest[:3] != rest[3:]
    again = ProblemOrder(10, 3)
    again.restore(state)
    assert again.draw(13) == rest
    assert ProblemOrder(10, 4).draw(10) != drawn + rest[:3]


def drawn_with(order, count, solved):
    found = []
    for _ in range(count):
        [place] = order.draw(1)
        order.observe(place, solved(place))
        found.append(place)
    return found


def test_what_is_solved_so_often_is_not_drawn_again_while_there_is_anything_else_nor_after_a_resume():
    solved = lambda place: place < 4  # noqa: E731
    order, again, all_solved = ProblemOrder(12, 0, 2), ProblemOrder(12, 0, 2), ProblemOrder(12, 0, 1)
    found = drawn_with(order, 25, solved)
    again.restore(order.state())
    rest = drawn_with(order, 35, solved)
    assert rest == drawn_with(again, 35, solved) and order.summary() == again.summary()
    assert all((found + rest).count(place) == 2 for place in range(4))
    assert 16 <= order.summary()["passed_over"] <= 20
    assert order.summary()["problems_solved"] == 4
    assert set(drawn_with(all_solved, 30, lambda place: True)) == set(range(12))


def test_a_curriculum_alone_trains_on_full_batches_of_the_problems_that_it_chooses(train):
    order = {"curriculum": CurriculumSettings(skip_solved=1), "solved_by": ("odd_ones", 0.0)}
    trainer = train(Sampled, odd_ones, rounds=1, max_steps=4, **order)
    drawn = [number for batch in trainer.trained_on for number in batch[::4]]
    assert len(drawn) == 16 and len(set(drawn[:12])) == 12
    summary = trainer.dynamic_sampling.order.summary()
    assert summary["problems_solved"] == 12 and not any("dynamic/rounds" in row for row in trainer.state.log_history)
