"""What of the rank of the reasoning rows is refused before torch is imported."""

import pytest

from rlvr_vocab.config.checks.model import check_adapter, check_vocabulary
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError


def model_of(*words):
    return read_settings("train", ["experiment=quickstart", *words]).model


def test_rows_of_rank_0_take_no_noise():
    with pytest.raises(UserError, match=r"model.init_noise=0.1 with model.reasoning_rank=0"):
        check_vocabulary(model_of("model.reasoning_rank=0", "model.init_noise=0.1"))


@pytest.mark.parametrize("rank", [16, 0])
def test_all_rows_train_beside_an_adapter_as_rows_of_their_own_alone(rank):
    words = ("model.lora.enabled=true", "model.lora.train_rows=all")
    with pytest.raises(UserError, match=f"train_rows=all with model.reasoning_rank={rank}"):
        check_adapter(model_of(f"model.reasoning_rank={rank}", *words))
    check_adapter(model_of("model.reasoning_rank=null", *words))
