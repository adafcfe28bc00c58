"""Short GRPO runs on tiny expanded models."""

from inspect import signature

import pytest

PROBLEMS = (
    [{"role": "user", "content": "What is 3 + 4?"}],
    [{"role": "system", "content": "Box the answer."}, {"role": "user", "content": "What is <think> for?"}],
    [
        {"role": "user", "content": "12 * 3?"},
        {"role": "assistant", "content": "<think>a</think>36<think>b</think>"},
        {"role": "user", "content": "And </think> <think>?"},
    ],
    [
        {"role": "user", "content": "How many clips?"},
        {"role": "assistant", "content": "<think>never closed"},
        {"role": "user", "content": "And now?"},
    ],
)

TWO_STEPS = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "num_generations": 4,
    "max_completion_length": 16,
    "learning_rate": 1e-3,
    "temperature": 1.0,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "model_init_kwargs": {"dtype": "float32"},
}


@pytest.fixture(scope="session")
def make_trainer():
    """A `RegionGRPOTrainer` for two steps on a folder; keyword arguments are its own, else fields of `GRPOConfig`."""
    return new_trainer


def new_trainer(folder, out, *, trainer=None, lora=None, bits=None, reward=None, rows=None, callbacks=(), **given):
    from datasets import Dataset

    from rlvr_vocab.training.arguments import grpo_config
    from rlvr_vocab.training.models.lora import quantization_config
    from rlvr_vocab.training.trainer import RegionGRPOTrainer

    of_trainer = {*signature(RegionGRPOTrainer.__init__).parameters, "tools", "environment_factory"}
    own = {name: given.pop(name) for name in list(given) if name in of_trainer}
    if rows is None:
        rows = [{"prompt": list(prompt), "solution": str(number)} for number, prompt in enumerate(PROBLEMS * 3)]
    return (trainer or RegionGRPOTrainer)(
        folder,
        args=grpo_config({"output_dir": str(out), **TWO_STEPS, **given}),
        peft_config=lora,
        quantization_config=None if bits is None else quantization_config(bits, folder, "float32", use_cpu=True),
        reward_funcs=[accuracy, spread] if reward is None else [reward],
        train_dataset=Dataset.from_list(rows),
        callbacks=list(callbacks),
        **own,
    )


def accuracy(completions, **_):
    """Differs within every group, so that there is something to learn."""
    return [float(number % 2) for number, _ in enumerate(completions)]


def spread(completions, **_):
    """Scores some completions and passes on others."""
    return [None if number % 4 == 3 else len(turn[0]["content"]) / 100 for number, turn in enumerate(completions)]


@pytest.fixture
def farthest_from_its_score():
    return largest_gap


def largest_gap(trainer, batch):
    """Of the sampled tokens of a batch, the largest distance between sampled and scored log-probability."""
    import torch

    from rlvr_vocab.training.metrics.batch import whole_sequences

    arguments = *whole_sequences(batch), batch["completion_ids"].size(1), len(batch["prompt_ids"])
    trainer.kept_texts = batch.get("kept_texts")
    with torch.no_grad():
        scores, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, *arguments)
    trainer.kept_texts = None
    sampled = batch["sampled_mask"].bool()
    return (batch["sampling_per_token_logps"] - scores)[sampled].abs().max().item()


def logits_of(model, rows):
    """Of two sequences of ids below `rows`, always the same."""
    import torch

    ids = torch.randint(0, rows, (2, 16), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return model(input_ids=ids).logits
