"""The page of a comparison in a real Chromium: a silent console, and nothing wider than a phone, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlvr_vocab.analysis.compare.page import compare_page
from rlvr_vocab.analysis.compare.result import compare_runs
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparedRun, KeyDifference
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.record.results import ProblemResult

from ..browser import Browser, browser, chromium

pytestmark = pytest.mark.slow

HOSTILE = f"{'w' * 300}<script>alert(1)</script>"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("no Chromium is installed")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


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


@pytest.mark.parametrize("dark", [False, True])
def test_a_table_that_is_cut_off_is_shaded_where_it_goes_on(
    tab: Browser, page: Path, tmp_path: Path, dark: bool
) -> None:
    tab.open(page, 390, dark)
    edge = """(() => { const box = document.querySelector('#runs .table-scroll'); box.scrollLeft = 0;
      const it = box.getBoundingClientRect();
      return [Math.round(it.right + scrollX) - 3, Math.round(it.top + scrollY) + 4, box.scrollWidth > box.clientWidth]
    })()"""
    x, y, goes_on = tab.tell(edge)
    assert goes_on
    shaded = _pixel(tab, x, y, tmp_path)
    tab.tell("document.querySelector('#runs .table-scroll').scrollLeft = 1e6")
    assert abs(shaded - _pixel(tab, x, y, tmp_path)) > 30


def _pixel(tab: Browser, x: int, y: int, folder: Path) -> float:
    """Brightness of a pixel of the page, 0 to 255."""
    tab.picture(folder / "page.png", x + 1, y + 1)
    return float(Image.open(folder / "page.png").convert("L").getpixel((x, y)))


def test_labels_of_pictures_tell_the_arms_apart(tab: Browser, page: Path) -> None:
    tab.open(page, 1400)
    words = tab.tell("[...document.querySelectorAll('svg text')].map(each => each.textContent).join(' | ')")
    assert "steps=16" in words and "steps=32" in words
