"""What the doctor finds in the rows of a healthy run with some figures changed: by itself, in stages, in time."""

import inspect
import re
from pathlib import Path

import pytest
from trl import GRPOConfig

from rlvr_vocab.analysis import doctor
from rlvr_vocab.analysis.doctor import learning, policy
from rlvr_vocab.analysis.doctor.diagnose import RULES, Doctor, diagnose
from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.metrics import RewardFact, RunRecord
from rlvr_vocab.runs.folder import run_facts, run_record

REWARDS = tuple(RewardFact(name, weight, False) for name, weight in (("accuracy", 1.0), ("boxed", 0.01)))
NO_SPREAD = {"reward_std": 0.0, "groups/reward_std": 0.0, "frac_reward_zero_std": 1.0}
# Figures without a slash that rules read by their names.
OF_RULES = {"frac_reward_zero_std", "reward", "reward_std", "entropy", "kl", "loss", "grad_norm", "learning_rate"}
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "entropy", "entropy/thinking", "weights/moved", "step_time")


def after(step, change):
    return lambda row: change if row["step"] > step else {}


SICK = {  # the finding, and the change of a row that leads to it
    "every problem out of reach": ("no_group_differs", {"reward": 0.0, **NO_SPREAD}),
    "every problem solved": ("no_group_differs", {"reward": 1.0, **NO_SPREAD}),
    "a reward that hardly varies": ("no_group_differs", {"reward_std": 0.05, "reward": 0.4}),
    "a spread that falls away": ("spread_lost", after(8, {"reward": 0.6, **NO_SPREAD})),
    "a reward that stays": ("reward_flat", lambda row: {"reward": 0.3 + 0.01 * (row["step"] % 3)}),
    "a reward that is lost": ("reward_collapsed", after(40, {"reward": 0.02})),
    "KL above its limit": ("kl_high", lambda row: {"kl": 0.02 * row["step"]}),
    "entropy that collapses": (
        "entropy_collapsing",
        lambda row: {name: row[name] * 0.7 ** max(0, row["step"] - 10) for name in row if name.startswith("entropy")},
    ),
    "completions at the limit": ("completions_cut_off", {"completions/clipped_ratio": 0.6}),
    "thinking without an end": ("completions_cut_off", {"thinking/closed": 0.02}),
    "no call": ("no_calls", {"tools/call_frequency": 0.0, "tools/failure_frequency": 0.0, "tools/ended_in_call": 0.0}),
    "calls in vain": ("calls_fail", {"tools/call_frequency": 1.2, "tools/failure_frequency": 0.7}),
    "calls at the limit": ("completions_end_in_calls", {"tools/call_frequency": 3.0, "tools/ended_in_call": 0.8}),
    "one text for every problem": ("mode_collapse", {"completions/duplicates": 0.86, "completions/shared": 0.9}),
    "a format that nobody meets": ("format_reward_zero", {"rewards/boxed/mean": 0.0, "rewards/boxed/std": 0.0}),
    "a filter that keeps nothing": ("no_gradient", {"groups/kept": 0.0}),
    "a loss without a gradient": ("no_gradient", {"grad_norm": 0.0}),
    "failures": ("rows_skipped", {"rewards/accuracy/failures": 2.0}),
    "rows without a score": ("rows_skipped", {"rewards/accuracy/unscored": 0.2}),
    "another sampler": ("sampler_disagrees", {"sampling/logp_gap": 0.3}),
    "another engine": ("sampler_disagrees", {"sampling/logp_gap": None, "sampling/sampling_logp_difference/mean": 0.3}),
    "weights that stay": ("weights_not_moving", {"weights/moved": 0.0}),
    "gradients that are no numbers": ("loss_not_finite", after(20, {"grad_norm": None})),
    "a loss that is no number": ("loss_not_finite", after(20, {"loss": None})),
}


@pytest.mark.parametrize("logging_steps", [1, 5])
@pytest.mark.parametrize("sickness", SICK)
def test_a_sickness_is_named_with_figures_and_a_step_and_at_most_one_other(
    sickness, logging_steps, rows_with, findings_of
):
    expected, change = SICK[sickness]
    found = {each.name: each for each in findings_of(logged_every(rows_with(change), logging_steps), rewards=REWARDS)}
    assert expected in found and len(found) <= 2, found
    finding = found[expected]
    assert re.search(r"\d", finding.evidence) and re.search(r"steps? \d+", finding.evidence), finding
    assert finding.title and finding.cause and finding.remedy and 10 <= finding.step <= 60


def test_every_rule_has_a_sickness():
    assert {*(name for name, _ in SICK.values()), "held_out_accuracy_falls", "reward_reads_thought"} == set(RULES)


def logged_every(rows, steps):
    """What the trainer would have written: means over some steps, the rate of the last one."""
    joined = []
    for start in range(0, len(rows), steps):
        part = rows[start : start + steps]
        names = {name: None for row in part for name in row}
        means = {}
        for name in names:
            given = [row[name] for row in part if name in row]
            means[name] = None if None in given else sum(given) / len(given)
        joined.append({**means, "step": part[-1]["step"], "learning_rate": part[-1]["learning_rate"]})
    return joined


@pytest.mark.parametrize("logging_steps", [1, 5, 10])
def test_a_healthy_run_has_no_findings(logging_steps, healthy_rows, names_of):
    assert names_of(logged_every(healthy_rows, logging_steps)) == []


@pytest.mark.slow
def test_a_healthy_run_of_the_real_trainer_has_no_findings_and_logs_what_the_rules_read(tmp_path):
    words = ("report=false", "dataset.max_eval_samples=8", "training.kl_log_steps=5", "training.max_steps=30")
    assert main(["quickstart", *words, f"output_dir={tmp_path / 'run'}"]) == 0
    record = run_record(tmp_path / "run")
    assert diagnose(record) == []
    names = re.findall(r'"((?:[a-z]+/)?[a-z_]+)"', " ".join(map(inspect.getsource, (learning, policy))))
    read = {name for name in names if (name in OF_RULES or "/" in name) and not name.startswith("tools/")}
    read.discard("groups/kept")  # of a trainer that overrides keep_groups
    assert {name for row in record.rows for name in row} >= read


def test_a_few_rows_say_nothing(rows_with, names_of):
    for _, change in SICK.values():
        assert names_of(rows_with(change, 8), rewards=REWARDS) == []


def test_single_batches_far_apart_are_judged_from_five_on(healthy_rows, names_of):
    rows = [
        {**row, "completions/clipped_ratio": 0.97} if number % 10 == 0 else {name: row[name] for name in OF_UPDATES}
        for number, row in enumerate(healthy_rows)
    ]
    assert names_of(rows[:40]) == [] and names_of(rows[:50]) == ["completions_cut_off"]


def test_what_follows_from_another_finding_is_not_told(names_of):
    cut_off = {"completions/clipped_ratio": 1.0, "reward": 0.0, **NO_SPREAD}
    assert names_of(cut_off) == ["completions_cut_off", "no_group_differs"]  # a model that knows nothing has both
    fallen = {"entropy": 0.001, "thinking/closed": 0.0, "reward": 0.0, **NO_SPREAD}
    assert names_of(lambda row: fallen if row["step"] > 8 else {}) == ["entropy_collapsing"]
    assert names_of(lambda row: {**fallen, "loss": None} if row["step"] > 8 else {}) == ["loss_not_finite"]


def test_the_keys_that_a_remedy_names_exist():
    texts = [path.read_text(encoding="utf-8") for path in Path(doctor.__file__).parent.glob("*.py")]
    keys = set(re.findall(r"(?<![.\w])(?:training|dataset|warmup|model)\.[a-z_0-9]+", " ".join(texts)))
    assert len(keys) > 15
    known = read_settings("train", ["experiment=quickstart"]).resolved
    for key in keys:
        section, _, name = key.partition(".")
        assert name in known[section] or name in GRPOConfig.__dataclass_fields__, key


def test_rows_one_by_one_lead_to_the_same_in_bounded_memory(rows_with, facts, tmp_path):
    rows = rows_with(lambda row: {"kl": 0.02 * row["step"]})
    doctor = Doctor(facts)
    told = [(row["step"], finding) for row in rows for finding in doctor.look(row)]
    found = diagnose(RunRecord(tmp_path, facts, tuple(rows)))
    assert [finding for _, finding in told] == found == doctor.findings()
    assert told[0][0] == found[0].step < 60
    for step in range(61, 1000):
        assert doctor.look({**rows[step % 40], "step": step}) == []
    for kept in (doctor._history.rows, doctor._history.sampled):
        assert len(kept._last) <= 100 and len(kept._first) <= 50


def test_a_new_stage_is_judged_by_its_own_rows(rows_with, names_of):
    other = {"entropy": 0.05, "reward": 0.2, "step_time": 9.0, "completions/mean_length": 60.0}

    def stage(row):
        if row["step"] <= 20:
            return {"stage": "format", "stage_step": row["step"]}
        return {"stage": "sums", **{name: value + 0.01 * (row["step"] - 20) for name, value in other.items()}}

    rows = rows_with(stage)
    assert names_of(rows) == []
    assert names_of([{**row, "stage": "one"} for row in rows]) != []


def test_a_remedy_in_a_stage_says_so(rows_with, tmp_path):
    stages = "stages=[{name: one, training: {max_completion_length: 20, learning_rate: 0.0, max_steps: 60}}]"
    facts = run_facts(read_settings("train", ["experiment=quickstart", stages]).resolved, tmp_path)
    sick = {"stage": "one", "completions/clipped_ratio": 1.0, "learning_rate": 0.0, "weights/moved": 0.0}
    found = {finding.name: finding for finding in diagnose(RunRecord(tmp_path, facts, tuple(rows_with(sick))))}
    assert found["completions_cut_off"].remedy.startswith("in stage one: training.max_completion_length")
    assert "at 20 tokens" in found["completions_cut_off"].evidence
    assert "training.learning_rate=0" in found["weights_not_moving"].evidence
