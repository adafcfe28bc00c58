"""The configuration as typed, frozen dataclasses: a key that is no field is unknown. Defaults: conf/."""

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path
from typing import Any, Literal

from rlvr_vocab.config.grpo_fields import GRPO_FIELDS, GrpoField
from rlvr_vocab.config.values import KIND_NAMES, read, read_choice, wrong_type
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import RewardSpec

LONG_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
NOT_FOR_FROM_PRETRAINED = ("torch_dtype", "load_in_8bit", "load_in_4bit")


@dataclass(frozen=True)
class TinyShape:
    """Shape of the embedded model."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class LoraSettings:
    """enabled null: on where nothing else can train, off elsewhere."""

    enabled: bool | None
    r: int
    lora_alpha: int
    target_modules: Literal["all-linear"] | tuple[str, ...]
    lora_dropout: float
    train_rows: Literal["reasoning", "all", "none"]


@dataclass(frozen=True)
class UnslothSettings:
    """What Unsloth is asked for beside model_kwargs and lora."""

    max_seq_length: int
    fast_inference: bool
    max_lora_rank: int
    use_gradient_checkpointing: Literal["unsloth"] | bool


@dataclass(frozen=True)
class ModelSettings:
    name: str
    reasoning_vocab_size: int | Literal["full"]
    reasoning_multiplicity: int
    source_ids: tuple[int, ...] | None
    reasoning_mode: Literal["expand", "replace"]
    preserve_odds: bool
    think_tags: tuple[str, str]
    init_noise: float
    pure_bf16: bool
    chat_template: Path | None
    model_kwargs: dict[str, Any]
    generation_kwargs: dict[str, Any]
    lora: LoraSettings
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
class ColumnMap:
    problem: str
    answer: str
    reasoning: str | None


@dataclass(frozen=True)
class GeneratorSettings:
    """Shape of generated arithmetic."""

    digits: int
    num_problems: int


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
    eval_fraction: float
    max_eval_samples: int | None
    max_train_samples: int | None
    columns: ColumnMap
    answer_format: Literal["bare", "hash", "boxed"]
    generator: GeneratorSettings | None
    system_prompt: str | None
    examples: tuple[SolvedTurn, ...] | None
    open_thinking: Literal["auto", "model", "prefill"]


@dataclass(frozen=True)
class WarmupSettings:
    """Supervised steps before GRPO; max_steps 0: none."""

    max_steps: int
    batch_size: int
    learning_rate: float
    until_accuracy: float | None
    check_every: int
    num_check_problems: int


@dataclass(frozen=True)
class TrainingSettings:
    """grpo: the arguments of GRPOConfig, all but output_dir and report_to."""

    grpo: dict[str, Any]
    max_prompt_length: int | None
    warmup_ratio: float | None
    kl_log_steps: int


@dataclass(frozen=True)
class RewardSettings:
    functions: tuple[RewardSpec, ...]


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
class UntilSettings:
    """Ends a stage early: the mean of a metric over the last `window` logged steps is above, or below, a value."""

    metric: str
    above: float | None = None
    below: float | None = None
    window: int = 20


@dataclass(frozen=True)
class RunSettings:
    """`rlvr-vocab train`.

    stages: what is trained one after another, each with settings of its own; empty for a run in one piece.
    resolved: the whole configuration as plain values, for config.yaml; it reloads.
    """

    exp_name: str
    seed: int
    output_dir: Path
    overwrite: bool
    resume: str
    allow_changes: tuple[str, ...]
    max_hours: float | None
    report: bool
    on_full_disk: Literal["stop", "go_on"]
    model: ModelSettings
    dataset: DatasetSettings
    warmup: WarmupSettings
    training: TrainingSettings
    rewards: RewardSettings
    logging: LoggingSettings
    resolved: dict[str, Any]
    stages: "tuple[StageSettings, ...]" = ()


@dataclass(frozen=True)
class StageSettings:
    """One stage of a run: the settings in force in it, and when it may end early."""

    name: str
    until: UntilSettings | None
    run: RunSettings


@dataclass(frozen=True)
class EvaluateSettings:
    """`rlvr-vocab evaluate`. checkpoint: one or several; out: None where several have their results beside them."""

    checkpoint: Path | tuple[Path, ...]
    base: Path | None
    dataset: DatasetSettings
    split: Literal["eval", "train"]
    samples: int
    backend: Literal["transformers", "vllm"]
    batch_size: int
    temperature: float | None
    max_new_tokens: int | None
    max_samples: int | None
    out: Path | None
    seed: int

    @property
    def checkpoints(self) -> tuple[Path, ...]:
        return (self.checkpoint,) if isinstance(self.checkpoint, Path) else self.checkpoint

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the results of each checkpoint go; under one `out` each has the end of its path that tells it apart."""
        if self.out is None:
            return tuple(each / "evaluation" / Path(self.dataset.name).stem for each in self.checkpoints)
        if isinstance(self.checkpoint, Path):
            return (self.out,)
        whole = [each.absolute() for each in self.checkpoints]
        shared = commonpath([each.parent for each in whole])
        return tuple(self.out / each.relative_to(shared) for each in whole)


@dataclass(frozen=True)
class GenerateSettings:
    """`rlvr-vocab generate`. One of prompt and prompts is given."""

    checkpoint: Path
    base: Path | None
    prompt: str | None
    prompts: Path | None
    system_prompt: str | None
    temperature: float | None
    top_p: float
    max_new_tokens: int
    batch_size: int
    format: Literal["text", "json"]
    seed: int


@dataclass(frozen=True)
class MergeSettings:
    checkpoint: Path
    base: Path | None
    out: Path
    dtype: Literal["auto", "fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class CheckSettings:
    """`rlvr-vocab check`. model: None where no tokens are counted."""

    model: ModelSettings | None
    dataset: DatasetSettings
    against: tuple[str, ...]
    against_subset: str | None
    against_split: str
    against_problem_column: str | None
    out: Path | None
    seed: int


@dataclass(frozen=True)
class ScoreSettings:
    """`rlvr-vocab score`: completions, or the gold answers of a dataset, or a model's answers to its problems.

    think_tags: None for those of the run that the completions are from.
    """

    model: ModelSettings | None
    dataset: DatasetSettings | None
    rewards: RewardSettings
    completions: Path | None
    completion_column: str
    prompt_column: str | None
    solution_column: str | None
    solution_format: Literal["bare", "hash", "boxed"]
    think_tags: tuple[str, str] | None
    samples: int
    batch_size: int
    max_samples: int | None
    show: int
    order: Literal["lowest", "highest", "file"]
    out: Path | None
    seed: int


@dataclass(frozen=True)
class ExpandSettings:
    model: ModelSettings
    out: Path
    seed: int


KINDS = {"int": int, "float": float, "bool": bool, "str": str, "dict": dict, "list": list}
# TRL's annotation allows num_generations=None, and then divides by it.
NEVER_NONE = {name for name, field in GRPO_FIELDS.items() if not field.optional} | {"num_generations"}
OURS = ("max_prompt_length", "warmup_ratio", "kl_log_steps")


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
        if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
            return value  # logging_steps and the like tell a count from a share by its size, TRL keeps ints too
        try:
            converted = read(KINDS[kind], value, key)
        except UserError:
            continue
        return converted if kind != "str" else read_choice_of(field, converted, key)
    raise wrong_type(value, key, " or ".join(KIND_NAMES[KINDS[kind]] for kind in field.kinds))


def read_choice_of(field: GrpoField, value: str, key: str) -> str:
    return read_choice(field.choices, value, key) if field.choices else value


def read_training(
    section: Mapping[str, Any], model: ModelSettings, rewards: RewardSettings, exp_name: str, seed: int
) -> TrainingSettings:
    """The training section as GRPOConfig arguments and our own keys.

    A null for a field that TRL allows no None for means: not set, TRL's default. `seed`, `run_name` and
    `reward_weights` are filled in from the keys that decide them, `eval_strategy` from `eval_steps`.
    """
    annotations = {"max_prompt_length": int | None, "warmup_ratio": float | None, "kl_log_steps": int}
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
        grpo["metric_for_best_model"] = grpo.get("metric_for_best_model") or "accuracy"
    grpo["reward_weights"] = [function.weight for function in rewards.functions]
    return TrainingSettings(grpo=grpo, **ours)


def add_generation_kwargs(grpo: dict[str, Any], model: ModelSettings) -> None:
    """model.generation_kwargs holds more than the two keys that training shares: hand them on."""
    extra = model.generation_kwargs
    if extra.get("cache_implementation") is not None:
        grpo["cache_implementation"] = extra["cache_implementation"]
    if extra.get("use_cache") is not None:
        grpo["generation_kwargs"] = {**(grpo.get("generation_kwargs") or {}), "use_cache": extra["use_cache"]}
