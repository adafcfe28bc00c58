"""Runs made by hand."""

import pytest

from tests.compared_runs import write_run


@pytest.fixture
def made(tmp_path):
    """Makes the folder of a run by its name."""
    return lambda name, **given: write_run(tmp_path / name, **given)
