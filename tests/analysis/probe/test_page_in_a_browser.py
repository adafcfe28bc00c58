"""The page of a probe in a real Chromium: a silent console, and nothing wider than a phone, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr_vocab.analysis.probe.page import probe_page
from rlvr_vocab.analysis.report.page import render

from ..browser import Browser
from .made_up import findings, made_up

pytestmark = pytest.mark.slow

HOSTILE = f"{'w' * 300}<script>alert(1)</script>\"' onmouseover=alert(1)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "probe.html"
    path.write_text(render(probe_page(findings(made_up(folder=HOSTILE)), HOSTILE)))
    return path


@pytest.mark.parametrize("width", [390, 1400])
def test_it_opens_silently_and_is_no_wider_than_the_window(tab: Browser, page: Path, width: int) -> None:
    tab.open(page, width)
    assert tab.said == []
    assert tab.tell("document.documentElement.scrollWidth") <= width
    assert tab.tell("document.querySelectorAll('script, [onmouseover]').length") == 0
