"""TRL's configuration with what the machine cannot do taken back."""

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.trainer import grpo_config


def arguments(tmp_path, **fields):
    return {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", **fields}


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fallback is for machines without bfloat16")
def test_bfloat16_is_taken_back_with_a_word_where_there_is_none(tmp_path, caplog):
    assert grpo_config(arguments(tmp_path, bf16=True)).bf16 is False
    assert "bf16: this machine" in caplog.text


def test_arguments_that_the_libraries_refuse_are_one_line(tmp_path):
    with pytest.raises(UserError, match=r"^--dataloader_prefetch_factor can only be set .*$"):
        grpo_config(arguments(tmp_path, bf16=False, dataloader_prefetch_factor=2))
