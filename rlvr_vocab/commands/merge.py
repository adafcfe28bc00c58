"""`rlvr-vocab merge`: merges an adapter into its base and writes a model folder for any tool."""

from __future__ import annotations

from rlvr_vocab.config.command_settings import MergeSettings
from rlvr_vocab.config.sections import LONG_DTYPE_NAMES
from rlvr_vocab.runs.final_model import card_of_adapter, merge_report_lines, write_card
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.vocab.merge import merge_adapter


def run(settings: MergeSettings) -> int:
    quiet_libraries()
    console = make_console()
    card = card_of_adapter(settings.checkpoint)
    report = merge_adapter(
        settings.checkpoint,
        settings.out,
        settings.base,
        LONG_DTYPE_NAMES.get(settings.dtype, settings.dtype),
        finish=lambda folder, report: write_card(folder, card, report),
    )
    console.print(*merge_report_lines(report, settings.out, card), sep="\n", markup=False)
    return 0
