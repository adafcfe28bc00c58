"""A small checkpoint that follows its policy."""

import pytest


@pytest.fixture(scope="session")
def checkpoint(expand_shape):
    from rlvr_vocab.evaluation.sampling import load_checkpoint

    return load_checkpoint(expand_shape("llama", size=None, multiplicity=3))


@pytest.fixture
def rows():
    return [{"prompt": [{"role": "user", "content": f"What is {n} + {n * n}?"}]} for n in (3, 40, 500)]
