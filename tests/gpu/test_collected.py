"""What `make test-gpu` runs is there to be run, on whatever machine: it is collected, and its fixtures are found."""

import re

import pytest

from .conftest import HERE, run_python


@pytest.mark.slow
def test_every_test_is_set_up_or_skipped_with_a_word():
    done = run_python("-m", "pytest", str(HERE), "-m", "gpu", "--setup-plan", "-rs", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-3000:]
    collected = re.search(r"collected (\d+) items", done.stdout)
    assert collected is not None and int(collected[1]) > 20
    words = re.findall(r"^SKIPPED \[\d+\] \S+ (.+)$", done.stdout, re.MULTILINE)
    assert all(re.search("needs? a CUDA GPU|is not installed here", each) for each in words)
