"""Writes `final_model/`, and `final_adapter/` where an adapter was trained."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from accelerate.utils import broadcast_object_list
from peft import PeftModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from rlvr_vocab.files import atomic_dir
from rlvr_vocab.record.files import FINAL_ADAPTER, FINAL_MODEL
from rlvr_vocab.record.manifest import set_aside, write_manifest
from rlvr_vocab.record.results import HeldOutMetric
from rlvr_vocab.runs.folder import Run
from rlvr_vocab.runs.model_card import CardFacts, card_of_run, quantized_note, write_adapter_card, write_card
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.merge import MergeReport, merge_adapter


@peak_memory.phase("final_model")
def save_final_model(run: Run, trainer: RegionGRPOTrainer, steps: int, measure: HeldOutMetric) -> None:
    """Write the trained model with its card; an adapter by itself first, then folded into its base.

    Args:
        measure: the figure of the held-out problems.

    Raises:
        UserError: the merged model is not the one that was trained; the adapter stays.
    """
    is_main, adapter = trainer.accelerator.is_main_process, isinstance(trainer.model, PeftModel)
    facts = card_of_run(run.folder, run.settings.resolved, measure, adapter=adapter, steps=f"{steps:,}")
    saved = run.folder / (FINAL_ADAPTER if adapter else FINAL_MODEL)
    with _replaced(saved) if is_main else nullcontext(saved) as folder:
        trainer.save_model(*broadcast_object_list([str(folder)]))  # by all processes: each may hold a part of it
        trainer.accelerator.wait_for_everyone()
        if is_main:
            (write_adapter_card if adapter else write_card)(folder, facts)
            write_manifest(folder)
    trainer.accelerator.wait_for_everyone()
    if is_main and adapter:  # past the barrier, where waiting for long would end the others
        _merge(run, saved, trainer.initial_model, facts)


@contextmanager
def _replaced(folder: Path) -> Iterator[Path]:
    remove_previous_output(folder)
    with atomic_dir(folder) as partial:
        yield partial


def remove_previous_output(folder: Path) -> None:
    """Remove the folder of an earlier end of this run; where it has been evaluated, rename it."""
    if (folder / "evaluation").is_dir():
        set_aside(folder, "earlier")
    elif folder.exists():
        shutil.rmtree(folder)


def _merge(run: Run, adapter: Path, base: Path, facts: CardFacts) -> None:
    out = run.folder / FINAL_MODEL
    remove_previous_output(out)
    unset_hf_deepspeed_config()  # with it, models are loaded by all processes together, each its part

    def finish(folder: Path, report: MergeReport) -> None:
        write_card(folder, facts, report)
        write_manifest(folder)

    # In float32, like a model that was trained whole: the measured weights are kept.
    report = merge_adapter(adapter, out, base, finish=finish)
    for line in merge_report_lines(report, out, quantized_note(facts)):
        run.console.print(line, markup=False)


def merge_report_lines(report: MergeReport, out: Path, note: str) -> Iterator[str]:
    """The report of a merge in lines: the base, the largest differences of logits, a note, and the folder."""
    yield (
        f"adapter folded into {report.base}; largest difference of a logit on a chat of {report.probe_tokens} tokens:"
    )
    yield f"  {report.merging:.1e} between the adapter on its base and the merged folder, loaded anew in float32"
    if report.rounding is not None:
        yield (
            f"  {report.rounding.largest:.1e} by rounding to {report.dtype}, mean KL {report.rounding.mean_kl:.1e} "
            f"nats a token; {report.training.largest:.1e} and {report.training.mean_kl:.1e} by training"
        )
    if note:
        yield note
    yield f"{out}: the merged model in {report.dtype}"
