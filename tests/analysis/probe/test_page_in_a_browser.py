"""The page of a probe in a real Chromium: a silent console, and nothing wider than a phone, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr_vocab.analysis.probe.page import probe_page
from rlvr_vocab.analysis.report.page import render
from rlvr_vocab.record.probe import TokenMap

from ..browser import Browser
from .made_up import findings, made_up

pytestmark = pytest.mark.slow

HOSTILE = f"{'w' * 300}<script>alert(1)</script>\"' onmouseover=alert(1)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shown = TokenMap(0, 0, HOSTILE, HOSTILE, -0.1, ["<think>", HOSTILE], [0, 1], [None, 0.9], [None, -4.0])
    path = tmp_path_factory.mktemp("page") / "probe.html"
    path.write_text(render(probe_page(findings(made_up(folder=HOSTILE)), [shown], HOSTILE)))
    return path


@pytest.mark.parametrize("width", [390, 1400])
def test_it_opens_silently_and_is_no_wider_than_the_window(tab: Browser, page: Path, width: int) -> None:
    tab.open(page, width)
    assert tab.said == []
    assert tab.tell("document.documentElement.scrollWidth") <= width
    assert tab.tell("document.querySelectorAll('script, [onmouseover]').length") == 0


def test_a_token_that_moves_the_answer_is_coloured_and_underlined(tab: Browser, page: Path) -> None:
    tab.open(page, 1400)
    styles = tab.tell(
        "[...document.querySelectorAll('.sample pre span')].map(each => getComputedStyle(each))"
        ".map(each => [each.backgroundColor, each.borderBottomWidth])"
    )
    [(colour, line)] = styles
    assert colour not in ("rgba(0, 0, 0, 0)", "transparent") and line == "2px"
