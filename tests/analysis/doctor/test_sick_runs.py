"""Runs of the real trainer: a healthy one has no finding, and a sick one is named by its finding."""

import inspect
import re

import pytest

from rlvr_vocab.analysis.doctor import learning, policy
from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.cli import main
from rlvr_vocab.runs.folder import run_record

pytestmark = pytest.mark.slow
# Read by their names alone.
OF_RULES = {"frac_reward_zero_std", "reward", "reward_std", "entropy", "kl", "loss", "grad_norm", "learning_rate"}


def trained(folder, *args):
    small = ("report=false", "dataset.max_eval_samples=8", "training.kl_log_steps=5", f"output_dir={folder}")
    assert main(["quickstart", *small, *args]) == 0
    return run_record(folder)


def test_a_healthy_run_has_no_findings_and_logs_what_the_rules_read(tmp_path):
    record = trained(tmp_path / "run", "training.max_steps=30")
    assert diagnose(record) == []
    read = re.findall(r'"((?:[a-z]+/)?[a-z_]+)"', " ".join(map(inspect.getsource, (learning, policy))))
    logged = {name for row in record.rows for name in row}
    read = {name for name in read if name in OF_RULES or "/" in name}
    read.discard("groups/kept")  # of a trainer that overrides keep_groups
    assert logged >= {name for name in read if not name.startswith("tools/")}
