"""Work that a run asks of the machine: its model, the part that trains, its batches, and its problems.

Problems that are made here or lie in a file are read; a set of the hub is not, nor is a tokenizer that this machine
does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from rlvr_vocab.config.sections import RunSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.config.trl_fields import held_out_batch
from rlvr_vocab.data.files import local_file
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.reasoning_gym.tasks import REASONING_GYM, GymProblems
from rlvr_vocab.data.reasoning_gym.workers import make_entries
from rlvr_vocab.data.rows import Messages, build_messages, prompt_of
from rlvr_vocab.data.source import ARITHMETIC
from rlvr_vocab.plan.architecture import Architecture, architecture_of, folder_at_hand
from rlvr_vocab.training.settings import Lora, TinyShape
from rlvr_vocab.vocab.tokenizer import chat_texts, template_text

if TYPE_CHECKING:
    from transformers import TokenizersBackend

Sharding = Literal["none", "fsdp2", "deepspeed_zero3"]
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
USUAL_PROMPT = 256
_TINY_ROWS = 517  # at most: bytes and words up to 512, and five that are added
_ADAM_IN_8_BITS = ("adamw_8bit", "adamw_bnb_8bit")  # of bitsandbytes
# Bytes of optimizer state for each trained weight, by how the optimizer's name begins, whether it is `paged_` or not;
# AdamW's two moments elsewhere.
_OPTIMIZER_BYTES = {
    **dict.fromkeys((*_ADAM_IN_8_BITS, "adamw_torch_8bit"), 2),
    **dict.fromkeys(("adamw_torch_4bit", "lion_8bit", "rmsprop_bnb_8bit"), 1),
    **dict.fromkeys(("lion", "rmsprop", "adagrad"), 4),
    "ademamix": 12,
    "ademamix_8bit": 3,
    "adafactor": 0.1,
    "sgd": 0,
}
# Problems to train on of the shipped sets, as far as their pages tell.
_SHIPPED = {
    "agentica-org/DeepScaleR-Preview-Dataset": 40_315,
    "openai/gsm8k": 7_473,
    "DigitalLearningGmbH/MATH-lighteval": 7_500,
}
# Prompts whose tokens are counted: so many by chance, and of all others those with most characters.
_SAMPLE, _LONGEST = 1_000, 20
_OF_A_TASK = 20  # problems of reasoning-gym that are made to be looked at
# Where there is no tokenizer: characters of English and mathematics for a token, and tokens around each message.
_CHARACTERS, _AROUND = 3, 6


@dataclass(frozen=True)
class Workload:
    """One process of a run.

    Attributes:
        frozen_bytes, trained_bytes: of a weight; `bits` of quantized linear layers, None where there are none.
        halved_by: the cause of products in 16 bits: autocast, or frozen weights in that type.
        at_once, drawn: completions that are scored, and sampled, at a time; `batches` of them make a step.
        scored_before: whether the policy scores a batch once more before it is trained on.
        holds_reference: whether the reference is a model apart, not the trained one without its adapter.
        held_out: problems that are answered at a time; `evaluates_between_steps`: not only before and after training.
        vllm_share: of the card; None where Transformers samples, 0 where a server does.
    """

    architecture: Architecture
    copies: int
    rank: int | None
    lora: Lora | None
    frozen_bytes: float
    trained_bytes: float
    bits: int | None
    halved_by: Literal["autocast", "weights"] | None
    attention: str
    at_once: int
    batches: int
    drawn: int
    prompt: int
    completion: int
    iterations: int
    scored_before: bool
    checkpointing: bool
    scores_reference: bool
    holds_reference: bool
    logs_kl: bool
    optimizer: str
    held_out: int
    evaluates_between_steps: bool
    saves: bool
    vllm_share: float | None
    vllm_sleeps: bool
    processes: int
    sharding: Sharding

    @property
    def half(self) -> bool:
        """Whether products are computed in 16 bits."""
        return self.halved_by is not None

    @property
    def shards(self) -> int:
        """Over how many processes what trains is spread."""
        return 1 if self.sharding == "none" else self.processes

    @property
    def tokens(self) -> int:
        """Of a completion with its prompt."""
        return self.prompt + self.completion

    @property
    def all_rows(self) -> int:
        return self.architecture.rows + self.copies

    @property
    def copy_weights(self) -> int:
        """Parameters that tell copies from their sources, in one table, while the model trains."""
        hidden = self.architecture.hidden
        if self.rank is None or not self.copies:
            return self.copies * hidden
        return (self.copies + hidden) * self.rank

    @property
    def adapter_weights(self) -> int:
        if self.lora is None:
            return 0
        shape, lora = self.architecture, self.lora
        per_layer = sum(lora.r * (inputs + outputs) for inputs, outputs in shape.linears)
        return round(shape.layers * per_layer * self.adapted_share)

    @property
    def adapted_share(self) -> float:
        """Of the linear layers of a block."""
        if self.lora is None:
            return 0.0
        targets = self.lora.target_modules
        return 1.0 if isinstance(targets, str) else min(1.0, len(targets) / len(self.architecture.linears))

    @property
    def trained_weights(self) -> int:
        shape = self.architecture
        if self.lora is None:
            return shape.weights + self.copy_weights * shape.tables
        rows = {"all": shape.rows * shape.hidden + self.copy_weights, "reasoning": self.copy_weights, "none": 0}
        return self.adapter_weights + rows[self.lora.train_rows] * shape.tables

    @property
    def optimizer_state(self) -> float:
        """Bytes, of all processes that share it."""
        own = self.copies if self.rank is None else 0
        in_32_bits = 0
        if self.lora is None and self.optimizer.removeprefix("paged_") in _ADAM_IN_8_BITS:
            # Transformers has bitsandbytes keep the two moments of an embedding so.
            in_32_bits = (self.architecture.rows + own) * self.architecture.hidden
        others = self.trained_weights - in_32_bits
        return 8 * in_32_bits + others * optimizer_bytes(self.optimizer, self.trained_bytes)

    @property
    def frozen_weights(self) -> int:
        """Those of a base under an adapter; copies that are rows of their own have their first ones there."""
        if self.lora is None:
            return 0
        own_rows = self.copies * self.architecture.hidden if self.rank is None else 0
        return self.architecture.weights + own_rows * self.architecture.tables


def workload_of(
    run: RunSettings,
    *,
    has_bf16: bool,
    processes: int = 1,
    sharding: Sharding = "none",
    shape: Architecture | None = None,
    copies: int | None = None,
) -> Workload:
    """The work of each process of a run, or of a stage of one.

    Args:
        has_bf16: whether the device multiplies in bfloat16.
        shape, copies: of the model, where it has been read.

    Raises:
        UserError: the model's shape is not at hand.
    """
    model, grpo = run.model, run.training.grpo
    shape = shape or architecture_of_run(run)
    lora = model.lora if model.trains_adapter else None
    batches, at_once = grpo["gradient_accumulation_steps"], grpo["per_device_train_batch_size"]
    drawn_batches, iterations = drawn_together(grpo, at_once * processes), grpo["num_iterations"]
    vllm, colocated = bool(grpo.get("use_vllm")), grpo["vllm_mode"] == "colocate"
    vllm_share = float(grpo["vllm_gpu_memory_utilization"]) if colocated else 0.0
    quantized = model.bits if lora is not None else None
    beta = bool(grpo["beta"])
    frozen = model.dtype if has_bf16 or model.dtype != "bfloat16" else "float32"
    by_weights: Literal["weights"] | None = "weights" if lora is not None and frozen != "float32" else None
    return Workload(
        architecture=shape,
        copies=copies_of(run, shape) if copies is None else copies,
        rank=model.reasoning_rank,
        lora=lora,
        frozen_bytes=BYTES[frozen],
        trained_bytes=BYTES[model.loaded_dtype] if lora is None else 4,
        bits=quantized,
        halved_by="autocast" if grpo.get("fp16") or computes_in_bf16(grpo, has_bf16) else by_weights,
        attention=str(model.model_kwargs.get("attn_implementation") or "sdpa"),
        at_once=at_once,
        batches=batches,
        drawn=at_once * drawn_batches,
        prompt=run.training.max_prompt_length or USUAL_PROMPT,
        completion=grpo["max_completion_length"],
        iterations=iterations,
        scored_before=batches % (drawn_batches * iterations) != 0
        or (vllm and bool(grpo["vllm_importance_sampling_correction"]))
        or (lora is not None and lora.lora_dropout > 0),
        checkpointing=checkpoints_activations(run),
        scores_reference=beta,
        holds_reference=beta and lora is None,
        logs_kl=not beta and run.training.kl_log_steps != 0 and lora is None and sharding == "none",
        optimizer=str(grpo["optim"]),
        held_out=_held_out(run),
        evaluates_between_steps=grpo["eval_strategy"] != "no",
        saves=grpo["save_strategy"] != "no",
        vllm_share=vllm_share if vllm else None,
        vllm_sleeps=bool(grpo["vllm_enable_sleep_mode"]),
        processes=processes,
        sharding=sharding,
    )


def architecture_of_run(run: RunSettings) -> Architecture:
    model = run.model
    return architecture_of(model.name) if model.tiny is None else tiny_architecture(model.tiny)


def tiny_architecture(shape: TinyShape, rows: int = _TINY_ROWS) -> Architecture:
    """Of the embedded model."""
    return Architecture(
        model_type="qwen3",
        hidden=shape.hidden_size,
        intermediate=shape.intermediate_size,
        layers=shape.num_layers,
        heads=shape.num_heads,
        kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        rows=rows,
        tied=True,
        context=None,
    )


def checkpoints_activations(run: RunSettings) -> bool:
    return bool(run.training.grpo["gradient_checkpointing"])


def copies_of(run: RunSettings, shape: Architecture) -> int:
    size = run.model.reasoning_vocab_size
    if size == "full":
        return shape.rows * run.model.reasoning_multiplicity
    return size


def drawn_together(grpo: Mapping[str, Any], completions_at_once: int) -> int:
    """Batches of so many completions that are sampled together."""
    size = grpo["generation_batch_size"]
    if size is not None:
        return int(size) // completions_at_once
    return int(grpo["steps_per_generation"] or grpo["gradient_accumulation_steps"])


def computes_in_bf16(grpo: Mapping[str, Any], has_bf16: bool) -> bool:
    """As `training.arguments` decides it, which asks torch what the device can do."""
    asked = not grpo.get("fp16") if grpo.get("bf16") is None else bool(grpo["bf16"])
    return asked and has_bf16


def optimizer_bytes(name: str, trained_bytes: float) -> float:
    """Of state for each weight that trains."""
    name = name.removeprefix("paged_")
    best = max((known for known in _OPTIMIZER_BYTES if name.startswith(known)), key=len, default=None)
    return 2 * trained_bytes if best is None else _OPTIMIZER_BYTES[best]


def _held_out(run: RunSettings) -> int:
    dataset = run.dataset
    if not dataset.eval_fraction and dataset.eval_split is None:
        return 0
    batch = held_out_batch(run.training.grpo)
    return batch if dataset.max_eval_samples is None else min(batch, dataset.max_eval_samples)


@dataclass(frozen=True)
class ProblemsAhead:
    """What a stage trains on.

    Attributes:
        count: how many problems; None where nobody says.
        prompts: tokens of each, or of a sample of them; none where the problems are not at hand.
    """

    count: int | None = None
    prompts: tuple[int, ...] = ()


def problems_ahead(run: RunSettings) -> ProblemsAhead:
    """What a run trains on; for one in stages, the prompts of all, and the count where all take the same set.

    Raises:
        UserError: a problem set that is at hand cannot be read, or the model's chat template refuses it.
    """
    stages = [stage.run for stage in run.stages] or [run]
    ahead = [_of_stage(stage) for stage in {stage.dataset: stage for stage in stages}.values()]
    prompts = tuple(length for each in ahead for length in each.prompts)
    return ProblemsAhead(ahead[0].count if len(ahead) == 1 else None, prompts)


def longest_met(prompts: Sequence[int], draws: float) -> int:
    """Tokens of the longest prompt that so many draws probably meet; of all of them where they are many."""
    return sorted(prompts)[min(len(prompts) - 1, int(len(prompts) * (1 - 1 / (draws + 1))))]


def problems_by_configuration(run: RunSettings) -> int | None:
    """Problems to train on, as far as the configuration alone tells."""
    dataset = run.dataset
    known, held_out = dataset.num_problems, dataset.eval_fraction
    if known is None:
        known, held_out = _SHIPPED.get(dataset.name), held_out if dataset.eval_split is None else 0.0
    found = None if known is None else round(known * (1 - held_out))
    most = dataset.max_train_samples
    return found if most is None else min(most, found or most)


def _of_stage(run: RunSettings) -> ProblemsAhead:
    dataset, style, source = run.dataset, prompt_style(run.dataset), problem_source(run.dataset)
    count = problems_by_configuration(run)
    if isinstance(source.generator, GymProblems):
        prompts = [build_messages(text, style) for text in _of_gym(source.generator)]
    elif source.name == ARITHMETIC or local_file(source.name) is not None:
        trained = read_problems(source, problem_split(dataset, run.seed)).trained
        count, prompts = len(trained), [prompt_of(problem, style) for problem in trained]
    else:
        prompts = []
    lengths = _lengths(run, _sample(prompts)) if prompts else []
    limit = run.training.max_prompt_length
    return ProblemsAhead(count, tuple(length for length in lengths if limit is None or length <= limit))


def _of_gym(problems: GymProblems) -> list[str]:
    """Some problems of each task; none where the package is not installed."""
    if find_spec(REASONING_GYM) is None:
        return []
    return [entry.question for task in problems.tasks for entry in make_entries(task.name, task.params, 0, _OF_A_TASK)]


def _sample(prompts: list[Messages]) -> list[Messages]:
    """The first, which stand in an order of chance, and the longest of the others."""
    others = sorted(prompts[_SAMPLE:], key=_characters, reverse=True)
    return [*prompts[:_SAMPLE], *others[:_LONGEST]]


def _characters(prompt: Messages) -> int:
    return sum(len(message["content"]) for message in prompt)


def _lengths(run: RunSettings, prompts: list[Messages]) -> list[int]:
    """Tokens of each prompt, estimated from its characters where there is no tokenizer to count with."""
    tokenizer, template = _tokenizer(run), template_text(run.model.chat_template)
    if tokenizer is None or (template is None and tokenizer.chat_template is None):
        return [_characters(prompt) // _CHARACTERS + _AROUND * (len(prompt) + 1) for prompt in prompts]
    texts = chat_texts(tokenizer, prompts, chat_template=template)
    # The library itself: its wrapper in Transformers takes thrice as long, and masks nobody asked for.
    encoded = tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [len(each) for each in encoded]


def _tokenizer(run: RunSettings) -> TokenizersBackend | None:
    model = run.model
    if model.tiny is not None:
        from rlvr_vocab.training.models.tiny import tiny_tokenizer, vocabulary_texts

        texts = vocabulary_texts(run.dataset.system_prompt, run.dataset.tasks or ())
        return tiny_tokenizer(texts, model.think_tags)
    folder = folder_at_hand(model.name)
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    from transformers import TokenizersBackend

    return TokenizersBackend.from_pretrained(str(folder))
