"""Refuses a base model whose weights are quantized already."""

from __future__ import annotations

from typing import Any

from rlvr_vocab.errors import UserError


def refuse_quantized(base: str, quantization: Any) -> None:
    """Rows are copied in the base's own type, and a trained adapter is merged into weights of that type.

    Args:
        quantization: `quantization_config` of the base's configuration; None where it has none.
    """
    if quantization is not None:
        raise UserError(f"{base} is quantized already: name the model that it was made from", about="quantized base")
