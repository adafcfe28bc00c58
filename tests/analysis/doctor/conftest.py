"""The rows of a healthy run, and what the doctor finds in them when some of their figures are changed."""

import random
from dataclasses import replace

import pytest

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.record.metrics import RewardFact, RunFacts, RunRecord

FACTS = RunFacts(
    exp_name="tiny",
    model="tiny",
    dataset="arithmetic",
    reasoning_vocab_size=0,
    think_tags=("<think>", "</think>"),
    rewards=(RewardFact("accuracy", 1.0, False),),
    num_generations=8,
    max_completion_length=24,
    learning_rate=1e-3,
    max_steps=14,
    use_vllm=False,
    completions_per_step=32,
)


@pytest.fixture(scope="session")
def facts():
    return FACTS


@pytest.fixture
def rows_with(healthy_rows):
    """The first rows of a healthy run, with the figures of a dict, or of a function of the row, over theirs."""

    def changed(change, count=60):
        return [{**row, **(change(row) if callable(change) else change)} for row in healthy_rows[:count]]

    return changed


@pytest.fixture
def findings_of(facts, rows_with, tmp_path):
    """What is found in rows, or in those of a healthy run with a change; keyword arguments are facts of the run."""

    def found(given, evaluations=(), summary=None, thoughts=(), **changed):
        rows = given if isinstance(given, list) else rows_with(given)
        facts_of_run = replace(facts, **changed)
        return diagnose(RunRecord(tmp_path, facts_of_run, tuple(rows), tuple(evaluations), summary, thoughts))

    return found


@pytest.fixture
def names_of(findings_of):
    return lambda *given, **changed: [finding.name for finding in findings_of(*given, **changed)]


@pytest.fixture(scope="session")
def healthy_rows():
    """Sixty rows with the figures of a healthy run: the reward rises, entropy falls, lengths stay."""
    luck = random.Random(1)

    def about(value, part=0.05):
        return value * luck.uniform(1 - part, 1 + part)

    def row(step):
        reward = about(0.3 + 0.3 * step / 60, 0.1)
        return {
            "step": step,
            "loss": luck.uniform(-0.01, 0.01),
            "grad_norm": about(1.1, 0.3),
            "learning_rate": min(step - 1, 6) / 6 * 1e-3 * (61 - step) / 60,
            "num_tokens": 6000.0 * step,
            "completions/mean_length": about(22.0),
            "completions/clipped_ratio": 0.01,
            "completions/duplicates": about(0.2),
            "completions/shared": 0.0,
            "rewards/accuracy/mean": reward,
            "rewards/accuracy/std": about(0.47),
            "reward": reward,
            "reward_std": about(0.47),
            "groups/reward_std": about(0.4),
            "frac_reward_zero_std": luck.choice((0.1, 0.2, 0.3)),
            "thinking/mean_length": about(13.0),
            "answering/mean_length": about(9.0),
            "thinking/closed": about(0.97, 0.02),
            "thinking/reasoning_share": about(0.46),
            "sampling/logp_gap": 1e-7,
            "entropy": about(0.6 - 0.1 * step / 60),
            "entropy/thinking": about(0.88 - 0.1 * step / 60),
            "entropy/answering": about(0.17 - 0.05 * step / 60),
            "weights/moved": float(step > 1),
            "step_time": about(0.7),
            "time/generation": about(0.3),
            "time/rewards": about(0.01),
            **({"kl": 0.1 * step / 60} if step % 10 == 1 else {}),
        }

    return [row(step) for step in range(1, 61)]
