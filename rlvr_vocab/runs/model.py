"""The model of a run: its base (named, or created here), warm-up, expansion and loading arguments."""

from __future__ import annotations

import copy
import hashlib
import json
import multiprocessing
import os
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from rich.console import Console
from transformers.utils import get_json_schema

from rlvr_vocab.config.sections import PATTERN, DatasetSettings, ModelSettings, RunSettings, stages_of
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.device import has_bf16
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.evaluate import accuracy_of, evaluate_checkpoint
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings
from rlvr_vocab.files import atomic_dir, fingerprint_of, make_readable, read_json_if_there
from rlvr_vocab.record.files import INITIAL_MODEL
from rlvr_vocab.record.manifest import problem_with, write_manifest
from rlvr_vocab.rewards.grader import Grader
from rlvr_vocab.runs.folder import Run, only_writer, start_run_folder
from rlvr_vocab.runs.problems import RunProblems, asks_to_think, require_chat_template, warmup_form
from rlvr_vocab.runs.rewards import ROWS_TRIED, grader_of_warmup, reward_context
from rlvr_vocab.runs.tools import ToolUse, tools_of_run
from rlvr_vocab.terminal import make_console, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.tools.format import ToolFormat
from rlvr_vocab.tools.functions import offered_tools
from rlvr_vocab.training.arguments import asks_for_bf16
from rlvr_vocab.training.metrics.step_clock import peak_memory
from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE, CONTEXT, vocabulary_texts, write_tiny_model
from rlvr_vocab.training.models.warmup import warm_up
from rlvr_vocab.vocab.expand import (
    Expansion,
    ExpansionPlan,
    plan_expansion,
    read_base,
    read_with_think_tags,
    require_same_expansion,
    write_expansion,
)
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.refuse_off_policy import truncation_of
from rlvr_vocab.vocab.tokenizer import chat_texts, find_turn_ids, prompt_is_thinking, template_text, token_ids
from rlvr_vocab.vocab.weights import NO_CODE

T = TypeVar("T")
_SHOWN = 10  # of the tokens that words or a pattern choose
_OUTCOME = "warmup.json"
_PACKAGES = ("torch", "transformers", "trl", "tokenizers")  # their versions determine the bytes of a created model
# Environment variables by which a launcher's processes find each other.
_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "NODE_RANK", "MASTER_", "FSDP_", "ROLE_", "TORCHELASTIC_")
# Arguments of `from_pretrained` that locate a base model; all others apply to loading it for training.
_SOURCE_ARGUMENTS = (
    *("revision", "token", "trust_remote_code", "cache_dir", "local_files_only", "force_download"),
    *("proxies", "subfolder"),
)


def plan_model(settings: RunSettings, problems: RunProblems, console: Console) -> ExpansionPlan:
    """The base model of a run, with its warm-up if configured, and its expansion; writes nothing in the run."""
    model, dataset = settings.model, settings.dataset
    if model.needs_adapter is not None and model.lora.enabled is None:
        console.print(f"{model.needs_adapter}: the weights themselves cannot train, so LoRA is switched on")
    thinks = any(
        asks_to_think(rows[:ROWS_TRIED]["prompt"], model.think_tags, stage.run.rewards, rows[0])
        for stage, rows in zip(stages_of(settings), problems.by_stage, strict=True)
    )
    with PartialState().main_process_first():  # the others find a created model in the cache
        plan = expansion_plan(model, settings.seed, dataset, thinks=thinks)
    require_chat_template(plan)
    if settings.uses_tools:
        ToolFormat(copy.copy(plan.tokenizer), plan.layout, {})  # refuses a template that shows no tools
    warms_up = settings.warmup.max_steps > 0
    for rows in (problems.held_out, *(problems.by_stage if warms_up else ())):  # all others are rendered later
        chat_texts(plan.tokenizer, rows["prompt"][:] if rows is not None else [])
    if warms_up:
        base = on_main_process(base_model, settings, problems.train)
        plan = expansion_plan(model, settings.seed, dataset, thinks=thinks, base=base)
    if prompt_is_thinking(plan.tokenizer, plan.layout):
        console.print("the chat template opens the thinking, in final_model too; dataset.open_thinking=model avoids it")
    return plan


@peak_memory.phase("expansion")
def start_run(settings: RunSettings, plan: ExpansionPlan, console: Console) -> Run:
    """Create the folder of the run and write its initial model; on resume the existing one is used."""
    run_folder, state = settings.output_dir, PartialState()
    folder = run_folder / INITIAL_MODEL
    if state.is_main_process:
        start_run_folder(settings)
        problem = problem_with(folder) if folder.exists() else None
        if problem is not None:
            raise UserError(f"{folder}: {problem}; delete this folder to create it again from {plan.base}")
        if not folder.exists():
            with atomic_dir(folder) as partial:
                write_expansion(plan, partial)
                write_manifest(partial)
        elif plan.base == settings.model.name:  # a repeated warm-up may round differently
            require_same_expansion(plan, folder)
    state.wait_for_everyone()
    layout = VocabLayout.load(folder)
    copies = pluralize(layout.size, "reasoning token")
    by_default = settings.model.source_ids is None and layout.size < layout.standard_size
    if layout.size and (settings.model.chooses_by_text or by_default):
        texts = [repr(plan.tokenizer.decode([token_id])) for token_id in layout.source_ids[:_SHOWN]]
        copies += f" (of {', '.join(texts)}{', …' * (layout.size > _SHOWN)}"
        copies += f"{'; model.source_ids chooses others' * by_default})"
    console.print(f"model: {layout.standard_size} standard tokens and {copies}, in {folder}")
    return Run(settings, layout, console)


# --- the base and its expansion ---


def untrained_base(model: ModelSettings, seed: int, dataset: DatasetSettings | None = None) -> str:
    """Hub name or folder of the model before any warm-up: as named, or created once on this machine."""
    if model.tiny is None:
        return model.name
    texts = vocabulary_texts(*(() if dataset is None else (dataset.system_prompt, dataset.tasks, dataset.generator)))
    shape = {**asdict(model.tiny), "context": CONTEXT, "template": CHAT_TEMPLATE}
    folder = _cached("tiny", {"shape": shape, "texts": texts, "tags": model.think_tags, "seed": seed})
    if not folder.exists():
        with atomic_dir(folder, keep_existing=True) as unfinished:
            write_tiny_model(unfinished, model.tiny, texts, model.think_tags, seed)
    return str(folder)


def expansion_plan(
    model: ModelSettings,
    seed: int,
    dataset: DatasetSettings | None = None,
    *,
    thinks: bool = False,
    base: str | None = None,
) -> ExpansionPlan:
    """The expansion of `base`, by default the model before any warm-up; errors name the keys of the model.

    `open_thinking=auto` leaves the template of a model without copies alone, unless that `thinks` too.
    """
    base = base or untrained_base(model, seed, dataset)
    open_thinking = "auto" if dataset is None else dataset.open_thinking
    if open_thinking == "auto" and not (thinks or model.adds_copies):
        open_thinking = "model"
    source_ids: Any = model.source_ids
    if model.chooses_by_text:
        _, tokenizer = read_base(base, {**NO_CODE, **source_kwargs(model, base)})
        pattern = isinstance(source_ids, str)
        source_ids = token_ids(tokenizer, re.compile(source_ids.removeprefix(PATTERN)) if pattern else source_ids)
    expansion = Expansion(
        size=None if model.reasoning_vocab_size == "full" else model.reasoning_vocab_size,
        multiplicity=model.reasoning_multiplicity,
        source_ids=source_ids,
        mode=model.reasoning_mode,
        preserve_odds=model.preserve_odds,
        think_tags=model.think_tags,
        init_noise=model.init_noise,
        reasoning_rank=model.reasoning_rank,
        open_thinking=open_thinking,
        chat_template=template_text(model.chat_template),
        seed=seed,
    )
    return plan_expansion(base, expansion, source_kwargs(model, base))


def source_kwargs(model: ModelSettings, base: str) -> dict[str, Any]:
    """Arguments of `from_pretrained` that locate the base; none for a created one."""
    given = model.from_pretrained_kwargs if base == model.name else {}
    return {key: value for key, value in given.items() if key in _SOURCE_ARGUMENTS}


def loading_kwargs(model: ModelSettings, *, use_cpu: bool = False) -> dict[str, Any]:
    """Arguments of `from_pretrained` for the expanded checkpoint."""
    passed = {key: value for key, value in model.from_pretrained_kwargs.items() if key not in _SOURCE_ARGUMENTS}
    if use_cpu and model.bits is not None:
        passed.setdefault("device_map", {"": "cpu"})  # quantized weights stay where they load, by default on a GPU
    return {"use_safetensors": True, **passed, "dtype": model.loaded_dtype}


def _cached(kind: str, key: dict[str, Any]) -> Path:
    """The folder of a model created on this machine, in `RLVR_VOCAB_CACHE` or the user's cache folder."""
    given = os.environ.get("RLVR_VOCAB_CACHE")
    cache = Path(given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr-vocab")
    content = json.dumps({**key, "versions": [version(package) for package in _PACKAGES]}, sort_keys=True, default=str)
    return cache / kind / hashlib.sha256(content.encode()).hexdigest()[:16]


# --- the warm-up ---


@peak_memory.phase("warmup")
def base_model(settings: RunSettings, train: Dataset) -> str:
    """The folder of the warmed-up model, created once per configuration; waits for another run that creates it."""
    quiet_libraries()  # this may be a process of its own
    console = make_console()
    base, form = untrained_base(settings.model, settings.seed, settings.dataset), warmup_form(settings, train)
    folder = _cached("warmup", _warmup_key(base, settings, train, form))
    unfinished, lock = (folder.with_name(f"{folder.name}.{suffix}") for suffix in ("unfinished", "lock"))
    if unfinished.exists() or not folder.exists():
        waits = "warm-up: waiting for the same warm-up: "
        with only_writer(lock, "RLVR_VOCAB_CACHE", lambda holder: console.print(waits + holder, markup=False)):
            if not folder.exists():
                made = _run_warmup(base, unfinished, settings, train, form, console)
                make_readable(made)
                made.replace(folder)
            if unfinished.exists():
                shutil.rmtree(unfinished)
        with suppress(OSError):  # another holds it now
            lock.rmdir()
    outcome = json.loads((folder / _OUTCOME).read_text(encoding="utf-8"))
    reached = "" if outcome["accuracy"] is None else f", sampled accuracy {outcome['accuracy']:.0%} at the last check"
    console.print(f"warm-up: {pluralize(outcome['steps'], 'supervised step')}{reached}")
    return str(folder)


def warmup_steps(plan: ExpansionPlan) -> int | None:
    """Steps of the warm-up that made the base, in this run or an earlier one; None without a warm-up."""
    return (read_json_if_there(Path(plan.base) / _OUTCOME) or {}).get("steps")


def _warmup_key(base: str, settings: RunSettings, train: Dataset, form: str) -> dict[str, Any]:
    warmup, model, sampling = settings.warmup, settings.model, settings.training.grpo
    solutions = map(cell_text, train["solution"])
    key: dict[str, Any] = {
        "base": (base, source_kwargs(model, base), template_text(model.chat_template), model.think_tags),
        "warmup": asdict(warmup),
        "problems": fingerprint_of(zip(train["prompt"], train["reasoning"], solutions, strict=True)),
        "form": form,
        "tools": _schemas(settings),
        "seed": settings.seed,
        "bf16": asks_for_bf16(sampling) and has_bf16(bool(sampling.get("use_cpu"))),
    }
    if warmup.until_accuracy is not None:
        key["limit"], key["temperature"] = sampling["max_completion_length"], sampling["temperature"]
        key |= truncation_of(sampling)
        key["grader"] = asdict(grader_of_warmup(settings))
    return key


def _run_warmup(
    base: str, unfinished: Path, settings: RunSettings, train: Dataset, form: str, console: Console
) -> Path:
    """Warm the model up; returns its folder inside `unfinished`, which also holds the checkpoints."""
    warmup, tags, grpo = settings.warmup, settings.model.think_tags, settings.training.grpo
    use_cpu = bool(grpo.get("use_cpu"))
    checked = min(warmup.num_check_problems, len(train) // 2) if warmup.until_accuracy is not None else 0
    check_rows = [train[index] for index in range(checked)]
    rows = train.select(range(checked, len(train)))
    schemas = _schemas(settings)
    shown = {"tools": json.dumps(schemas)} if schemas else {}
    worked = [{"prompt": row["prompt"], "completion": worked_turns(row, form, tags), **shown} for row in rows]
    model, tokenizer = read_with_think_tags(
        base, tags, template_text(settings.model.chat_template), source_kwargs(settings.model, base)
    )
    grader = Grader(grader_of_warmup(settings), reward_context(settings))
    sampling = SamplingSettings.of_training(grpo)

    def measure() -> float | None:
        open_id, close_id = (tokenizer.convert_tokens_to_ids(tag) for tag in tags)
        layout = VocabLayout(len(tokenizer), (), open_id, close_id, find_turn_ids(tokenizer, tags), ())
        use = ToolUse(settings.tools, settings.environment, grpo.get("max_tool_calling_iterations"), "keep")
        checkpoint = Checkpoint(tokenizer, layout, tools=use.loop(copy.copy(tokenizer), layout), model=model)
        return accuracy_of(evaluate_checkpoint(checkpoint, check_rows, grader, sampling))

    with progress_bar(console, "warm-up", warmup.max_steps) as display:

        def show(step: int, total: int, figures: Mapping[str, float]) -> None:
            display.update(step, total, figures={name: f"{value:.3f}" for name, value in figures.items()})

        outcome = warm_up(
            *(model, tokenizer, unfinished, worked, warmup, settings.seed, measure, show),
            use_cpu=use_cpu,
            bf16=asks_for_bf16(grpo) and has_bf16(use_cpu),
        )
        display.update(outcome.steps, outcome.steps)
    made = unfinished / "model"
    model.save_pretrained(made)
    tokenizer.save_pretrained(str(made))
    (made / _OUTCOME).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    return made


def _schemas(settings: RunSettings) -> list[dict[str, Any]]:
    """The JSON schemas of the tools of a run, as prompts show them."""
    return [get_json_schema(tool) for tool in offered_tools(**tools_of_run(settings)) or ()]


def worked_turns(row: Mapping[str, Any], form: str, tags: tuple[str, str]) -> list[dict[str, Any]]:
    """The messages of a worked answer: a text in `form`, or as they are given, `reasoning_content` between the tags."""
    if not isinstance(row["reasoning"], list):
        turn = form.format(reasoning=row["reasoning"], answer=cell_text(row["solution"]))
        return [{"role": "assistant", "content": turn}]
    turns = [dict(message) for message in row["reasoning"]]
    for each in turns:
        thought = each.pop("reasoning_content", None)
        each["content"] = ("" if thought is None else f"{tags[0]}{thought}{tags[1]}") + (each.get("content") or "")
    return turns


def on_main_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a module-level function once, in a child outside the process group if there are several processes."""
    state = PartialState()
    if state.num_processes == 1:
        return function(*arguments)
    [result] = broadcast_object_list([_in_a_child(function, arguments) if state.is_main_process else None])
    return result


def _in_a_child(function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    launcher = [name for name in os.environ if name.startswith((*_LAUNCHER, "ACCELERATE_")) and "USE_CPU" not in name]
    taken = {name: os.environ.pop(name) for name in launcher}
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        os.environ.update(taken)
