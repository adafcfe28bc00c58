"""What is refused of `training.use_vllm` before anything loads."""

import pytest
from packaging.version import Version

from rlvr_vocab.config.checks import machine
from rlvr_vocab.config.checks import machine as vllm_checks
from rlvr_vocab.config.checks.machine import check_vllm
from rlvr_vocab.errors import UserError


@pytest.fixture(autouse=True)
def vllm_installed(monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda package: True)
    monkeypatch.setattr(vllm_checks, "vllm_version", lambda: Version("0.31.0+cu129"))


@pytest.mark.parametrize("version", ["0.21.0", "0.31.1", "0.32.0"])
def test_other_versions_than_trl_works_with_are_refused_by_name(version, monkeypatch):
    check_vllm({"use_vllm": True})  # 0.31.0+cu129
    monkeypatch.setattr(vllm_checks, "vllm_version", lambda: Version(version))
    with pytest.raises(UserError, match=rf"vLLM {version} is installed, TRL works with 0\.22\.0 to 0\.31\.0"):
        check_vllm({"use_vllm": True})
    check_vllm({"use_vllm": False})


def test_the_version_is_that_of_whatever_distribution_brings_the_package(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(vllm_checks, "packages_distributions", lambda: {"vllm": ["torch"]})
    assert vllm_checks.vllm_version() is not None
    monkeypatch.setattr(vllm_checks, "packages_distributions", dict)
    assert vllm_checks.vllm_version() is None
