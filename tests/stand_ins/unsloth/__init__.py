"""Stands in for Unsloth: its two calls, recorded and done with Transformers and PEFT, and what its import does to TRL.

`UNSLOTH_STAND_IN` names the file for the record; `UNSLOTH_STAND_IN_FAILS` makes the import fail as it does without a
GPU.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

if os.environ.get("UNSLOTH_STAND_IN_FAILS"):
    raise NotImplementedError("Unsloth cannot find any torch accelerator? You need a GPU.")

record: dict[str, Any] = {
    "imported_before": sorted({"transformers", "peft", "trl"} & set(sys.modules)),
}

import peft  # noqa: E402  # what was imported before is part of the record
import transformers  # noqa: E402
import trl  # noqa: E402
import trl.trainer.grpo_trainer  # noqa: E402


class UnslothGRPOTrainer(trl.GRPOTrainer):
    """The real one computes log-probs and loss in functions of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError("this trainer knows no region policy")


trl.GRPOTrainer = trl.trainer.GRPOTrainer = trl.trainer.grpo_trainer.GRPOTrainer = UnslothGRPOTrainer


class FastLanguageModel:
    @staticmethod
    def from_pretrained(**kwargs: Any) -> tuple[Any, Any]:
        note("from_pretrained", kwargs)
        folder = kwargs["model_name"]
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=kwargs["dtype"])
        return model, transformers.AutoTokenizer.from_pretrained(folder)

    @staticmethod
    def get_peft_model(model: Any, **kwargs: Any) -> Any:
        note("get_peft_model", kwargs)
        ours = {"use_gradient_checkpointing", "random_state", "max_seq_length"}
        config = peft.LoraConfig(
            task_type="CAUSAL_LM", **{key: value for key, value in kwargs.items() if key not in ours}
        )
        return peft.get_peft_model(model, config)


def note(call: str, kwargs: dict[str, Any]) -> None:
    record[call] = {
        key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in kwargs.items()
    }
    Path(os.environ["UNSLOTH_STAND_IN"]).write_text(json.dumps(record))
