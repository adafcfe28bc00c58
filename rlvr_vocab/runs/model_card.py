"""The model card of a final or merged folder: what it is, how it was made, what was measured, how to serve it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from rlvr_vocab import __version__
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import LONG_DTYPE_NAMES
from rlvr_vocab.config.values import as_typed
from rlvr_vocab.counted import counted
from rlvr_vocab.evaluation.accuracy import read_results
from rlvr_vocab.record.files import FINAL_ADAPTER, SUMMARY, run_folder_of
from rlvr_vocab.record.json_files import read_record
from rlvr_vocab.runs.folder import recorded_names_on_hub, results_file
from rlvr_vocab.runs.hub_names import names_on_hub, without_folder
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout
from rlvr_vocab.vocab.peft.merge import MergeReport

CARD = "README.md"


def write_card(folder: Path, facts: CardFacts, merge: MergeReport | None = None) -> None:
    """Write the card of a whole model, beside its weights."""
    layout = VocabLayout.load(folder) if (folder / LAYOUT_FILE).is_file() else None
    sections = [
        f"# {facts.name}",
        _what_it_is(facts, layout),
        _results(facts, merge),
        _serving(layout),
        _merging(facts, merge),
        _configuration(facts),
    ]
    _save(folder, facts, "transformers", sections)


def write_adapter_card(folder: Path, facts: CardFacts) -> None:
    """Write the card of an adapter that lies beside its merged model, in place of PEFT's empty form."""
    text = (
        f"The LoRA adapter of {facts.name}, with the rows of the vocabulary that trained beside it. It belongs on "
        "`initial_model` of its run; the merged model is in `final_model`.\n\n"
        "```sh\nrlvr-vocab merge checkpoint=FOLDER base=INITIAL_MODEL out=merged_model\n```"
    )
    _save(folder, facts, "peft", [f"# {facts.name}, adapter", text, _configuration(facts)])


def _save(folder: Path, facts: CardFacts, library: str, sections: list[str]) -> None:
    data = ModelCardData(
        base_model=facts.base,
        datasets=None if facts.dataset is None else [facts.dataset],
        library_name=library,
        pipeline_tag="text-generation",
        tags=["rlvr-vocab"] if facts.config is None else ["grpo", "rlvr", "trl", "rlvr-vocab"],
    )
    text = "\n\n".join(section for section in sections if section)
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}\n").save(folder / CARD)


def _what_it_is(facts: CardFacts, layout: VocabLayout | None) -> str:
    trained = "" if facts.config is None else " after GRPO with verifiable rewards"
    how = ", a LoRA adapter folded into its base" if facts.adapter else ""
    text = f"A causal language model{trained}{how}, written by rlvr-vocab {__version__}. "
    if layout is None:
        return text + "It has no reasoning vocabulary."
    known = facts.think_tags or (f"id {layout.think_open_id}", f"id {layout.think_close_id}")
    tags = f"It thinks between `{known[0]}` and `{known[1]}`"
    if not layout.size:
        return f"{text}{tags}, and has no reasoning vocabulary: stock tools sample it as it was trained."
    return (
        f"{text}{tags}. Beside its {layout.standard_size:,} standard tokens it has "
        f"{counted(layout.size, '*reasoning token*', '*reasoning tokens*')}, "
        f"ids {layout.standard_size:,} to {layout.rows - 1:,}: copies of standard tokens, with the same text, that "
        f"may be sampled only while it thinks (mode `{layout.mode}`, odds "
        f"{'shared between copies' if layout.preserve_odds else 'not shared'}). `{LAYOUT_FILE}` says what each copies."
    )


def _results(facts: CardFacts, merge: MergeReport | None) -> str:
    if facts.config is None:
        return ""
    rows = [
        ("GRPO steps", facts.steps or "not known"),
        ("held-out accuracy before GRPO", str(facts.before or "not measured")),
        (_measured_on(facts, merge), str(facts.after or "not measured")),
    ]
    note = "One sample for each problem that was held out of training, at the temperature of training."
    return f"## Results\n\n{_table('measure', 'value', rows)}\n\n{note}"


def _measured_on(facts: CardFacts, merge: MergeReport | None) -> str:
    """Of which weights the accuracy after training is: those that trained need not be those beside the card."""
    quantized = merge is not None and facts.quantized_bits is not None
    rounded = merge is not None and merge.rounding is not None
    if facts.after is None or not (quantized or rounded):
        return "held-out accuracy of this model"
    where = [f"on the base in {facts.quantized_bits} bit"] if quantized else []
    if merge is not None and rounded:
        short = {long: short for short, long in LONG_DTYPE_NAMES.items()}
        where.append(f"before rounding to {short.get(merge.dtype, merge.dtype)}")
    return f"held-out accuracy at the end of training ({', '.join(where)})"


def _serving(layout: VocabLayout | None) -> str:
    bring = layout is not None and layout.size
    imports = "from rlvr_vocab import RegionLogitsProcessor\n" if bring else ""
    processor = "regions = RegionLogitsProcessor.from_folder(folder, temperature=0.7)\n" if bring else ""
    argument = ", logits_processor=[regions]" if bring else ""
    code = (
        "```python\nfrom transformers import TokenizersBackend, pipeline\n"
        f"{imports}\n"
        'folder = "path/to/this/folder"\n'
        'pipe = pipeline("text-generation", model=folder, tokenizer=TokenizersBackend.from_pretrained(folder))\n'
        f"{processor}"
        'messages = [{"role": "user", "content": "What is 17 + 25?"}]\n'
        f"print(pipe(messages, max_new_tokens=512, temperature=0.7, top_k=0{argument}))\n```"
    )
    commands = ['rlvr-vocab generate checkpoint=path/to/this/folder prompt="What is 17 + 25?"']
    if layout is None:
        commands = []
    commands.append("vllm serve path/to/this/folder")
    shell = "```sh\n" + "\n".join(commands) + "\n```"
    return "\n\n".join(["## How to serve it", code, shell, *([_CAVEAT] if bring else [])])


_CAVEAT = (
    "**Stock sampling knows no regions.** Loaded with other tools and without the two lines above, the model samples "
    "reasoning tokens in its answers too, which it was never trained to do; they read as ordinary text. The "
    "temperature of the processor is the one of the sampling. vLLM has the "
    "regions where the package is installed beside it."
)


def _merging(facts: CardFacts, merge: MergeReport | None) -> str:
    if merge is None:
        return ""
    text = (
        f"The adapter was folded in in float32 and the weights written in {merge.dtype}. On a chat of "
        f"{merge.probe_tokens} tokens, in {merge.arithmetic}, logits differ by at most {merge.merging:.0e} from the "
        f"adapter on its base, and by {merge.reloading:.0e} after loading this folder with stock classes."
    )
    if merge.rounding is not None:
        text += (
            f" Rounding to {merge.dtype} costs at most {merge.rounding.largest:.2g} in a logit and "
            f"{merge.rounding.mean_kl:.1e} nats a token, where training moved the base by "
            f"{merge.training.largest:.2g} and {merge.training.mean_kl:.1e}."
        )
    if merge.untied:
        text += " Embedding and head, one table in the base, are two here."
    return f"## Merging\n\n{text} {quantized_note(facts)}".rstrip()


def quantized_note(facts: CardFacts) -> str:
    """What is to be said where the adapter was trained on weights that are not those it was folded into."""
    if facts.quantized_bits is None:
        return ""
    return (
        f"The adapter was trained on the base in {facts.quantized_bits} bit and folded into the unquantized base: "
        "its weights differ by what the quantization had rounded away."
    )


def _configuration(facts: CardFacts) -> str:
    rows = [(f"`{key}`", f"`{value}`") for key, value in facts.rows()]
    if not rows:
        return ""
    sections = ["## Configuration", _table("key", "value", rows), _stages(facts), _system_prompt(facts)]
    return "\n\n".join(section for section in sections if section)


def _stages(facts: CardFacts) -> str:
    lines = []
    for name, rows in facts.stages():
        keys = ", ".join(f"`{key}={value}`" for key, value in rows)
        lines.append(f"- `{name}`: {keys or 'as above'}")
    head = "It was trained in these stages, each with these keys in the place of those above:\n\n"
    return head + "\n".join(lines) if lines else ""


def _system_prompt(facts: CardFacts) -> str:
    prompt = facts.system_prompt
    if not prompt:
        return ""
    # A fence ends at the first run of backticks that is as long as its own.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", prompt)), default=0))
    return f"It was trained with this system prompt:\n\n{fence}text\n{prompt}\n{fence}"


def _table(left: str, right: str, rows: list[tuple[str, str]]) -> str:
    lines = [f"| {left} | {right} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in rows)])


# The keys of a card, in its order. Only these are shown: model_kwargs may hold a login token.
SHOWN_KEYS = (
    "model.name",
    "model.reasoning_vocab_size",
    "model.reasoning_multiplicity",
    "model.reasoning_mode",
    "model.preserve_odds",
    "model.init_noise",
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
    "training.learning_rate",
    "training.lr_scheduler_type",
    "training.max_steps",
    "training.num_train_epochs",
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.num_generations",
    "training.beta",
    "training.loss_type",
    "seed",
)
# Where the keys of a stage stand in the configuration of a run, if not under the same name.
_OF_A_STAGE = {"generation": "model.generation_kwargs"}


@dataclass(frozen=True)
class Accuracy:
    """Of one sample for each held-out problem that can be graded."""

    right: int
    of: int

    def __str__(self) -> str:
        return f"{self.right / self.of:.1%} ({self.right} of {self.of})"


@dataclass(frozen=True)
class CardFacts:
    """What is known of the model of a card.

    Attributes:
        config: the resolved configuration of the run; None for an adapter that lies in no run's folder.
        adapter: whether the run trained an adapter.
        steps: of GRPO that the weights have seen; None where that is not known.
        before, after: accuracy on held-out problems at the start and at the end of training; None where it was not
            measured, or the weights are not those of the end.
        recorded_on_hub: the names that the run found on the hub; None for a run that is going on, in its folder.
    """

    config: Mapping[str, Any] | None
    adapter: bool
    steps: str | None = None
    before: Accuracy | None = None
    after: Accuracy | None = None
    recorded_on_hub: tuple[str, ...] | None = None

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
        return None if self.config is None else self.config["dataset"]["system_prompt"]

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

    def stages(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(name, rows) of each stage: those of the keys of `rows` in which it differs from the run, and its `until`."""
        recorded = [] if self.config is None else self.config.get("stages") or []
        return [(stage["name"], self._rows_of(stage)) for stage in recorded]

    def _rows_of(self, stage: Mapping[str, Any]) -> list[tuple[str, str]]:
        keys = [(f"{_OF_A_STAGE.get(section, section)}.{key}", value) for section, key, value in _own_keys(stage)]
        rows = [(key, self._shown(value)) for key, value in keys if key in SHOWN_KEYS]
        rewards = [("rewards", self._rewards(stage["rewards"]))] if "rewards" in stage else []
        until = ((f"until.{key}", value) for key, value in stage.get("until", {}).items())
        return [*rows, *rewards, *((key, as_typed(value)) for key, value in until if value is not None)]

    def _if_on_hub(self, section: str) -> str | None:
        name = None if self.config is None else self.config[section]["name"]
        return name if name in self.on_hub else None

    def _shown(self, value: Any) -> str:
        return without_folder(value, self.on_hub) if isinstance(value, str) else as_typed(value)

    def _rewards(self, section: Mapping[str, Any]) -> str:
        named = ((without_folder(each["name"], self.on_hub), each.get("weight", 1.0)) for each in section["functions"])
        return ", ".join(f"{name} × {weight:g}" for name, weight in named)


def facts_of_adapter(checkpoint: Path) -> CardFacts:
    """What the run around an adapter says of it; only the final one is what `evaluation/after.jsonl` measured."""
    folder = run_folder_of(checkpoint)
    if folder is None:
        return CardFacts(None, adapter=True)
    final = checkpoint.name == FINAL_ADAPTER
    return CardFacts(
        read_recorded(folder, resolve=True),
        adapter=True,
        steps=_steps_of_run(folder) if final else _steps_of(checkpoint),
        before=measured(folder, "before"),
        after=measured(folder, "after") if final else None,
        recorded_on_hub=recorded_names_on_hub(folder),
    )


def measured(run_folder: Path, when: str) -> Accuracy | None:
    """Accuracy on the held-out problems of a run, `before` or `after`; None where it was not measured."""
    path = results_file(run_folder, when)
    if not path.is_file():
        return None
    scores = [result.score for result in read_results(path) if result.score is not None]
    return Accuracy(sum(score == 1.0 for score in scores), len(scores)) if scores else None


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


def _own_keys(stage: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """(section, key, value) of what a stage sets."""
    sections = (section for section in ("generation", "dataset", "training") if section in stage)
    return [(section, key, value) for section in sections for key, value in stage[section].items()]
