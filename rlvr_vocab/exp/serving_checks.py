"""What `generate` and `merge` refuse before torch is imported: a checkpoint without a model in it, a wrong word."""

from __future__ import annotations

from pathlib import Path

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.checks import check_positive, check_serving_temperature
from rlvr_vocab.exp.model_folder import check_adapter_folder, check_checkpoint_folder, check_folder
from rlvr_vocab.exp.output_folder import check_new_folder
from rlvr_vocab.exp.prompt_file import check_prompt_file
from rlvr_vocab.exp.typed_sections import GenerateSettings, MergeSettings
from rlvr_vocab.vocab.adapter_base import ADAPTER_CONFIG, is_adapter


def check_generate(settings: GenerateSettings) -> None:
    check_checkpoint_folder(settings.checkpoint, settings.base)
    check_positive({"max_new_tokens": settings.max_new_tokens, "batch_size": settings.batch_size})
    check_serving_temperature(settings.temperature)
    if not 0 < settings.top_p <= 1:
        raise UserError(f"top_p={settings.top_p}: must be above 0 and at most 1")
    if (settings.prompt is None) == (settings.prompts is None):
        raise UserError('give either prompt="…" or prompts=FILE')
    if settings.prompt is not None and not settings.prompt.strip():
        raise UserError('prompt is empty: give it as prompt="…"')
    if settings.prompts is not None:
        check_prompt_file(settings.prompts)


def check_merge(settings: MergeSettings) -> None:
    check_new_folder(settings.out, "out")
    folder = settings.checkpoint
    if is_adapter(folder):
        check_adapter_folder(folder, settings.base)
        return
    inside = _adapters_inside(folder)
    if inside:
        raise UserError(f"checkpoint={folder}: no adapter itself; did you mean {inside[0]}?")
    check_folder(folder, f"checkpoint={folder}")
    raise UserError(f"checkpoint={folder}: a whole model already, no adapter (no {ADAPTER_CONFIG}): nothing to merge")


def _adapters_inside(folder: Path) -> list[Path]:
    """Adapters in a run's folder: the final one first, then the newest."""
    found = [path for pattern in ("*", "stages/*/*") for path in folder.glob(f"{pattern}/{ADAPTER_CONFIG}")]
    newest = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    return sorted((path.parent for path in newest), key=lambda path: path.name != "final_adapter")
