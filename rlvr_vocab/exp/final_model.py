"""What a run leaves to be served: `final_model/`, and `final_adapter/` where an adapter was trained."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from peft import PeftModel
from rich.console import Console
from transformers.trainer import TRAINING_ARGS_NAME

from rlvr_vocab.atomic_folder import make_readable
from rlvr_vocab.exp.card_facts import FINAL_ADAPTER, CardFacts, measured
from rlvr_vocab.exp.merge_words import report_lines
from rlvr_vocab.exp.model_card import quantized_note, write_adapter_card, write_card
from rlvr_vocab.exp.typed_sections import RunSettings
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.merge import merge_adapter

FINAL_MODEL = "final_model"


def save_final_model(trainer: RegionGRPOTrainer, settings: RunSettings, steps: int, console: Console) -> None:
    """Write what was trained, whole and with its card; an adapter by itself first, then folded into its base.

    Raises:
        UserError: the merged model is not the one that was trained; the adapter stays.
    """
    run_folder = settings.output_dir
    facts = CardFacts(
        settings.resolved,
        adapter=isinstance(trainer.model, PeftModel),
        steps=f"{steps:,}",
        before=measured(run_folder, "before"),
        after=measured(run_folder, "after"),
    )
    saved = run_folder / (FINAL_ADAPTER if facts.adapter else FINAL_MODEL)
    trainer.save_model(str(saved))
    if trainer.accelerator.is_main_process:
        (saved / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # a pickle, of no use to whoever serves the model
        make_readable(saved)
        if facts.adapter:
            write_adapter_card(saved, facts)
            _merge(saved, trainer.initial_model, run_folder / FINAL_MODEL, facts, console)
        else:
            write_card(saved, facts)
    trainer.accelerator.wait_for_everyone()


def _merge(adapter: Path, base: Path, out: Path, facts: CardFacts, console: Console) -> None:
    if out.exists():  # of an earlier end of this run, which was interrupted before its summary
        shutil.rmtree(out)
    # In float32, like a model that was trained whole: what was measured is what is kept.
    report = merge_adapter(
        adapter, out, base, torch.float32, finish=lambda folder, report: write_card(folder, facts, report)
    )
    for line in report_lines(report, out, quantized_note(facts)):
        console.print(line, markup=False)
