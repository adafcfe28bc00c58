"""What a model folder is to stock classes: the digest of every tensor, and the logits of some ids.

`merge_check` runs this file as a script in a process of its own, which knows nothing of this package: what a merge is
proven by must not lean on our layers. Hence no import from `rlvr_vocab` here.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

LOGITS = "logits"


@torch.no_grad()
def logits_of(model: Any, ids: list[int], arithmetic: torch.dtype) -> torch.Tensor:
    """`(T, V)` float64 logits, computed in `arithmetic` with the weights as they are; the model is float32 after it."""
    model.eval().to(arithmetic)
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    model.float()
    return logits


def digests_of(model: Any) -> dict[str, str]:
    """SHA-256 of every tensor of a float32 model, by its name."""
    tensors = model.state_dict().items()
    return {name: hashlib.sha256(tensor.contiguous().numpy()).hexdigest() for name, tensor in tensors}


def main(folder: str, answer: str, arithmetic: str, ids: str) -> None:
    """Load `folder` in float32, whatever it is stored in, and write digests and logits to the file `answer`."""
    as_data = {"use_safetensors": True, "trust_remote_code": False}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **as_data)
    digests = digests_of(model)
    logits = logits_of(model, json.loads(ids), getattr(torch, arithmetic))
    save_file({LOGITS: logits}, Path(answer), metadata=digests)


if __name__ == "__main__":
    main(*sys.argv[1:])
