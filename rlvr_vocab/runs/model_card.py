"""The model card of a final or merged folder: what it is, how it was made, what was measured, how to serve it.

Its text is in `model_card.md.j2`; here are the facts that it is filled with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import ModelCard, ModelCardData

from rlvr_vocab import __version__
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import LONG_DTYPE_NAMES
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.record.files import FINAL_ADAPTER, SUMMARY, read_record, run_folder_of
from rlvr_vocab.record.results import HeldOutMetric, read_results
from rlvr_vocab.runs.environment import names_on_hub, recorded_names_on_hub, without_folder
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.record import asked_under_it
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.merge import MergeReport

CARD = "README.md"
_TEMPLATE = Path(__file__).with_name("model_card.md.j2")


def write_card(folder: Path, facts: CardFacts, merge: MergeReport | None = None) -> None:
    """Write the card of a whole model, beside its weights."""
    layout = VocabLayout.load(folder) if (folder / LAYOUT_FILE).is_file() else None
    tags = facts.think_tags
    if layout is not None and tags is None:
        tags = (f"id {layout.think_open_id}", f"id {layout.think_close_id}")
    _save(
        folder,
        facts,
        "transformers",
        layout=layout,
        tags=tags,
        merge=merge,
        measured_on=_measured_on(facts, merge),
        quantized_note=quantized_note(facts),
    )


def write_adapter_card(folder: Path, facts: CardFacts) -> None:
    """Write the card of an adapter that lies beside its merged model, in place of PEFT's empty form."""
    _save(folder, facts, "peft", alone=True)


def _save(folder: Path, facts: CardFacts, library: str, **values: Any) -> None:
    data = ModelCardData(
        base_model=facts.base,
        datasets=None if facts.dataset is None else [facts.dataset],
        library_name=library,
        pipeline_tag="text-generation",
        tags=["rlvr-vocab"] if facts.config is None else ["grpo", "rlvr", "trl", "rlvr-vocab"],
    )
    # A fence ends at the first run of backticks that is as long as its own.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", facts.system_prompt or "")), default=0))
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters |= {"code": _code, "plain": _plain}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(facts=facts, version=__version__, fence=fence, **values)
    ModelCard(without_secrets(f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n")).save(folder / CARD)


def _code(value: Any) -> str:
    """A value as a code span, in which neither Markdown nor HTML counts, in a table too."""
    text = visible_text(" ".join(str(value).split())).replace("|", "\\|")
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    pad = " " * (text.startswith("`") or text.endswith("`"))
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _plain(text: str) -> str:
    """A name as it is where Markdown and HTML see nothing in it, else as a code span."""
    return text if re.fullmatch(r"[\w ,.:×+%-]*", text) else _code(text)


def _measured_on(facts: CardFacts, merge: MergeReport | None) -> str:
    """The weights that the accuracy after training was measured on, which need not be those beside the card."""
    quantized = merge is not None and facts.quantized_bits is not None
    rounded = merge is not None and merge.rounding is not None
    if facts.after is None or not (quantized or rounded):
        return "of this model"
    where = [f"on the base in {facts.quantized_bits} bit"] if quantized else []
    if merge is not None and rounded:
        short = {long: short for short, long in LONG_DTYPE_NAMES.items()}
        where.append(f"before rounding to {short.get(merge.dtype, merge.dtype)}")
    return f"at the end of training ({', '.join(where)})"


def quantized_note(facts: CardFacts) -> str:
    """A sentence for an adapter that was trained on quantized weights; empty for others."""
    if facts.quantized_bits is None:
        return ""
    return (
        f"The adapter was trained on the base in {facts.quantized_bits} bit and folded into the unquantized base: "
        "its weights differ by what the quantization had rounded away."
    )


# The keys of a card, in its order. Only these are shown: model_kwargs may hold a login token.
SHOWN_KEYS = (
    "model.name",
    "model.reasoning_vocab_size",
    "model.reasoning_multiplicity",
    "model.reasoning_mode",
    "model.preserve_odds",
    "model.init_noise",
    "model.reasoning_rank",
    "model.model_kwargs.load_in_8bit",
    "model.model_kwargs.load_in_4bit",
    "model.generation_kwargs.max_new_tokens",
    "model.generation_kwargs.temperature",
    "model.lora.r",
    "model.lora.lora_alpha",
    "model.lora.lora_dropout",
    "model.lora.target_modules",
    "model.lora.train_rows",
    "dataset.name",
    "dataset.subset",
    "dataset.split",
    "dataset.tasks",
    "dataset.num_problems",
    "training.learning_rate",
    "training.lr_scheduler_type",
    "training.max_steps",
    "training.num_train_epochs",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.num_generations",
    "training.beta",
    "training.kl_over",
    "training.loss_type",
    "training.importance_sampling_level",
    "training.epsilon",
    "training.epsilon_high",
    "training.mask_truncated_completions",
    "training.scale_rewards",
    "seed",
)


@dataclass(frozen=True)
class Measured:
    """What the answers to the held-out problems that have a score came to, one for each problem."""

    measure: HeldOutMetric
    values: tuple[float, ...]

    def __str__(self) -> str:
        mean = self.measure.value(sum(self.values) / len(self.values))
        if self.measure.is_share:
            return f"{mean} ({sum(self.values):.0f} of {len(self.values)})"
        return f"{mean} on {pluralize(len(self.values), 'problem')}"


@dataclass(frozen=True)
class CardFacts:
    """What is known of the model of a card.

    Attributes:
        config: the resolved configuration of the run; None for an adapter that lies in no run's folder.
        adapter: whether the run trained an adapter.
        steps: of GRPO that the weights have seen; None where that is not known.
        before, after: what was measured on held-out problems at the start and at the end of training; None where
            nothing was, or the weights are not those of the end.
        asked_under_it: whether problems were asked under the system prompt of the configuration.
        recorded_on_hub: the names that the run found on the hub; None for a run that is going on, in its folder.
    """

    config: Mapping[str, Any] | None
    adapter: bool
    steps: str | None = None
    before: Measured | None = None
    after: Measured | None = None
    asked_under_it: bool = True
    recorded_on_hub: tuple[str, ...] | None = None

    @property
    def measure(self) -> str:
        """What was measured, in words: `held-out accuracy`, `held-out reward by 2 × style + 0.5 × boxed`."""
        found = self.before or self.after
        return "held-out accuracy" if found is None else f"held-out {found.measure.name}{found.measure.by}"

    @cached_property
    def on_hub(self) -> Collection[str]:
        if self.recorded_on_hub is not None or self.config is None:
            return self.recorded_on_hub or ()
        return names_on_hub(self.config)

    @property
    def name(self) -> str:
        return "A merged model" if self.config is None else str(self.config["exp_name"])

    @property
    def base(self) -> str | None:
        """Hub name of the model that was trained; None for a folder, or one that was made on the spot."""
        return self._if_on_hub("model")

    @property
    def dataset(self) -> str | None:
        return self._if_on_hub("dataset")

    @property
    def quantized_bits(self) -> int | None:
        kwargs = {} if self.config is None else self.config["model"]["model_kwargs"]
        return next((bits for bits in (8, 4) if kwargs.get(f"load_in_{bits}bit")), None)

    @property
    def think_tags(self) -> tuple[str, str] | None:
        return None if self.config is None else tuple(self.config["model"]["think_tags"])

    @property
    def system_prompt(self) -> str | None:
        return self.config["dataset"]["system_prompt"] if self.config is not None and self.asked_under_it else None

    def rows(self) -> list[tuple[str, str]]:
        """(key, value) of the configuration, as a user would type them."""
        if self.config is None:
            return []
        keys = SHOWN_KEYS if self.adapter else [key for key in SHOWN_KEYS if not key.startswith("model.lora.")]
        rows = [(key, self._shown(_found(self.config, key))) for key in keys]
        return [
            *((key, value) for key, value in rows if value not in ("null", "false")),
            ("rewards", self._rewards(self.config["rewards"])),
        ]

    def stages(self) -> list[tuple[str, str]]:
        """(name, rewards) of each stage."""
        recorded = [] if self.config is None else self.config.get("stages") or []
        return [(stage["name"], self._rewards(stage["rewards"]) if "rewards" in stage else "") for stage in recorded]

    def _if_on_hub(self, section: str) -> str | None:
        name = None if self.config is None else self.config[section]["name"]
        return name if name in self.on_hub else None

    def _shown(self, value: Any) -> str:
        return without_folder(value, self.on_hub) if isinstance(value, str) else as_typed(value)

    def _rewards(self, section: Mapping[str, Any]) -> str:
        named = ((without_folder(each["name"], self.on_hub), each.get("weight", 1.0)) for each in section["functions"])
        return ", ".join(f"{name} × {weight:g}" for name, weight in named)


def facts_of_adapter(checkpoint: Path) -> CardFacts:
    """Facts from the run around an adapter; `evaluation/after.jsonl` measured the final adapter alone."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return CardFacts(None, adapter=True)
    final = checkpoint.name == FINAL_ADAPTER
    measure = HeldOutMetric.of((read_record(folder, SUMMARY) or {}).get("grader"))
    return CardFacts(
        read_recorded(folder, resolve=True),
        adapter=True,
        steps=_steps_of_run(folder) if final else _steps_of(checkpoint),
        before=measured(folder, "before", measure),
        after=measured(folder, "after", measure) if final else None,
        asked_under_it=asked_under_it(folder),
        recorded_on_hub=recorded_names_on_hub(folder),
    )


def measured(run_folder: Path, when: str, measure: HeldOutMetric) -> Measured | None:
    """What a run measured on its held-out problems, `before` or `after`; None where it did not."""
    path = results_file(run_folder, when)
    if not path.is_file():
        return None
    answers = read_results(path)
    values = tuple(answer.value for answer in answers if answer.value is not None)
    return Measured(measure, values) if values else None


def _steps_of_run(folder: Path) -> str | None:
    steps = (read_record(folder, SUMMARY) or {}).get("steps")
    return None if steps is None else f"{steps:,}"


def _steps_of(checkpoint: Path) -> str | None:
    """The step that a checkpoint is named after, and the stage that counts it."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    if match is None:
        return None
    stage = checkpoint.absolute().parent
    return f"{int(match[1]):,}" + (f" of stage {stage.name}" if stage.parent.name == "stages" else "")


def _found(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
