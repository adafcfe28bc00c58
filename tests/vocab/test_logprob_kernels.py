"""The Triton kernels against the plain form: what falls to them, bfloat16, and whether CUDA's compiler takes them.

`test_logprobs` runs whole through them, slowly; here are a few of its cases.
"""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
import torch

from rlvr_vocab.vocab import logprobs
from tests.vocab import test_logprobs
from tests.vocab.test_logprobs import CAPPED, PLAIN, UPSTREAM, Case, assert_close, block_form

KERNELS = {"_add_to_sums", "_gradients_of_products"}
ALL = UPSTREAM["all"]
CASES = [
    ({"sources": "none"}, PLAIN, ALL),
    ({"sources": "the first 40", "mode": "replace", "bias": True}, CAPPED, ALL),
    ({"form": "low_rank", "sources": "all, thrice"}, CAPPED, ALL),
    ({"form": "low_rank", "regions": "all thinking", "bias": True}, PLAIN, UPSTREAM["KL of texts"]),
    ({"form": "frozen", "sources": "all, thrice", "mode": "replace", "odds": False}, PLAIN, UPSTREAM["log-probs"]),
]


@pytest.fixture(autouse=True)
def launches(monkeypatch):
    """The names of the kernels, one for each launch."""
    found, names = test_logprobs.kernels_on_small_blocks(monkeypatch), []

    def counted(name, kernel):
        def launch(grid):
            names.append(name)
            return kernel[grid]

        return MagicMock(**{"__getitem__.side_effect": launch})

    for name in KERNELS:
        monkeypatch.setattr(found, name, counted(name, getattr(found, name)))
    return names


def by_form(case, settings, used, form):
    """Scores and gradients."""
    with block_form(form):
        scores = case.scores(settings)
    return scores, case.gradients(scores, used)  # outside: backward takes the form of forward


@pytest.mark.parametrize(("given", "settings", "used"), CASES)
def test_scores_and_gradients_are_those_of_the_plain_form_and_of_float64(given, settings, used, launches):
    case = Case(**given)
    scores, gradients = by_form(case, settings, used, "triton")
    assert set(launches) == KERNELS
    dense = case.dense(settings)
    for expected, of_expected in (by_form(case, settings, used, "plain"), (dense, case.gradients(dense, used))):
        assert_close(scores, expected, least_scale=0.1)
        assert_close(gradients, of_expected, least_scale=1e-2)


def test_without_a_device_that_triton_compiles_for_torch_does_it_all_and_a_gpu_is_told_why(monkeypatch):
    choose = logprobs.choose_block_form.__wrapped__
    assert choose(torch.device("cpu")) == "plain"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert choose(torch.device("cuda")) == "plain"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    missing = AssertionError("libcuda.so cannot found!")  # as Triton says it
    monkeypatch.setattr("triton.runtime.driver", Mock(**{"active.get_current_target.side_effect": missing}))
    with pytest.warns(UserWarning, match=r"Triton cannot compile here \(libcuda\.so cannot found"):
        assert choose(torch.device("cuda")) == "plain"


@pytest.mark.parametrize(("form", "bias"), [("independent", True), ("low_rank", False)])
def test_so_they_are_in_bfloat16_but_for_the_rounding_of_gradients(form, bias, launches):
    case = Case(form, sources="the first 40", bias=bias)
    for name in ("hidden", "weight", "bias", "A", "B"):
        leaf = getattr(case, name)
        if leaf is not None:  # numbers whose products bfloat16 can hold
            setattr(case, name, (leaf.detach().sign() / 2).bfloat16().requires_grad_())
    scores, gradients = by_form(case, CAPPED, ALL, "triton")
    dense = case.dense(CAPPED)
    assert set(launches) == KERNELS and scores.log_probs.dtype == torch.float32
    assert_close(scores, dense, least_scale=0.1)
    # What a bias makes the kernel leave in float32 is rounded as by the plain form; its own bfloat16, which the
    # interpreter cuts off instead, has one bit less.
    tolerance = 2**-8 if bias else 2**-6
    of_plain = by_form(case, CAPPED, ALL, "plain")[1]
    for ours, plain, exact in zip(gradients, of_plain, case.gradients(dense, ALL), strict=True):
        assert ours.dtype == torch.bfloat16
        scale = exact.abs().max()
        assert (ours - plain).abs().max() <= tolerance * scale and (ours - exact).abs().max() <= 2**-6 * scale


@pytest.mark.slow
def test_variants_that_are_launched_compile_for_gpus(tmp_path):
    """CUDA's compiler comes with Triton, and needs no GPU; it refuses things that the interpreter accepts."""
    script, root = Path(__file__).with_name("compile_kernels.py"), Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == KERNELS
