"""The folder that a trainer begins with: an expanded one as it stands, or one that is made of any other model."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import INITIAL_MODEL
from rlvr_vocab.vocab.expand import Expansion, plan_expansion, require_same_expansion, write_expansion
from rlvr_vocab.vocab.layout import LAYOUT_FILE
from rlvr_vocab.vocab.weights import refuse_invalid_generation_config


def initial_folder(
    model: str | Path | PreTrainedModel,
    output_dir: str | Path,
    expansion: Expansion | None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Path:
    """The expanded folder of a model.

    Args:
        model: a folder written by `expand`, which is returned; a hub name, another folder or a loaded model, which is
            expanded into `output_dir/initial_model`, or taken from there where that was done before.
        expansion: what is added; None for a baseline, without a reasoning vocabulary and with the template as it is.
        tokenizer: the model's own, whose chat template is taken; needed with a loaded model.

    Raises:
        UserError: the folder there was made of something else, or one that is expanded is to be expanded again.
    """
    if not isinstance(model, PreTrainedModel) and (Path(model) / LAYOUT_FILE).is_file():
        if expansion is not None:
            raise UserError(f"{model} is an expanded model already: leave out reasoning_vocab_size and expansion")
        refuse_invalid_generation_config(model)
        return Path(model)
    wanted = expansion or Expansion(open_thinking="model")
    if tokenizer is not None and wanted.chat_template is None:
        wanted = replace(wanted, chat_template=tokenizer.chat_template)
    folder = Path(output_dir) / INITIAL_MODEL
    with PartialState().main_process_first(), tempfile.TemporaryDirectory() as saved:
        plan = plan_expansion(_base(model, tokenizer, Path(saved)), wanted)
        if not folder.is_dir():
            write_expansion(plan, folder)
        require_same_expansion(plan, folder)
    return folder


def _base(model: Any, tokenizer: PreTrainedTokenizerBase | None, folder: Path) -> str:
    """Name or folder of the model; a loaded one is saved for the moment."""
    if not isinstance(model, PreTrainedModel):
        return str(model)
    if tokenizer is None:
        raise UserError("a loaded model needs processing_class=…, its tokenizer")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
