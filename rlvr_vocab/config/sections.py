"""The configuration as typed, frozen dataclasses: a key that is no field is unknown. Defaults: conf/."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from rlvr_vocab.bounds import Bounds, Count, NotNegative, Seed
from rlvr_vocab.config.grpo_fields import GRPO_FIELDS
from rlvr_vocab.config.values import KIND_NAMES, read, read_choice, wrong_type
from rlvr_vocab.data.arithmetic import ArithmeticTask
from rlvr_vocab.data.reasoning_gym.tasks import GymTask
from rlvr_vocab.data.source import AnswerFormat, Columns, DecimalMark
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.training.settings import (
    CurriculumSettings,
    KLOver,
    Lora,
    TinyShape,
    UnslothSettings,
    UntilSettings,
    WarmupSettings,
)
from rlvr_vocab.vocab.layout import RowForm
from rlvr_vocab.vocab.parts import Part

LONG_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
NOT_FOR_FROM_PRETRAINED = ("torch_dtype", "load_in_8bit", "load_in_4bit")


@dataclass(frozen=True)
class ModelSettings:
    name: str
    reasoning_vocab_size: int | Literal["full"] | Part
    reasoning_multiplicity: Count
    source_ids: tuple[int, ...] | None
    reasoning_mode: Literal["expand", "replace"]
    reasoning_rows: RowForm
    reasoning_rank: Count
    preserve_odds: bool
    hidden_bits: NotNegative | None
    think_tags: tuple[str, str]
    init_noise: NotNegative
    pure_bf16: bool
    chat_template: Path | None
    model_kwargs: dict[str, Any]
    generation_kwargs: dict[str, Any]
    lora: Lora
    backend: Literal["transformers", "unsloth"]
    unsloth: UnslothSettings
    tiny: TinyShape | None

    @property
    def bits(self) -> Literal[4, 8] | None:
        """Of the weights of linear layers; None where they are not quantized."""
        if self.model_kwargs.get("load_in_8bit"):
            return 8
        return 4 if self.model_kwargs.get("load_in_4bit") else None

    @property
    def needs_adapter(self) -> str | None:
        """What of the settings can train an adapter alone; None where the weights themselves may train."""
        if self.bits is not None:
            return f"model.model_kwargs.load_in_{self.bits}bit=true"
        return "model.backend=unsloth" if self.backend == "unsloth" else None

    @property
    def adds_copies(self) -> bool:
        return bool(self.source_ids) if self.source_ids is not None else self.reasoning_vocab_size != 0

    @property
    def rows_in_force(self) -> RowForm:
        """`reasoning_rows`; beside an adapter sources stay as they are, and a free difference is a row of its own."""
        return "independent" if self.reasoning_rows == "shared" and self.trains_adapter else self.reasoning_rows

    @property
    def trains_adapter(self) -> bool:
        """Quantized weights cannot be trained: asked for alone, they switch LoRA on."""
        return self.needs_adapter is not None if self.lora.enabled is None else self.lora.enabled

    @property
    def dtype(self) -> str:
        """torch_dtype by its long name: "bfloat16", "float16" or "float32"."""
        short = self.model_kwargs["torch_dtype"]
        return LONG_DTYPE_NAMES.get(short, short)

    @property
    def loaded_dtype(self) -> str:
        """Type of the weights that a run loads: those that train are float32 unless pure_bf16 says otherwise."""
        return self.dtype if self.pure_bf16 or self.trains_adapter else "float32"

    @property
    def from_pretrained_kwargs(self) -> dict[str, Any]:
        """What model_kwargs passes through to from_pretrained."""
        return {key: value for key, value in self.model_kwargs.items() if key not in NOT_FOR_FROM_PRETRAINED}


@dataclass(frozen=True)
class SolvedTurn:
    problem: str
    answer: str


@dataclass(frozen=True)
class DatasetSettings:
    name: str
    subset: str | None
    split: str
    eval_split: str | None
    eval_fraction: Annotated[float, Bounds(least=0, below=1)]
    max_eval_samples: Annotated[int, Bounds(least=0)] | None
    max_train_samples: Count | None
    columns: Columns
    answer_format: AnswerFormat
    decimal: DecimalMark
    generator: ArithmeticTask | None
    curriculum: CurriculumSettings
    system_prompt: str | None
    examples: tuple[SolvedTurn, ...] | None
    open_thinking: Literal["auto", "model", "prefill"]
    tasks: tuple[GymTask, ...] | None = None
    num_problems: Count | None = None


@dataclass(frozen=True)
class TrainingSettings:
    """grpo: the arguments of GRPOConfig, all but output_dir and report_to."""

    grpo: dict[str, Any]
    max_prompt_length: Count | None
    warmup_ratio: Annotated[float, Bounds(least=0, below=1)] | None
    kl_log_steps: Annotated[int, Bounds(least=0)] | None
    kl_over: KLOver
    placebo: bool
    hidden_bits: Annotated[float, Bounds(above=0)] | None
    dynamic_sampling: bool
    max_rounds: Count
    max_tokens: Count | None


@dataclass(frozen=True)
class RewardSettings:
    functions: tuple[RewardSpec, ...]


@dataclass(frozen=True)
class EvaluationSettings:
    """How held-out answers are graded; both None for what the run's rewards say (`rewards.grader.grader_spec`)."""

    grader: tuple[RewardSpec, ...] | None
    threshold: float | None


@dataclass(frozen=True)
class LoggingSettings:
    enabled: bool
    project: str
    mode: Literal["online", "offline", "disabled"]

    @property
    def report_to(self) -> str:
        """GRPOConfig's report_to: "wandb" or "none"."""
        return "wandb" if self.enabled and self.mode != "disabled" else "none"


@dataclass(frozen=True)
class RunSettings:
    """`rlvr-vocab train`.

    stages: what is trained one after another, each with settings of its own; empty for a run in one piece.
    resolved: the whole configuration as plain values, for config.yaml; it reloads.
    """

    exp_name: str
    seed: Seed
    output_dir: Path
    overwrite: bool
    resume: str
    allow_changes: tuple[str, ...]
    max_hours: Annotated[float, Bounds(above=0)] | None
    report: bool
    on_full_disk: Literal["stop", "go_on"]
    model: ModelSettings
    dataset: DatasetSettings
    warmup: WarmupSettings
    training: TrainingSettings
    rewards: RewardSettings
    evaluation: EvaluationSettings
    logging: LoggingSettings
    resolved: dict[str, Any]
    stages: "tuple[StageSettings, ...]" = ()


@dataclass(frozen=True, kw_only=True)
class PlanSettings(RunSettings):
    """`rlvr-vocab plan`: a run, and what it is planned for.

    prompt_tokens, completion_tokens, train_problems: None where the configuration of the run is to tell.
    """

    gpu: str | None
    gpus: Count
    sharding: Literal["none", "fsdp2", "deepspeed_zero3"]
    fit: str | None
    calibrate: bool
    prompt_tokens: Count | None
    completion_tokens: Count | None
    train_problems: Count | None
    format: Literal["text", "json", "slurm_time"]
    out: Path | None

    @property
    def fit_gib(self) -> float | None:
        """Memory of a card that the run is made to fit into.

        Raises:
            UserError: `fit` is no size.
        """
        if self.fit is None:
            return None
        found = _GIB.fullmatch(self.fit.strip())
        if found is None or not float(found[1]):
            raise UserError(f"fit={self.fit}: expected the memory of a card, as 24GiB")
        return float(found[1])

    @property
    def run_config(self) -> dict[str, Any]:
        """The configuration of the run alone, as `train config=FILE` takes it."""
        own = {each.name for each in fields(self)} - {each.name for each in fields(RunSettings)}
        return {key: value for key, value in self.resolved.items() if key not in own}


_GIB = re.compile(r"(\d+(?:\.\d+)?) *(?:GiB|GB|G)?", re.IGNORECASE)


@dataclass(frozen=True)
class StageSettings:
    """One stage of a run: the settings in force in it, the keys that it sets itself, and when it may end early."""

    name: str
    until: UntilSettings | None
    run: RunSettings
    keys: frozenset[str] = field(default=frozenset(), compare=False)  # a recorded run tells those that differ


KINDS = {"int": int, "float": float, "bool": bool, "str": str, "dict": dict, "list": list}
# TRL's annotation allows num_generations=None, and then divides by it.
NEVER_NONE = {name for name, field in GRPO_FIELDS.items() if not field.optional} | {"num_generations"}
OURS = (
    *("max_prompt_length", "warmup_ratio", "kl_log_steps", "kl_over", "placebo", "hidden_bits"),
    *("dynamic_sampling", "max_rounds", "max_tokens"),
)
_AT_LEAST_0, _AT_LEAST_1, _SHARE = Bounds(least=0), Bounds(least=1), Bounds(least=0, most=1)
# TRL and Transformers take any number for these, and fail later or not at all.
GRPO_BOUNDS = {
    **dict.fromkeys(("max_completion_length", "max_steps", "save_total_limit", "num_iterations"), _AT_LEAST_1),
    **dict.fromkeys(("per_device_train_batch_size", "gradient_accumulation_steps"), _AT_LEAST_1),
    **dict.fromkeys(("steps_per_generation", "generation_batch_size"), _AT_LEAST_1),
    **dict.fromkeys(
        ("learning_rate", "weight_decay", "max_grad_norm", "warmup_steps", "num_train_epochs"), _AT_LEAST_0
    ),
    **dict.fromkeys(("logging_steps", "save_steps", "dataloader_num_workers"), _AT_LEAST_0),
    **dict.fromkeys(("epsilon", "epsilon_high", "delta", "beta"), _AT_LEAST_0),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), Bounds(least=0, below=1)),
    "top_entropy_quantile": _SHARE,
}


def read_grpo_value(name: str, value: Any) -> Any:
    """One field of GRPOConfig, checked against the types and choices that TRL gives it."""
    field, key = GRPO_FIELDS[name], f"training.{name}"
    if value is False and "no" in field.choices:  # YAML reads an unquoted no as false
        value = "no"
    if value is None and field.optional:
        return None
    for kind in field.kinds:
        if kind == "any":
            return value
        try:
            # A whole number stays one: logging_steps and the like tell a count from a share by its size.
            converted = value if kind == "float" and type(value) is int else read(KINDS[kind], value, key)
        except UserError:
            continue
        if name in GRPO_BOUNDS:
            GRPO_BOUNDS[name].check(converted, key)
        return read_choice(field.choices, converted, key) if kind == "str" and field.choices else converted
    raise wrong_type(value, key, " or ".join(KIND_NAMES[KINDS[kind]] for kind in field.kinds))


def read_training(
    section: Mapping[str, Any], model: ModelSettings, rewards: RewardSettings, exp_name: str, seed: int
) -> TrainingSettings:
    """The training section as GRPOConfig arguments and our own keys.

    A null for a field that TRL allows no None for means: not set, TRL's default. `seed`, `run_name` and
    `reward_weights` are filled in from the keys that decide them, `eval_strategy` from `eval_steps`.
    """
    annotations = get_type_hints(TrainingSettings, include_extras=True)
    ours = {name: read(annotations[name], section.get(name), f"training.{name}") for name in OURS}
    grpo = {
        name: read_grpo_value(name, value)
        for name, value in section.items()
        if name not in OURS and not (value is None and name in NEVER_NONE)
    }
    if ours["warmup_ratio"] is not None:
        if grpo.get("warmup_steps"):
            raise UserError(
                f"training.warmup_ratio={ours['warmup_ratio']} and "
                f"training.warmup_steps={section['warmup_steps']} are the same thing: set one"
            )
        grpo["warmup_steps"] = ours["warmup_ratio"]  # transformers 5: below 1 it is a share of the steps
    add_generation_kwargs(grpo, model)
    grpo.setdefault("seed", seed)
    grpo["run_name"] = exp_name
    if grpo.get("eval_steps") is not None:
        grpo.setdefault("eval_strategy", "steps")
    if grpo.get("load_best_model_at_end"):
        grpo["metric_for_best_model"] = grpo.get("metric_for_best_model") or "reward"
    grpo["reward_weights"] = [function.weight for function in rewards.functions]
    return TrainingSettings(grpo=grpo, **ours)


def add_generation_kwargs(grpo: dict[str, Any], model: ModelSettings) -> None:
    """model.generation_kwargs holds more than the two keys that training shares: hand them on."""
    extra = model.generation_kwargs
    if extra.get("cache_implementation") is not None:
        grpo["cache_implementation"] = extra["cache_implementation"]
    if extra.get("use_cache") is not None:
        grpo["generation_kwargs"] = {**(grpo.get("generation_kwargs") or {}), "use_cache": extra["use_cache"]}
