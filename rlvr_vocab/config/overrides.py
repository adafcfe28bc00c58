"""Command-line words -> Hydra overrides, every key and choice checked."""

import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rlvr_vocab.config.command_table import COMMANDS
from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.config.recorded import escaped
from rlvr_vocab.config.sections import TrainingSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.nearest import nearest_and_all, nearest_keys

# Fields of GRPOConfig that another key decides, and what beginners type.
RENAMED = {
    "evaluation_strategy": "training.eval_strategy",
    "max_new_tokens": "training.max_completion_length",
    "max_length": "training.max_prompt_length and training.max_completion_length",
    "lr": "training.learning_rate",
    "batch_size": "training.per_device_train_batch_size",
    "report_to": "logging=wandb, logging=offline or logging=disabled (logging.enabled and logging.mode)",
    "output_dir": "output_dir",
    "model_init_kwargs": "model.model_kwargs",
    "overwrite_output_dir": "overwrite",
    "logging_dir": "output_dir",
    "reward_weights": "the weight of each of rewards.functions",
    "run_name": "exp_name",
    "project": "logging.project",
    "do_eval": "training.eval_steps",
    "seed": "seed",
    "data_seed": "seed",
    "use_transformers_paged": "training.use_transformers_continuous_batching",
    "vllm_importance_sampling_cap": "training.vllm_importance_sampling_clip_max",
    "chat_template_kwargs": "model.chat_template or dataset.open_thinking, which held-out problems are asked by too",
}

# Why nothing would read a field of GRPOConfig, or why it would end a run, and the fields of which that holds.
REASONS = {
    "a run uploads nothing: hf upload NAME FOLDER takes its final_model": (
        "push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision "
        "log_completions_hub_repo"
    ),
    "held-out problems are answered under the region policy, one answer each": (
        "per_device_eval_batch_size num_generations_eval prediction_loss_only eval_accumulation_steps "
        "eval_do_concat_batches eval_use_gather_object batch_eval_metrics include_for_metrics bf16_full_eval "
        "fp16_full_eval label_names"
    ),
    "a run is spread by accelerate launch --config_file accelerate_configs/…, see docs/distributed.md": (
        "fsdp fsdp_config deepspeed parallelism_config"
    ),
    "runs are logged to W&B": "trackio_space_id trackio_bucket_id trackio_static_space_id",
    "problems come in groups and in seeded order": "train_sampling_strategy length_column_name",
    "the reference stays the model before training": "ref_model_mixup_alpha ref_model_sync_steps",
    "there are no tools to call": "max_tool_calling_iterations",
    "problems are text": "log_multimodal",
    "GRPO's loss has no labels": "label_smoothing_factor",
    "reward functions are given every column": "remove_unused_columns",
    "the command says what is done": "do_train",
    "training always samples, as do_sample=true says": "do_sample",
    "rlvr-vocab evaluate and generate do that": "do_predict",
    "the launcher tells each process its rank": "local_rank",
}
UNREAD = {name: why for why, names in REASONS.items() for name in names.split()}


def removed_key_line(key: str) -> str | None:
    """One line for a training key that is not used here, with its section or without; None for any other key."""
    section, _, name = key.rpartition(".")
    if section not in ("", "training"):
        return None
    if name in RENAMED:
        return f"{key} is not used here: set {RENAMED[name]}"
    if name in UNREAD:
        return f"{key} is not used here: {UNREAD[name]}"
    return None


NOT_KEYS = ("resolved", "training.grpo")
TEXT = {str, Path, type(None)}
REFUSED_FIELDS = tuple(name for name in GRPO_FIELDS if removed_key_line(name) is not None)


@dataclass(frozen=True)
class KnownKeys:
    """sections: keys that hold keys; leaves: key -> annotation of its value; free: anything below goes."""

    command: str
    sections: frozenset[str]
    leaves: Mapping[str, Any]
    free: frozenset[str]

    def check(self, key: str, where: str = "") -> None:
        """Raises UserError where `key` is unknown, with the nearest known one."""
        if key in self.sections or key in self.leaves or self.is_free(key):
            return
        removed = removed_key_line(key)
        if removed and self.command in ("train", "quickstart"):
            raise UserError(removed + where)
        nearest = nearest_keys(key, [*self.leaves, *self.sections])
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "see"
        listing = "" if nearest else f" rlvr-vocab {self.command} --help"
        raise UserError(f"unknown key {key}{where}; {hint}{listing}")

    def is_free(self, key: str) -> bool:
        parts = key.split(".")
        return any(".".join(parts[:depth]) in self.free for depth in range(1, len(parts)))

    def takes_text(self, key: str, value: str) -> bool:
        """Whether the value is plain text, whatever characters it holds; in brackets it is a list where that may be."""
        kinds = set(alternatives(self.leaves.get(key)))
        lists = {kind for kind in kinds if get_origin(kind) is tuple}
        return bool(kinds & {str, Path}) and kinds - lists <= TEXT and not (lists and value.startswith("["))

    def unknown_in(self, config: Mapping[str, Any]) -> Iterator[str]:
        """The dotted keys of a composed configuration that nothing reads."""
        for key in dotted_keys(config, self.sections):
            if key not in self.sections and key not in self.leaves and not self.is_free(key):
                yield key


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def dotted_keys(config: Mapping[str, Any], sections: frozenset[str], prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        key = f"{prefix}{name}"
        yield key
        if key in sections and isinstance(value, Mapping):
            yield from dotted_keys(value, sections, f"{key}.")


def annotated_keys(section: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, annotation) of a dataclass and of the dataclasses in it."""
    hints = get_type_hints(section)
    for each in fields(section):
        key = f"{prefix}{each.name}"
        if key in NOT_KEYS:
            continue
        yield key, hints[each.name]
        for part in alternatives(hints[each.name]):
            if is_dataclass(part) and isinstance(part, type):
                yield from annotated_keys(part, f"{key}.")
            if part is TrainingSettings:
                yield from ((f"{key}.{name}", grpo_annotation(name)) for name in GRPO_FIELDS)


def grpo_annotation(name: str) -> Any:
    """str where every value is text, dict where it may be a mapping, else Any."""
    each = GRPO_FIELDS[name]
    if each.kinds == ("str",) and not each.choices:
        return str | None if each.optional else str
    return dict if "dict" in each.kinds else Any


def known_keys(command: str) -> KnownKeys:
    annotated = dict(annotated_keys(COMMANDS[command].settings))
    for name in REFUSED_FIELDS:
        annotated.pop(f"training.{name}", None)
    sections = {key for key, kind in annotated.items() if any(is_dataclass(part) for part in alternatives(kind))}
    free = {key for key, kind in annotated.items() if dict in {get_origin(p) or p for p in alternatives(kind)}}
    leaves = {key: kind for key, kind in annotated.items() if key not in sections}
    return KnownKeys(command, frozenset(sections), leaves, frozenset(free))


# Where a literal ${ is no interpolation.
PROSE = ("prompt", "system_prompt", "dataset.system_prompt", "problem", "contains")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"", re.DOTALL)
# An element of a list that Hydra's grammar has no character for.
BARE_TAG = re.compile(r"(?<=[\[,])(\s*)(</?[^<>\[\],'\"]+>)(?=\s*[,\]])")
OVERRIDE = re.compile(r"(?P<prefix>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.@/-]*)(?:=(?P<value>.*))?", re.DOTALL)


@dataclass
class Overrides:
    """What the command line asks for, in Hydra's words."""

    hydra: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


def group_choices(group: str, folders: Iterable[Path]) -> list[str]:
    """The files of a group, by name; those that begin with an underscore hold defaults."""
    names = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def translate(texts: Sequence[str], command: str, keys: KnownKeys, folders: Sequence[Path]) -> Overrides:
    """Command-line words -> Hydra overrides, every one checked."""
    overrides = Overrides()
    for text in texts:
        match = OVERRIDE.fullmatch(text)
        if match is None or (match["value"] is None and match["prefix"] != "~"):
            raise UserError(f"cannot read {text!r}: write key=value")
        key, value = match["key"], match["value"]
        if key == "rewards" and (value or "").startswith("["):
            key, text = "rewards.functions", f"rewards.functions={value}"
            match = OVERRIDE.fullmatch(text) or match
        if key in COMMANDS[command].groups:
            overrides.groups.add(key)
            overrides.hydra.append(group_override(key, value, folders))
            continue
        if key.startswith("hydra."):
            raise UserError(f"{key} is not used here: everything of a run goes to output_dir")
        keys.check(key)
        overrides.given.add(key)
        overrides.hydra.append(key_override(match, text, keys))
    return overrides


def group_override(group: str, choice: str | None, folders: Sequence[Path]) -> str:
    choices = group_choices(group, folders)
    if choice in choices:
        return f"{group}={choice}"
    own = f"; a hub name or a file goes to {group}.name" if group in ("model", "dataset") else ""
    own = f"; functions stand in brackets, rewards=[{choice}]" if group == "rewards" else own
    raise UserError(f"{group}={choice}: no such choice{nearest_and_all(choice or '', choices)}{own}")


def key_override(match: re.Match[str], text: str, keys: KnownKeys) -> str:
    """One `key=value`: text goes to Hydra quoted, anything else must be in its grammar."""
    key, value = match["key"], match["value"]
    if match["prefix"] == "~":
        return text
    if keys.takes_text(key, value) and value != "null" and not QUOTED.fullmatch(value):
        value = quoted(escaped(value) if key in PROSE else value)
    elif "'" not in value and '"' not in value:
        value = BARE_TAG.sub(lambda tag: tag[1] + quoted(tag[2]), value)
    parsed = parse_override(f"{key}={value}", text)
    if parsed.is_sweep_override():
        raise UserError(
            f"cannot read {text!r}: one value per key, unless train takes --multirun; a list is [a,b], text with a "
            "comma is quoted"
        )
    return f"++{key}={value}"


def quoted(text: str) -> str:
    """Any text as Hydra's grammar quotes it: only quotes, and backslashes before them, need a backslash."""
    inside = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", inside) + "'"


def parse_override(override: str, text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(override)
    except (HydraException, ValueError) as error:  # Python reads no number of more than 4,300 digits
        raise UserError(f"cannot read {text!r}: {first_lines(error)}; quote text with special characters") from error


def first_lines(error: Exception) -> str:
    """The first line of a message, and the next where the first ends in a colon."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines[0] if lines else repr(error))
