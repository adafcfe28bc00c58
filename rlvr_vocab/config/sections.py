"""The configuration of a run as frozen dataclasses, read by `values.read`, with their rules beside the fields.

The defaults are in conf/. A key that is no field is unknown.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import AfterValidator, BeforeValidator, ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

from rlvr_vocab.bounds import Count, NotNegative, OutFolder, Seed, UserPath, WholeFrom0
from rlvr_vocab.config.trl_fields import GrpoFields
from rlvr_vocab.config.values import INLINE, NO_KEY, ONE_KEY
from rlvr_vocab.data.generators import REASONING_GYM, ArithmeticTask, GymProblems, GymTask, without_worked_solutions
from rlvr_vocab.data.source import AnswerFormat, Columns, DecimalMark, ProblemSource, PromptStyle, Split
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.text import nearest_word
from rlvr_vocab.training.settings import CurriculumSettings, KLOver, Lora, TinyShape, UntilSettings, WarmupSettings

LONG_DTYPE_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
NOT_FOR_FROM_PRETRAINED = ("torch_dtype", "load_in_8bit", "load_in_4bit")


def _two_tags(tags: tuple[str, str]) -> tuple[str, str]:
    if tags[0] == tags[1] or not all(tag.strip() for tag in tags):
        raise ValueError("must be two different non-empty strings")
    return tags


ThinkTags = Annotated[tuple[str, str], AfterValidator(_two_tags)]


@with_config(ConfigDict(extra="allow", allow_inf_nan=False))
class FromPretrained(TypedDict):
    """Arguments of from_pretrained whose type is checked: the text `no` would switch one on."""

    torch_dtype: Literal["bf16", "fp16", "fp32", "bfloat16", "float16", "float32"]
    load_in_8bit: NotRequired[bool | None]
    load_in_4bit: NotRequired[bool | None]
    trust_remote_code: NotRequired[bool | None]
    local_files_only: NotRequired[bool | None]


class GenerationKwargs(TypedDict):
    """The completion limit and the temperature of training, by other names than in the section training."""

    max_new_tokens: Count | None
    temperature: NotNegative | None


_KWARGS_NOT_USED = {
    "quantization_config": "set model.model_kwargs.load_in_8bit or model.model_kwargs.load_in_4bit to true",
    **dict.fromkeys(("use_safetensors", "weights_only"), "weights are read as safetensors alone; leave it out"),
}


def _no_other_spelling(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Any argument may pass through, but none that is nearly one of ours."""
    for key in kwargs:
        nearest = nearest_word(key, NOT_FOR_FROM_PRETRAINED)
        mistyped = key not in NOT_FOR_FROM_PRETRAINED and nearest and abs(len(key) - len(nearest)) <= 2
        if key == "dtype" or mistyped:
            raise UserError(f"unknown key model.model_kwargs.{key}; did you mean model.model_kwargs.{nearest}?")
        if key in _KWARGS_NOT_USED:
            raise UserError(f"model.model_kwargs.{key} is not used here: {_KWARGS_NOT_USED[key]}")
    return kwargs


if TYPE_CHECKING:
    Grpo = dict[str, Any]
    ModelKwargs = dict[str, Any]
    Generation = dict[str, Any]
else:
    Grpo = GrpoFields
    Generation = GenerationKwargs
    ModelKwargs = Annotated[FromPretrained, AfterValidator(_no_other_spelling)]


PATTERN = "re:"


def _chosen_tokens(chosen: Any) -> Any:
    """A list, `re:` with a pattern, or in place of a file its lines: whole numbers are ids, other lines words."""
    if not isinstance(chosen, str):
        return tuple(chosen) if isinstance(chosen, list) else chosen
    if chosen.startswith(PATTERN):
        try:
            re.compile(chosen.removeprefix(PATTERN))
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return chosen
    try:
        lines = Path(chosen).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        expected = f"expected a list, {PATTERN}PATTERN, or a text file with a word or an id a line"
        raise ValueError("no such file, " * isinstance(error, FileNotFoundError) + expected) from error
    words = [line.strip() for line in lines if line.strip()]
    return tuple(int(word) if word.isdecimal() else word for word in words)


PastThinking = Literal["keep", "strip", "reencode"]
TokenChoice = tuple[WholeFrom0 | Annotated[str, MinLen(1)], ...]


@dataclass(frozen=True)
class ModelSettings:
    name: Annotated[str, MinLen(1)]
    reasoning_vocab_size: WholeFrom0 | Literal["full"]
    reasoning_multiplicity: Count
    source_ids: Annotated[Annotated[TokenChoice, MinLen(1)] | str | None, BeforeValidator(_chosen_tokens)]
    reasoning_mode: Literal["expand", "replace"]
    reasoning_rank: WholeFrom0 | None
    preserve_odds: bool
    think_tags: ThinkTags
    init_noise: NotNegative
    pure_bf16: bool
    chat_template: UserPath | None
    past_thinking: PastThinking
    model_kwargs: ModelKwargs
    generation_kwargs: Generation
    lora: Lora
    tiny: TinyShape | None

    def __post_init__(self) -> None:
        ids, n, lora = self.source_ids, self.reasoning_vocab_size, self.lora
        if ids is not None and n != 0 and (self.chooses_by_text or n != len(ids)):
            raise UserError(f"model.source_ids sets the number of copies, and model.reasoning_vocab_size={n} another")
        if isinstance(ids, tuple) and len(set(ids)) < len(ids) and self.reasoning_multiplicity == 1:
            raise UserError(f"model.source_ids: {Counter(ids).most_common(1)[0][0]} stands in it twice; give it once")
        if ids is not None and not self.chooses_by_text:
            object.__setattr__(self, "reasoning_vocab_size", len(ids))
        if (self.tiny is not None) != (self.name == "tiny"):
            raise UserError(f"model.name={self.name}: model.tiny belongs to model=tiny alone, choose that file")
        if self.model_kwargs.get("load_in_8bit") and self.model_kwargs.get("load_in_4bit"):
            raise UserError("model.model_kwargs.load_in_8bit=true and load_in_4bit=true: choose one of them")
        if self.needs_adapter is not None and lora.enabled is False:
            raise UserError(f"{self.needs_adapter}: only an adapter can train; leave model.lora.enabled=false out")
        if self.adds_copies and self.trains_adapter and lora.train_rows == "all" and self.reasoning_rank is not None:
            rank = f"model.reasoning_rank={self.reasoning_rank}"
            raise UserError(f"model.lora.train_rows=all trains whole rows: set reasoning, or null in place of {rank}")

    @property
    def bits(self) -> Literal[4, 8] | None:
        """Of the weights of linear layers; None where they are not quantized."""
        if self.model_kwargs.get("load_in_8bit"):
            return 8
        return 4 if self.model_kwargs.get("load_in_4bit") else None

    @property
    def needs_adapter(self) -> str | None:
        """The setting under which only an adapter can train; None where the weights themselves may train."""
        return None if self.bits is None else f"model.model_kwargs.load_in_{self.bits}bit=true"

    @property
    def adds_copies(self) -> bool:
        return self.reasoning_vocab_size != 0 or self.source_ids is not None

    @property
    def chooses_by_text(self) -> bool:
        """Whether `source_ids` has words or a pattern, so that the tokenizer decides the number of copies."""
        return isinstance(self.source_ids, str) or any(isinstance(each, str) for each in self.source_ids or ())

    @property
    def trains_adapter(self) -> bool:
        """Quantized weights switch LoRA on, unless `lora.enabled` says otherwise."""
        return self.needs_adapter is not None if self.lora.enabled is None else self.lora.enabled

    @property
    def dtype(self) -> str:
        """torch_dtype by its long name: "bfloat16", "float16" or "float32"."""
        short = str(self.model_kwargs["torch_dtype"])
        return LONG_DTYPE_NAMES.get(short, short)

    @property
    def loaded_dtype(self) -> str:
        """Type of the weights that a run loads: those that train are float32 unless pure_bf16 says otherwise."""
        return self.dtype if self.pure_bf16 or self.trains_adapter else "float32"

    @property
    def from_pretrained_kwargs(self) -> dict[str, Any]:
        """The model_kwargs that pass through to from_pretrained."""
        return {key: value for key, value in self.model_kwargs.items() if key not in NOT_FOR_FROM_PRETRAINED}


@dataclass(frozen=True)
class SolvedTurn:
    problem: str
    answer: str


def _named(value: Any) -> Any:
    """A name alone stands for the section that it names."""
    return {"name": value} if isinstance(value, str) else value


@dataclass(frozen=True)
class DatasetSettings:
    name: Annotated[str, MinLen(1)]
    subset: str | None
    split: str
    eval_split: str | None
    eval_fraction: Annotated[float, Ge(0), Lt(1)]
    max_eval_samples: WholeFrom0 | None
    max_train_samples: Count | None
    columns: Columns
    answer_format: AnswerFormat
    decimal: DecimalMark
    generator: ArithmeticTask | None
    curriculum: CurriculumSettings
    system_prompt: str | None
    examples: tuple[SolvedTurn, ...] | None
    open_thinking: Literal["auto", "model", "prefill"]
    tasks: tuple[Annotated[GymTask, BeforeValidator(_named)], ...] | None = None
    num_problems: Count | None = None
    header: tuple[str, ...] | None = None
    prompt: Annotated[str, MinLen(1)] | None = None

    def __post_init__(self) -> None:
        if (self.generator is not None) != (self.name == "arithmetic"):
            raise UserError(f"dataset.name={self.name}: dataset.generator belongs to dataset=arithmetic alone")


def with_full_path(name: Any) -> Any:
    """`file.py:attribute` with the file's full path."""
    file, _, attribute = str(name).rpartition(":")
    path = Path(file).expanduser()
    return f"{path.absolute()}:{attribute}" if file.endswith(".py") and path.is_file() else name


@dataclass(frozen=True)
class TrainingSettings:
    """grpo: the arguments of GRPOConfig, all but output_dir and report_to."""

    grpo: Grpo = field(metadata={INLINE: True})
    max_prompt_length: Count | None
    warmup_ratio: Annotated[float, Ge(0), Lt(1)] | None
    kl_log_steps: WholeFrom0 | None
    kl_over: KLOver
    dynamic_sampling: bool
    max_rounds: Count
    max_tokens: Count | None
    trainer: Annotated[str, BeforeValidator(with_full_path)] | None


OURS = tuple(each.name for each in fields(TrainingSettings) if each.name != "grpo")


def _apart(section: Any) -> Any:
    """Our keys of the section training apart from TRL's."""
    if not isinstance(section, dict):
        return section
    ours = {name: value for name, value in section.items() if name in OURS}
    return {**ours, "grpo": {name: value for name, value in section.items() if name not in OURS}}


def as_function(function: Any) -> Any:
    """A name alone is a whole function; `adaptive: true` means the usual factors; a file is named by its full path."""
    if not isinstance(function := _named(function), dict):
        return function
    function = dict(function)
    if isinstance(function.get("adaptive"), bool):
        function["adaptive"] = {} if function["adaptive"] else None
    return {**function, "name": with_full_path(function.get("name"))}


def as_tuple(value: Any) -> Any:
    """A list becomes a tuple, a single value a tuple of one; None stays None."""
    if isinstance(value, list):
        return tuple(value)
    return value if value is None else (value,)


@dataclass(frozen=True)
class EnvironmentSettings:
    """The class of a run's environments, `file.py:Class` or `module:Class`, and the arguments that make one."""

    name: Annotated[str, BeforeValidator(with_full_path)]
    params: dict[str, Any] = field(default_factory=dict)


ToolNames = tuple[Annotated[str, BeforeValidator(with_full_path)], ...]
Environment = Annotated[EnvironmentSettings | None, BeforeValidator(_named)]
Function = Annotated[RewardSpec, BeforeValidator(as_function)]
Grader = Annotated[tuple[Function, ...] | None, BeforeValidator(as_tuple)]


@dataclass(frozen=True)
class RewardSettings:
    functions: tuple[Function, ...]


@dataclass(frozen=True)
class EvaluationSettings:
    """How held-out answers are graded; both None for what the run's rewards say (`rewards.grader.grader_spec`)."""

    grader: Grader
    threshold: float | None


@dataclass(frozen=True)
class LoggingSettings:
    """Where metrics go beside metrics.jsonl; `mode` is that of W&B."""

    enabled: bool
    project: str
    mode: Literal["online", "offline", "disabled"]
    trackers: tuple[Literal["wandb", "tensorboard", "trackio", "mlflow"], ...] = ("wandb",)

    @property
    def report_to(self) -> list[str]:
        """GRPOConfig's report_to."""
        return list(self.trackers) if self.enabled and self.mode != "disabled" else []


def _run_name(name: str) -> str:
    leaves_out = not {"", ".", ".."}.isdisjoint(name.split("/")) or name.startswith("~") or "\\" in name
    if leaves_out or not name.isprintable() or not name.strip():
        raise ValueError("names the folder of the run, out/<exp_name>; use letters and digits")
    return name


@dataclass(frozen=True)
class RunSettings:
    """train a model with GRPO, with a reasoning vocabulary or without

    Example: rlvr-vocab train dataset=gsm8k training=small_gpu model.reasoning_vocab_size=1000

    stages: what is trained one after another, each with settings of its own; empty for a run in one piece.
    resolved: the whole configuration as plain values, for config.yaml; it reloads.
    """

    exp_name: Annotated[str, AfterValidator(_run_name)]
    seed: Seed
    output_dir: OutFolder
    overwrite: bool
    resume: str
    allow_changes: tuple[str, ...]
    max_hours: Annotated[float, Gt(0)] | None
    report: bool
    on_full_disk: Literal["stop", "go_on"]
    model: ModelSettings
    dataset: DatasetSettings
    tools: Annotated[ToolNames, BeforeValidator(as_tuple)]
    environment: Environment
    warmup: WarmupSettings
    training: Annotated[TrainingSettings, BeforeValidator(_apart)]
    rewards: RewardSettings
    evaluation: EvaluationSettings
    logging: LoggingSettings
    resolved: dict[str, Any] = field(default_factory=dict, metadata={NO_KEY: True})
    stages: "tuple[StageSettings, ...]" = field(default=(), metadata={ONE_KEY: True})

    @property
    def uses_tools(self) -> bool:
        return bool(self.tools) or self.environment is not None


def grpo_arguments(run: RunSettings) -> dict[str, Any]:
    """TRL's arguments, with what other keys decide: the seed, the name, weights of rewards."""
    training = run.training
    grpo: dict[str, Any] = {**training.grpo, "seed": run.seed, "run_name": run.exp_name}
    grpo["warmup_ratio"] = training.warmup_ratio
    grpo.setdefault("eval_strategy", "no" if grpo["eval_steps"] is None else "steps")
    if grpo.get("load_best_model_at_end"):
        grpo["metric_for_best_model"] = grpo.get("metric_for_best_model") or "reward"
    grpo["reward_weights"] = [function.weight for function in run.rewards.functions]
    return grpo


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ValueError("is no name for a folder; use letters, digits, - and _")
    return name


@dataclass(frozen=True)
class StageKeys:
    """A stage as it is written: each section holds keys, or the name of a file of its group."""

    name: Annotated[str, AfterValidator(_folder_name)]
    rewards: str | list[Any] | dict[str, Any] | None = None
    training: str | dict[str, Any] | None = None
    dataset: str | dict[str, Any] | None = None
    generation: dict[str, Any] | None = None
    until: UntilSettings | None = None


@dataclass(frozen=True)
class StageSettings:
    """One stage of a run: the settings in force in it, the keys that it sets itself, and when it may end early."""

    name: str
    until: UntilSettings | None
    run: RunSettings
    keys: frozenset[str] = field(default=frozenset(), compare=False)  # of a recorded run those that differ


def stages_of(settings: RunSettings) -> tuple[StageSettings, ...]:
    """The stages of a run; a run without stages is one unnamed stage. A token budget counts as a goal."""
    stages = []
    for stage in settings.stages or (StageSettings("", None, settings),):
        tokens = stage.run.training.max_tokens
        until = stage.until if tokens is None else UntilSettings("num_tokens", above=tokens - 1, window=1)
        stages.append(replace(stage, until=until))
    return tuple(stages)


@contextmanager
def stage_error_context(name: str) -> Iterator[None]:
    """Put the name of the stage in front of an error; a run in one piece has a stage without a name."""
    try:
        yield
    except UserError as error:
        if not name:
            raise
        raise UserError(f"stage {name}: {error}") from error


def problem_source(dataset: DatasetSettings) -> ProblemSource:
    gym = _gym_problems(dataset)
    columns, key = dataset.columns, "dataset.columns.problem"
    if gym is not None and without_worked_solutions(gym.tasks):
        columns = replace(columns, reasoning=None)
    if dataset.prompt is not None:
        columns, key = replace(columns, problem=dataset.prompt), "dataset.prompt"
    return ProblemSource(
        name=dataset.name,
        columns=columns,
        subset=dataset.subset,
        split=dataset.split,
        eval_split=dataset.eval_split,
        answer_format=dataset.answer_format,
        decimal=dataset.decimal,
        header=dataset.header,
        problem_key=key,
        generator=dataset.generator if gym is None else gym,
    )


def _gym_problems(dataset: DatasetSettings) -> GymProblems | None:
    """The tasks of reasoning-gym that a problem set is made of; None for any other set."""
    tasks, number = dataset.tasks, dataset.num_problems
    if dataset.name != REASONING_GYM:
        if tasks is not None or number is not None:
            raise UserError(f"dataset.tasks and dataset.num_problems belong to dataset={REASONING_GYM}")
        return None
    if tasks is None or number is None:
        raise UserError(f"dataset.tasks is missing, as in dataset={REASONING_GYM} dataset.tasks=[chain_sum,lcm]")
    holds_out = dataset.eval_split is not None
    if holds_out and not dataset.eval_fraction:
        raise UserError("dataset.eval_fraction=0 holds no problem out: set dataset.eval_split=null too")
    return GymProblems(tasks, number, max(1, round(dataset.eval_fraction * number)) if holds_out else 0)


def prompt_style(dataset: DatasetSettings) -> PromptStyle:
    return PromptStyle(dataset.system_prompt, tuple((turn.problem, turn.answer) for turn in dataset.examples or ()))


def problem_split(dataset: DatasetSettings, seed: int) -> Split:
    fraction = 0.0 if dataset.eval_split is not None else dataset.eval_fraction
    return Split(fraction, dataset.max_train_samples, dataset.max_eval_samples, seed)
