"""The model card of a final or merged folder; its text is in `model_card.md.j2`, its facts are gathered here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import ModelCard, ModelCardData

from rlvr_vocab import __version__
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.record.files import ENVIRONMENT, FINAL_ADAPTER, SUMMARY, read_record, run_folder_of
from rlvr_vocab.record.results import HeldOutMetric, read_results
from rlvr_vocab.runs.folder import results_file
from rlvr_vocab.runs.record import system_prompt_used
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.merge import MergeReport

CARD = "README.md"
_TEMPLATE = Path(__file__).with_name("model_card.md.j2")
# The keys that a card shows, and no others: model_kwargs may hold a token.
SHOWN_KEYS = (
    *("model.name", "model.reasoning_vocab_size", "model.reasoning_multiplicity", "model.reasoning_mode"),
    *("model.reasoning_rank", "model.generation_kwargs.max_new_tokens", "model.generation_kwargs.temperature"),
    *("model.model_kwargs.load_in_8bit", "model.model_kwargs.load_in_4bit", "model.lora.r", "dataset.name"),
    *("training.learning_rate", "training.max_steps", "training.num_train_epochs", "training.num_generations"),
    *("training.per_device_train_batch_size", "training.gradient_accumulation_steps", "training.beta"),
    *("training.loss_type", "seed"),
)


@dataclass(frozen=True)
class CardFacts:
    """The run behind a model card.

    Attributes:
        config: its resolved configuration; None for an adapter that lies in no run's folder.
        adapter: whether it trained an adapter.
        steps: of GRPO that the weights have seen; None where that is not known.
        measure: the name of the held-out figure.
        before, after: its value at the start and at the end of training; None where it was not measured.
        system_prompt_used: whether problems were asked under the system prompt of the configuration.
        on_hub: names of the configuration that are on the hub; others may be paths, which no card shows.
    """

    config: Mapping[str, Any] | None
    adapter: bool
    steps: str | None = None
    measure: str = "accuracy"
    before: str | None = None
    after: str | None = None
    system_prompt_used: bool = True
    on_hub: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "A merged model" if self.config is None else str(self.config["exp_name"])

    @property
    def quantized_bits(self) -> int | None:
        kwargs = {} if self.config is None else self.config["model"]["model_kwargs"]
        return next((bits for bits in (8, 4) if kwargs.get(f"load_in_{bits}bit")), None)

    @property
    def system_prompt(self) -> str | None:
        return self.config["dataset"]["system_prompt"] if self.config is not None and self.system_prompt_used else None

    def name_on_hub(self, section: str) -> str | None:
        """The hub name of model or dataset; None for a folder, or one that was made here."""
        name = None if self.config is None else self.config[section]["name"]
        return name if name in self.on_hub else None

    def rows(self) -> list[tuple[str, str]]:
        """(key, value) of the configuration, as a user would type them, then the rewards."""
        if self.config is None:
            return []
        keys = SHOWN_KEYS if self.adapter else [key for key in SHOWN_KEYS if not key.startswith("model.lora.")]
        rows = [(key, self._shown(_found(self.config, key))) for key in keys]
        named = [(self._shown(each["name"]), each.get("weight", 1.0)) for each in self.config["rewards"]["functions"]]
        rewards = ", ".join(f"{name} × {weight:g}" for name, weight in named)
        return [*((key, value) for key, value in rows if value not in ("null", "false")), ("rewards", rewards)]

    def _shown(self, value: Any) -> str:
        """The value; of a path only its last part, since the rest describes somebody's machine."""
        if not isinstance(value, str) or value in self.on_hub:
            return as_typed(value)
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]


def _found(config: Mapping[str, Any], key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def card_of_run(
    folder: Path,
    config: Mapping[str, Any],
    measure: HeldOutMetric,
    *,
    adapter: bool,
    steps: str | None,
    at_end: bool = True,
) -> CardFacts:
    """The facts of a run for the card of its weights; `at_end`: whether they are those of its end."""
    return CardFacts(
        config,
        adapter,
        steps,
        measure=f"{measure.name}{measure.by}",
        before=measured(folder, "before", measure),
        after=measured(folder, "after", measure) if at_end else None,
        system_prompt_used=system_prompt_used(folder),
        on_hub=tuple((read_record(folder, ENVIRONMENT) or {}).get("names_on_hub", ())),
    )


def card_of_adapter(checkpoint: Path) -> CardFacts:
    """The facts of the run around an adapter; `evaluation/after.jsonl` measured the final adapter alone."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return CardFacts(None, adapter=True)
    summary, final = read_record(folder, SUMMARY) or {}, checkpoint.name == FINAL_ADAPTER
    step = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    steps = summary.get("steps") if final else step and int(step[1])
    return card_of_run(
        folder,
        read_recorded(folder, resolve=True),
        HeldOutMetric.of(summary.get("grader")),
        adapter=True,
        steps=None if steps is None else f"{steps:,}",
        at_end=final,
    )


def measured(run_folder: Path, when: str, measure: HeldOutMetric) -> str | None:
    """The held-out figure of a run, `before` or `after`, with the number of answers that have a score."""
    path = results_file(run_folder, when)
    values = [answer.value for answer in read_results(path) if answer.value is not None] if path.is_file() else []
    if not values:
        return None
    mean = measure.value(sum(values) / len(values))
    if measure.is_share:
        return f"{mean} ({sum(values):.0f} of {len(values)})"
    return f"{mean} on {pluralize(len(values), 'problem')}"


def quantized_note(facts: CardFacts) -> str:
    """A sentence for an adapter that was trained on quantized weights; empty for others."""
    if facts.quantized_bits is None:
        return ""
    return (
        f"The adapter was trained on the base in {facts.quantized_bits} bit and folded into the unquantized base: "
        "its weights differ by what the quantization had rounded away."
    )


def write_card(folder: Path, facts: CardFacts, merge: MergeReport | None = None) -> None:
    """Write the card of a whole model, beside its weights."""
    layout = VocabLayout.load(folder) if (folder / LAYOUT_FILE).is_file() else None
    note = quantized_note(facts) if merge is not None else ""
    _save(folder, facts, "transformers", layout=layout, merge=merge, quantized_note=note)


def write_adapter_card(folder: Path, facts: CardFacts) -> None:
    """Write the card of an adapter that lies beside its merged model, in place of PEFT's empty form."""
    _save(folder, facts, "peft", alone=True)


def _save(folder: Path, facts: CardFacts, library: str, **values: Any) -> None:
    dataset = facts.name_on_hub("dataset")
    data = ModelCardData(
        base_model=facts.name_on_hub("model"),
        datasets=None if dataset is None else [dataset],
        library_name=library,
        pipeline_tag="text-generation",
        tags=["rlvr-vocab"] if facts.config is None else ["grpo", "rlvr", "trl", "rlvr-vocab"],
    )
    # A fence ends at the first run of backticks that is as long as its own.
    fence = "`" * max(3, 1 + _longest_ticks(facts.system_prompt or ""))
    environment = jinja2.Environment(trim_blocks=True)
    environment.filters |= {"code": _code, "plain": _plain}
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(facts=facts, version=__version__, fence=fence, **values)
    ModelCard(without_secrets(f"---\n{data.to_yaml()}\n---\n\n{text.strip()}\n")).save(folder / CARD)


def _code(value: Any) -> str:
    """A value as a code span, in which neither Markdown nor HTML counts, in a table too."""
    text = visible_text(" ".join(str(value).split())).replace("|", "\\|")
    ticks = "`" * (1 + _longest_ticks(text))
    pad = " " * (text.startswith("`") or text.endswith("`"))
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _plain(text: str) -> str:
    """A name as it is where Markdown and HTML see nothing in it, else as a code span."""
    return text if re.fullmatch(r"[\w ,.:×+%-]*", text) else _code(text)
