"""`rlvr-vocab merge`: folds an adapter into its base, as a model folder that any tool loads."""

from __future__ import annotations

import torch

from rlvr_vocab.exp.card_facts import facts_of_adapter
from rlvr_vocab.exp.merge_words import report_lines
from rlvr_vocab.exp.model_card import quantized_note, write_card
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.screen import make_console
from rlvr_vocab.exp.typed_sections import LONG_DTYPE_NAMES, MergeSettings
from rlvr_vocab.vocab.merge import merge_adapter


def run(settings: MergeSettings) -> int:
    quiet_libraries()
    console = make_console()
    facts = facts_of_adapter(settings.checkpoint)
    report = merge_adapter(
        settings.checkpoint,
        settings.out,
        settings.base,
        None if settings.dtype == "auto" else getattr(torch, LONG_DTYPE_NAMES[settings.dtype]),
        finish=lambda folder, report: write_card(folder, facts, report),
    )
    for line in report_lines(report, settings.out, quantized_note(facts)):
        console.print(line, markup=False)
    return 0
