"""What of the form of the reasoning rows is refused, or told, before torch is imported."""

import logging

import pytest

from rlvr_vocab.checks.model import check_adapter, check_vocabulary
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError


def model_of(*words):
    return read_settings("train", ["experiment=quickstart", *words]).model


def test_frozen_rows_take_no_noise():
    with pytest.raises(UserError, match=r"model.init_noise=0.1 with model.reasoning_rows=frozen"):
        check_vocabulary(model_of("model.reasoning_rows=frozen", "model.init_noise=0.1"))


@pytest.mark.parametrize("form", ["low_rank", "frozen"])
def test_all_rows_train_beside_an_adapter_as_rows_of_their_own_alone(form):
    words = ("model.lora.enabled=true", "model.lora.train_rows=all")
    with pytest.raises(UserError, match=f"train_rows=all with model.reasoning_rows={form}"):
        check_adapter(model_of(f"model.reasoning_rows={form}", *words))
    check_adapter(model_of("model.reasoning_rows=independent", *words))


@pytest.mark.parametrize(("words", "told"), [(("model.lora.enabled=true",), True), ((), False)])
def test_that_shared_rows_beside_an_adapter_are_independent_is_said(words, told, caplog):
    with caplog.at_level(logging.WARNING):
        check_adapter(model_of("model.reasoning_rows=shared", *words))
    assert ("copies are rows of their own" in caplog.text) == told
