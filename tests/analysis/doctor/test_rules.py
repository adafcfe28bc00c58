"""Single rules of the doctor at their edges: what is healthy, what is found, and by which variant."""

import random
from dataclasses import replace

import numpy as np
import pytest

from rlvr_vocab.analysis.doctor.diagnose import Doctor, diagnose
from rlvr_vocab.record.metrics import RewardFact, RunRecord

NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
ACCURACY, OWN = RewardFact("accuracy", 1.0, False), RewardFact("own", 1.0, False)


def resting(row):
    return 0.3 + 0.01 * (row["step"] % 3)


def learned(row):
    """A task that is learned in thirty steps, after which the policy is sure of itself."""
    part = min(1.0, 0.3 + 0.7 * row["step"] / 30)
    spread = (part * (1 - part)) ** 0.5
    sure = {name: max(0.005, row[name] * (1 - part) / 0.7) for name in row if name.startswith("entropy")}
    return {"reward": part, "reward_std": spread, "groups/reward_std": spread, **sure}


HEALTHY = {
    "a task learned to the full mark": lambda row: {"reward": 1.0, **NO_SPREAD} if row["step"] > 30 else {},
    "a policy sure of what it has learned": learned,
    "a rest while the learning rate rises": lambda row: {"reward": resting(row), "learning_rate": 1e-5 * row["step"]},
    "hardly any thinking tokens": lambda row: {"thinking/mean_length": 0.1, "thinking/closed": 0.05},
    "completions that mostly do not think": lambda row: {"thinking/closed": 0.1, "thinking/mean_length": 2.0},
}


@pytest.mark.parametrize("change", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_change_leads_to_no_finding(change, names_of):
    assert names_of(change) == []


def test_entropy_that_falls_before_the_policy_is_right_is_found(rows_with, names_of):
    assert "entropy_collapsing" in names_of([{**row, "reward": resting(row)} for row in rows_with(learned)])


# --- groups and scores ---


def drawn(rates, healthy_rows, *, seed=0, hidden=""):
    """Two hundred rows in which the rewards are drawn at these rates, eight in a group."""
    luck, rows = np.random.default_rng(seed), []
    for step in range(1, 201):
        at = rates(step, luck)
        rewards = (luck.random((len(at), 8)) < at[:, None]).astype(float)
        within = rewards.std(axis=1, ddof=1)
        row = {
            **healthy_rows[step % len(healthy_rows)],
            "step": step,
            "learning_rate": 1e-3,
            "reward": rewards.mean(),
            "reward_std": rewards.std(ddof=1),
            "groups/reward_std": within.mean(),
            "frac_reward_zero_std": (within == 0).mean(),
            "rewards/accuracy/mean": rewards.mean(),
            "rewards/accuracy/std": rewards.std(ddof=1),
        }
        rows.append({name: value for name, value in row.items() if name != hidden})
    return rows


@pytest.mark.parametrize(
    ("lost_at", "how", "hidden"),
    [(40, "abruptly", ""), (120, "gradually", "frac_reward_zero_std"), (180, "with noise", "")],
)
def test_a_lost_spread_is_found_within_twenty_steps_and_not_before(lost_at, how, hidden, healthy_rows, facts):
    def rates(step, luck):
        right = 0.3 + 0.3 * min(1.0, step / lost_at)
        alike = min(1.0, max(0.0, (step - lost_at) / (10 if how == "gradually" else 1)))
        settled = luck.random(8) < alike * (0.97 if how == "with noise" else 1.0)
        return np.where(settled, luck.random(8) < 0.6, luck.beta(2 * right, 2 - 2 * right, 8))

    doctor, found = Doctor(replace(facts, completions_per_step=64)), {}
    for row in drawn(rates, healthy_rows, hidden=hidden):
        found.update({finding.name: row["step"] for finding in doctor.look(row)})
    assert list(found) == ["spread_lost"] and lost_at < found["spread_lost"] <= lost_at + 20


@pytest.mark.parametrize(("groups", "seed"), [(2, 0), (2, 1), (8, 2)])
@pytest.mark.parametrize(
    "rates",
    [
        pytest.param(lambda step, luck: np.full(8, min(0.99, 0.3 + 0.7 * step / 60)), id="learned, and then at rest"),
        pytest.param(lambda step, luck: luck.beta(2 * (a := 0.3 + 0.0034 * step), 2 - 2 * a, 8), id="learned slowly"),
        pytest.param(lambda step, luck: luck.beta(1.2, 0.8, 8), id="nothing but noise"),
    ],
)
def test_a_spread_that_falls_as_the_problems_are_learned_is_healthy_wherever_the_run_ends(
    rates, seed, groups, healthy_rows, facts
):
    doctor, found = Doctor(replace(facts, completions_per_step=8 * groups)), set()
    for row in drawn(lambda step, luck: rates(step, luck)[:groups], healthy_rows, seed=seed):
        found |= {finding.name for finding in doctor.look(row)} - {"reward_flat"}  # noise alone is flat
    assert found == set()


def of_own(row, reward, spread):
    """The row with a single function of the user's own."""
    plain = {name: value for name, value in row.items() if not name.startswith("rewards/")}
    still = NO_SPREAD if spread == 0 else {"reward_std": spread, "groups/reward_std": 0.9 * spread}
    return {**plain, "reward": reward, "rewards/own/mean": reward, "rewards/own/std": spread, **still}


@pytest.mark.parametrize(("full", "offset", "mark"), [(2.0, 0, None), (10.0, 0, 10.0), (1.0, -1, None), (1.0, -1, 0.0)])
def test_a_reward_on_any_scale_may_be_learned(full, offset, mark, healthy_rows, names_of):
    parts = [min(1.0, 0.3 + 0.7 * row["step"] / 30) for row in healthy_rows]
    rows = [
        of_own(row, full * part + offset, full * (part * (1 - part)) ** 0.5)
        for row, part in zip(healthy_rows, parts, strict=True)
    ]
    assert names_of(rows, rewards=(replace(OWN, full_mark=mark),)) == []


def test_a_dense_reward_of_small_spread_teaches_where_no_group_is_flat(rows_with, names_of):
    assert names_of(rows_with({"reward_std": 0.045, "frac_reward_zero_std": 0.0})) == []
    assert names_of(rows_with(lambda row: {"kl": 3.9 + 0.001 * row["step"]})) == []  # of a stage: from its first step


def test_a_reward_of_the_problem_alone_never_varies_on_any_scale(healthy_rows, names_of):
    rows = [{**of_own(row, 0.5, 0.5), "groups/reward_std": 0.0, "frac_reward_zero_std": 0.0} for row in healthy_rows]
    assert names_of(rows, rewards=(OWN,)) == ["no_group_differs"]


@pytest.mark.parametrize(
    ("name", "full_mark", "sick"),
    [("boxed", None, True), ("think_format_2", None, True), ("boxed", 0.0, False), ("my_format", None, False)],
)
def test_a_format_that_is_never_met_is_found_and_a_penalty_of_0_is_not(name, full_mark, sick, names_of):
    rewards = (ACCURACY, RewardFact(name, 0.1, False, full_mark))
    scores = {f"rewards/{name}/mean": 0.0, f"rewards/{name}/std": 0.0}
    assert names_of(scores, rewards=rewards) == ["format_reward_zero"] * sick


def test_one_accident_is_no_habit_however_few_rows_there_are(healthy_rows, names_of):
    rows = [{**row, "rewards/accuracy/failures": float(row["step"] == 10)} for row in healthy_rows[4:15:5]]
    assert len(rows) == 3 and names_of(rows) == []
    assert names_of([{**row, "grad_norm": None} if row["step"] == 10 else row for row in rows]) == []


# --- learning ---


@pytest.mark.parametrize("until", [2, 5, 20])
def test_a_reward_that_is_gone_at_once_has_collapsed_and_nothing_else(until, findings_of):
    lost = {"completions/clipped_ratio": 1.0, "thinking/closed": 0.0, "answering/mean_length": 0.0}
    lost |= {"reward": 0.0, **NO_SPREAD, "kl": 1.2, "completions/duplicates": 0.87}
    [finding] = findings_of(lambda row: {"reward": 0.45 - 0.05 * (row["step"] % 2)} if row["step"] <= until else lost)
    assert finding.name == "reward_collapsed" and finding.step <= until + 12


def test_a_lucky_beginning_is_no_collapse(names_of):
    for seed in range(20):
        luck = random.Random(seed)
        names = names_of(lambda row, luck=luck: {"reward": sum(luck.random() < 0.35 for _ in range(16)) / 16})
        assert "reward_collapsed" not in names


def test_a_flat_reward_is_taken_back_when_it_rises(healthy_rows, facts, tmp_path):
    rows = [
        {**healthy_rows[number % 60], "step": number + 1, "learning_rate": 1e-4}
        | {"reward": 0.3 + 0.01 * (number % 3) + 0.005 * max(0, number - 50)}
        for number in range(100)
    ]
    doctor = Doctor(facts)
    assert [finding.name for row in rows for finding in doctor.look(row)] == ["reward_flat"]
    assert doctor.findings() == diagnose(RunRecord(tmp_path, facts, tuple(rows))) == []


def test_rewards_are_judged_at_the_first_weights(rows_with, names_of):
    def row(row):
        right, weight = 0.3 + 0.01 * row["step"], 1.0 - 0.015 * row["step"]  # the weighted reward falls
        scores = {"rewards/accuracy/mean": right, "rewards/boxed/mean": 0.9, "rewards/boxed/std": 0.3}
        return {**scores, "reward": weight * right + 0.18, "rewards/accuracy/weight": weight, "reward_std": 0.047}

    rewards = (RewardFact("accuracy", 1.0, True), RewardFact("boxed", 0.2, False))
    assert names_of(rows_with(row), rewards=rewards) == []
    assert names_of(rows_with(row), rewards=(RewardFact("accuracy", 1.0, False), rewards[1])) != []


NO_ACCURACY = {"rewards/accuracy/std": 0.1}  # of partial credit, so that only the reward is looked at


def held_out(*values, problems=200, spread=None):
    """Evaluations ten steps apart: accuracies, or rewards with that standard deviation."""
    measured = {"eval/accuracy": 0.0} if spread is None else {"eval/reward": 0.0, "eval/reward_std": spread}
    [name, *_] = measured
    return [
        {"step": 10 * number, "eval/problems": problems, **measured, name: value}
        for number, value in enumerate(values, start=1)
    ]


@pytest.mark.parametrize(
    ("evaluations", "sick"),
    [
        (held_out(0.3, 0.5, 0.5, 0.3, 0.25), True),
        (held_out(0.5, 0.52, 0.49, 0.5, 0.47, 0.5), False),
        (held_out(0.1, 0.1, 0.9, 0.9, 0.5), False),  # two and two: the last two are no worse than any before them
        (held_out(0.6, 0.45, problems=10), False),
        (held_out(2.0, 1.8, 1.6, 1.2, 1.1, 1.0, spread=1.0), True),
        (held_out(2.0, 1.8, 1.6, 1.2, 1.1, 1.0, spread=20.0), False),  # by luck, at such a spread over 200 problems
        (held_out(0.020, 0.018, 0.016, 0.012, 0.011, 0.010, spread=0.01), True),  # in units of its own
    ],
)
def test_held_out_answers_that_get_worse_while_the_reward_rises(evaluations, sick, names_of):
    assert names_of(NO_ACCURACY, evaluations) == ["held_out_accuracy_falls"] * sick


@pytest.mark.parametrize(
    ("problems", "before", "after", "spread", "sick"),
    [
        (200, 0.5, 0.2, None, True),
        (200, 0.5, 0.48, None, False),
        (2, 1.0, 0.0, None, False),
        (200, 2.0, 1.0, 1.0, True),
        (200, 2.0, 1.0, 20.0, False),
    ],
)
def test_held_out_answers_before_and_after_a_run_count_too(problems, before, after, spread, sick, names_of):
    name = "accuracy" if spread is None else "reward"
    summary = {f"{name}_before": before, f"{name}_after": after, "held_out_problems": problems, "finished": True}
    summary |= {} if spread is None else {"reward_std_before": spread, "reward_std_after": spread}
    assert names_of(NO_ACCURACY, (), summary) == ["held_out_accuracy_falls"] * sick


@pytest.mark.parametrize(
    ("trained", "values", "problems", "sick"),
    [
        ((0.3, 0.8), (0.3, 0.32, 0.35, 0.36, 0.35, 0.37), 400, True),
        ((0.3, 0.8), (0.3, 0.4, 0.5, 0.6, 0.7, 0.78), 400, False),  # held-out answers get as good
        ((0.3, 0.8), (0.3, 0.32, 0.35, 0.36, 0.35, 0.37), 5, False),  # by luck, of so few problems
        ((0.5, 0.9), (0.1, 0.1, 0.1, 0.1, 0.1, 0.1), 400, False),  # on another scale from the beginning
    ],
)
def test_accuracy_in_training_that_parts_from_held_out_accuracy_is_found(
    trained, values, problems, sick, rows_with, names_of
):
    begin, end = trained

    def rows_of(part):
        means = [begin + (end - begin) * step / 60 for step in range(1, 61)]
        scores = [
            {"rewards/accuracy/mean": mean, "rewards/accuracy/std": part * (mean * (1 - mean)) ** 0.5} for mean in means
        ]
        return [{**row, **each} for row, each in zip(rows_with({}), scores, strict=True)]

    rows = rows_of(1.0)
    assert names_of(rows, held_out(*values, problems=problems)) == ["held_out_accuracy_falls"] * sick
    summary = {"accuracy_before": values[0], "accuracy_after": values[-1], "held_out_problems": problems}
    assert names_of(rows, (), summary) == ["held_out_accuracy_falls"] * sick
    assert names_of(rows, (), summary, rewards=(RewardFact("think_format", 1.0, False), OWN)) == []
    assert names_of(rows_of(0.7), (), summary) == []  # partial credit: no accuracy


def test_held_out_accuracy_is_followed_over_stages(rows_with, names_of):
    rows = rows_with(
        lambda row: (
            {"stage": "format", "reward": 0.95}
            if row["step"] <= 20
            else {"stage": "sums", "reward": 0.3 + 0.005 * (row["step"] - 20)}
        )
    )
    assert names_of(rows, held_out(0.5, 0.5, 0.4, 0.3, 0.2, 0.1, problems=500)) == ["held_out_accuracy_falls"]
    assert names_of(rows, held_out(*[0.5] * 6, problems=500)) == []


# --- the policy and its updates ---


@pytest.mark.parametrize(
    ("rate", "moved", "title", "severity"),
    [
        (0.0, 0.2, "The learning rate is next to 0", "error"),
        (1e-6, 0.2, "Most updates round away", "warning"),
        (1e-6, 0.0, "The parameters do not move", "error"),
    ],
)
def test_weights_that_stay_are_named_by_their_rate_and_their_share(rate, moved, title, severity, findings_of):
    [finding] = findings_of({"learning_rate": rate, "weights/moved": moved}, learning_rate=rate)
    assert (finding.name, finding.title, finding.severity) == ("weights_not_moving", title, severity)


def test_the_end_of_a_decay_may_round_away(rows_with, names_of):
    """The last ten rows have rates below 2e-4."""
    rows = rows_with(lambda row: {"weights/moved": 0.0 if row["step"] > 50 else 1.0})
    assert names_of(rows, learning_rate=2e-3) == []
    assert names_of(rows, learning_rate=1e-4) == ["weights_not_moving"]


@pytest.mark.parametrize(("clipped", "title"), [(1.0, "Completions are cut off"), (0.0, "Thinking is not closed")])
def test_thinking_that_is_not_closed_is_found_with_the_limit_or_by_itself(clipped, title, findings_of):
    [found] = findings_of({"completions/clipped_ratio": clipped, "thinking/closed": 0.1})
    assert (found.name, found.title, found.severity) == ("completions_cut_off", title, "error")
    assert "thinking/closed 10%" in found.evidence


READING = {
    "name": "mine",
    "declared": None,
    "reads": True,
    "sentence": "mine reads the thought: 31 % of its variance, x",
}
READING |= {"moved": {"again": 0.0, "blank": 0.4}, "share": 0.31, "low": 0.2}


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({}, "Reward mine reads the thought: 31 % of its variance"),
        ({"declared": "words", "low": 0.06}, "Reward mine reads the thought: 31 % of its variance"),
        ({"share": None, "low": None}, "Reward mine reads the thought: 31 % of its variance"),
        ({"share": None, "low": None, "moved": {"again": None, "blank": 0.01}}, None),
        ({"low": 0.04}, None),
        ({"declared": "length"}, None),
        ({"reads": None}, None),
        ({"name": "unweighted"}, None),
    ],
)
def test_a_reward_that_reads_the_thought_is_found_once_the_run_has_ended(change, title, findings_of):
    rewards = (RewardFact("mine", 1.0, False), RewardFact("unweighted", 0.0, False))
    found = findings_of({}, (), {}, [READING | change], rewards=rewards)
    assert [each.title for each in found if each.name == "reward_reads_thought"] == ([title] if title else [])
