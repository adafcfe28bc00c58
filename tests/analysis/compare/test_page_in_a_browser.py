"""The page of a comparison in a real Chromium: a silent console, and nothing wider than a phone, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlvr_vocab.analysis.compare.page import compare_page
from rlvr_vocab.analysis.compare.result import compare_runs
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun, KeyDifference
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.record.results import ProblemResult

from ..browser import Browser

pytestmark = pytest.mark.slow

HOSTILE = f"{'w' * 300}<script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    arms = [
        ComparedArm(
            f"gradient_accumulation_steps={value}", HOSTILE, tuple(_run(generator, value, seed) for seed in (1, 2))
        )
        for value in ("16", "32")
    ]
    differences = [KeyDifference("dataset.system_prompt", (HOSTILE,) * 4)]
    compared = compare_runs("gradient_accumulation_steps", "what", arms, differences, 0.95, 0.8, None)
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    path.write_text(render(compare_page(compared, HOSTILE, [HOSTILE])))
    return path


def _run(generator: np.random.Generator, value: str, seed: int) -> ComparedRun:
    scores = generator.integers(0, 2, 30)
    answers = [
        ProblemResult(number, 0, f"{HOSTILE} {number}", "1", HOSTILE, float(score), 9, 5, 2, True, True)
        for number, score in enumerate(scores)
    ]
    rows = [{"step": step, "loss": 0.0, "reward": step * seed} for step in range(5)]
    return ComparedRun(f"out/{value}_{seed}{HOSTILE}", seed, answers, rows)


@pytest.mark.parametrize("width", [390, 1400])
def test_it_opens_silently_and_is_no_wider_than_the_window(tab: Browser, page: Path, width: int) -> None:
    tab.open(page, width)
    assert tab.said == []
    assert tab.tell("document.documentElement.scrollWidth") <= width


def test_labels_of_pictures_tell_the_arms_apart(tab: Browser, page: Path) -> None:
    tab.open(page, 1400)
    words = tab.tell("[...document.querySelectorAll('svg text')].map(each => each.textContent).join(' | ')")
    assert "steps=16" in words and "steps=32" in words
