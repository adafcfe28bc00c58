"""A run as training writes it: 50 steps of 64 completions."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

STEPS, ROWS, PER_PROBLEM = 50, 64, 8


@pytest.fixture(scope="session")
def model_folder(expand_shape: Callable[..., Path]) -> Path:
    """A model with two copies of every standard token."""
    return expand_shape("qwen3", size=None, multiplicity=2)


@pytest.fixture(scope="session")
def finished_run(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be written into. Of each problem's completions the first half is right; the reward rises with the step."""
    from rlvr_vocab.config.load import read_settings
    from rlvr_vocab.config.recorded import config_yaml
    from rlvr_vocab.vocab.tokenizer import load_tokenizer

    run = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(model_folder, run / "initial_model")
    settings = read_settings("train", ["model=tiny", "model.reasoning_vocab_size=full"])
    (run / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    tokenizer = load_tokenizer(model_folder)
    for step in range(1, STEPS + 1):
        write_step(run, step, tokenizer)
    return run


def write_step(run: Path, step: int, tokenizer: object) -> None:
    """The problems of a step come again ten steps later."""
    from rlvr_vocab.training.metrics.completions import CompletionRows, write_completions
    from rlvr_vocab.vocab.layout import VocabLayout

    layout, rng = VocabLayout.load(run / "initial_model"), random.Random(step)
    prompts, completions, right = [], [], []
    for row in range(ROWS):
        problem = (step % 10) * 8 + row // PER_PROBLEM
        prompts.append(tokenizer.encode(f"<|im_start|>user\nWhat is {problem} + 1?<|im_end|>\n<|im_start|>assistant\n"))
        right.append(row % PER_PROBLEM < PER_PROBLEM // 2)
        answer = problem + 1 if right[-1] else 0
        ids = tokenizer.encode(f"<think>{problem} and one, step {step}</think>\\boxed{{{answer}}}<|im_end|>")
        closed = ids.index(layout.think_close_id)
        completions.append(
            [
                token + layout.standard_size * rng.choice((0, 1, 2)) if 0 < position < closed else token
                for position, token in enumerate(ids)
            ]
        )
    rows = CompletionRows(
        prompt_ids=prompts,
        completion_ids=completions,
        completion=tokenizer.batch_decode(completions, skip_special_tokens=True),
        solution=[str((step % 10) * 8 + row // PER_PROBLEM + 1) for row in range(ROWS)],
        advantage=[1.0 if each else -1.0 for each in right],
        rewards={"accuracy": [float(each) for each in right], "speed": [step / 100] * ROWS},
        weights={"accuracy": 1.0, "speed": 1.0},
        reasons={"accuracy": ["equal" if each else "different: 0 is not it" for each in right]},
    )
    write_completions(rows, step, tokenizer, run / "completions")
