"""Writes `final_model/`, and `final_adapter/` of an adapter, with model cards from `model_card.md.j2`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jinja2
from accelerate.utils import broadcast_object_list
from httpx import HTTPError
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError
from peft import PeftModel
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.utils.hub import hf_api

from rlvr_vocab import __version__
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.files import atomic_dir, read_json_if_there
from rlvr_vocab.record.files import FINAL_ADAPTER, FINAL_MODEL, SUMMARY, run_folder_of
from rlvr_vocab.record.manifest import set_aside, write_manifest
from rlvr_vocab.record.results import HeldOutMetric, ProblemResult, read_lines, read_thought_reading, recorded_grader
from rlvr_vocab.runs.folder import Run, results_file, system_prompt_used, tools_of
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.merge import MergeReport, merge_adapter

Card = dict[str, Any]
CARD = "README.md"
_TEMPLATE = Path(__file__).with_name("model_card.md.j2")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")


@peak_memory.phase("final_model")
def save_final_model(run: Run, trainer: RegionGRPOTrainer, steps: int, metric: HeldOutMetric) -> None:
    """Write the trained model with its card. An adapter is saved alone first, then merged into its base."""
    is_main, adapter = trainer.accelerator.is_main_process, isinstance(trainer.model, PeftModel)
    card = card_of_run(run.folder, run.settings.resolved, metric, adapter=adapter, steps=steps, links=True)
    saved = run.folder / (FINAL_ADAPTER if adapter else FINAL_MODEL)
    if is_main:
        _remove_previous(saved)
    with atomic_dir(saved) if is_main else nullcontext(saved) as folder:
        trainer.save_model(*broadcast_object_list([str(folder)]))  # called by all processes: each may hold a part
        trainer.accelerator.wait_for_everyone()
        if is_main:
            write_card(folder, card, alone=adapter)
            write_manifest(folder)
    trainer.accelerator.wait_for_everyone()
    if is_main and adapter:  # after the barrier: a long wait at it would time out
        _merge(run, saved, trainer.initial_model, card)


def _remove_previous(folder: Path) -> None:
    """Remove the folder that an earlier completion of this run wrote, or rename it if it has evaluations."""
    if (folder / "evaluation").is_dir():
        set_aside(folder, "earlier")
    elif folder.exists():
        shutil.rmtree(folder)


def _merge(run: Run, adapter: Path, base: Path, card: Card) -> None:
    out = run.folder / FINAL_MODEL
    _remove_previous(out)
    unset_hf_deepspeed_config()  # otherwise from_pretrained would shard the model over all processes

    def finish(folder: Path, report: MergeReport) -> None:
        write_card(folder, card, report)
        write_manifest(folder)

    # In float32, like a fully trained model: the saved weights are those that were evaluated.
    report = merge_adapter(adapter, out, base, finish=finish)
    run.console.print(*merge_report_lines(report, out, card), sep="\n", markup=False)


def merge_report_lines(report: MergeReport, out: Path, card: Card) -> Iterator[str]:
    """The lines of a merge report: the base, the largest logit difference, a note, and the folder."""
    yield (
        f"adapter merged into {report.base}: on a chat of {report.probe_tokens} tokens, logits of the merged folder, "
        f"reloaded in float32, differ by at most {report.difference:.1e} from the adapter on its base"
    )
    if card.get("quantized"):
        yield card["quantized"]
    yield f"{out}: the merged model in {report.dtype}"


def push_final_model(run: Run) -> None:
    """Upload `final_model/` to the hub where `training.push_to_hub` asks for it; a failure is only a warning."""
    grpo, folder = run.settings.training.grpo, run.folder / FINAL_MODEL
    if not grpo.get("push_to_hub"):
        return
    name, revision = grpo.get("hub_model_id") or Path(run.settings.exp_name).name, grpo.get("hub_revision")
    try:
        repo = hf_api().create_repo(name, private=grpo.get("hub_private_repo"), exist_ok=True).repo_id
        done = hf_api().upload_folder(
            repo_id=repo, folder_path=str(folder), commit_message="End of training", revision=revision
        )
    except (HfHubHTTPError, HTTPError, OSError, ValueError) as error:
        run.console.print(f"warning: complete, but not uploaded: {error}; hf upload {name} {folder}", markup=False)
    else:
        run.console.print(f"uploaded to {done}", markup=False)


# --- model cards ---


def card_of_run(
    folder: Path,
    config: Mapping[str, Any],
    metric: HeldOutMetric,
    *,
    adapter: bool,
    steps: int | None,
    at_end: bool = True,
    links: bool = False,
) -> Card:
    """The facts of a run on the card of its weights, for the template.

    `links`: whether to link model and problems on the hub; elsewhere, such a name could be a local path.
    """
    kwargs, names = config["model"]["model_kwargs"], [config[section]["name"] for section in ("model", "dataset")]
    on_hub = [name if links and _HUB_NAME.fullmatch(name) and not Path(name).exists() else None for name in names]
    functions = config["rewards"]["functions"]
    rewards = [f"{Path(each['name']).name} × {each.get('weight', 1):g}" for each in functions]
    bits = next((bits for bits in (8, 4) if kwargs.get(f"load_in_{bits}bit")), None)
    quantized = f"It was trained on the base in {bits} bit; the merged model is not rounded so." if bits else ""
    return {
        "name": str(config["exp_name"]),
        "adapter": adapter,
        "steps": steps,
        "measure": f"{metric.name}{metric.by}",
        "before": _measured(folder, "before", metric),
        "after": _measured(folder, "after", metric) if at_end else None,
        "rewards": ", ".join(rewards),  # without their folders
        "thoughts": [each["sentence"] for each in (read_thought_reading(folder) or {"rewards": ()})["rewards"]],
        "tools": ", ".join(tools_of(config)),
        "stages": [stage["name"] for stage in config.get("stages") or ()],
        "system_prompt": config["dataset"]["system_prompt"] if system_prompt_used(folder) else None,
        "quantized": quantized,
        "base_model": on_hub[0],
        "dataset": on_hub[1],
    }


def card_of_adapter(checkpoint: Path) -> Card:
    """The facts of an adapter's run, for its merged model; only the final adapter has `evaluation/after.jsonl`."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return {"name": "A merged model", "adapter": True}
    final, step = checkpoint.name == FINAL_ADAPTER, re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    steps = (read_json_if_there(folder / SUMMARY) or {}).get("steps") if final else int(step[1]) if step else None
    metric = HeldOutMetric.of(recorded_grader(folder))
    return card_of_run(folder, read_recorded(folder, resolve=True), metric, adapter=True, steps=steps, at_end=final)


def _measured(run_folder: Path, when: str, metric: HeldOutMetric) -> str | None:
    """The held-out metric of a run with the number of answers that have a score."""
    path = results_file(run_folder, when)
    results = read_lines(path, ProblemResult) if path.is_file() else []
    values = [answer.value for answer in results if answer.value is not None]
    return f"{metric.value(sum(values) / len(values))} on {pluralize(len(values), 'problem')}" if values else None


def write_card(folder: Path, card: Card, merge: MergeReport | None = None, *, alone: bool = False) -> None:
    """Write the card of a full model, or of an adapter (`alone`), where it replaces PEFT's empty template."""
    data = ModelCardData(
        base_model=card.get("base_model"),
        datasets=[card["dataset"]] if card.get("dataset") else None,
        library_name="peft" if alone else "transformers",
        pipeline_tag="text-generation",
        tags=["grpo", "rlvr", "trl", "rlvr-vocab"] if "rewards" in card else ["rlvr-vocab"],
    )
    layout = VocabLayout.load(folder) if not alone and (folder / LAYOUT_FILE).is_file() else None
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters |= {"code": _code, "plain": _plain}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(facts=card, version=__version__, layout=layout, merge=merge, alone=alone)
    ModelCard(without_secrets(f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n")).save(folder / CARD)


def _code(value: Any) -> str:
    """A value as a code span, safe from Markdown and HTML, also in a table."""
    text = visible_text(" ".join(str(value).split()))
    return "`{}`".format(text.replace("`", "'").replace("|", "\\|"))


def _plain(text: str) -> str:
    """A name, as a code span if it has characters that Markdown or HTML could interpret."""
    return text if re.fullmatch(r"[\w ,.:×+%-]*", text) else _code(text)
