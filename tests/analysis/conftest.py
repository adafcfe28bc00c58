"""A browser for whoever looks at a page in one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .browser import Browser, browser, chromium


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One of a real Chromium."""
    if chromium() is None:
        pytest.skip("no Chromium is installed")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
