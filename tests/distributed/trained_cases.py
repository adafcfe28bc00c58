"""Trains the cases of a list, each for a few steps, in as many processes as the launcher started.

    accelerate launch --config_file accelerate_configs/ddp.yaml --num_processes 2 trained_cases.py CASES.json

Each case leaves in its folder `history.json` (the logged rows), `rank_<r>.json` (what process r has seen),
`model/` (what `save_model` writes) and `gathered.safetensors` (the same weights, read from the model in memory).
"""

import gc
import json
import os
import random
import sys
from pathlib import Path

if os.environ.get("ACCELERATE_USE_FSDP") == "true":
    from fsdp_on_cpu import shard_on_cpu

    shard_on_cpu()

import torch
from accelerate import PartialState
from datasets import Dataset
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from rlvr_vocab.errors import UserError, stop_signals
from rlvr_vocab.rewards.adaptive import Adaptation, AdaptiveWeight
from rlvr_vocab.training.arguments import grpo_config
from rlvr_vocab.training.drawn_tokens import sampled_spans
from rlvr_vocab.training.settings import Lora
from rlvr_vocab.training.stage import StopOnSignalOrTime
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.regions import region_of_next
from tests.conftest import ask
from tests.training.conftest import TWO_STEPS, largest_gap

QUESTIONS = ("What is 3 + 4?", "12 * 3?", "How many clips did Natalia sell in May, and how many in April?", "And now?")
LONGEST = 12
ARGUMENTS = {
    **TWO_STEPS,
    "max_steps": 3,
    "max_completion_length": LONGEST,
    "optim": "sgd",  # AdamW makes a step of the whole learning rate of a gradient that is rounding alone
    "learning_rate": 0.05,
    "lr_scheduler_type": "constant",
}


class ForcedTrainer(RegionGRPOTrainer):
    """Its completions follow from the prompt and the place in its group, whichever process they fall to."""

    def _generate_single_turn(self, prompt_ids, *_, **__):
        first = self.accelerator.process_index * len(prompt_ids)
        places = [(first + row) % self.num_generations for row in range(len(prompt_ids))]
        return [forced_completion(self.policy, *pair) for pair in zip(prompt_ids, places, strict=True)], None


class WatchedTrainer(RegionGRPOTrainer):
    """Keeps what it samples, and how far each token is scored from where it was sampled."""

    def _generate_and_score_completions(self, inputs):
        batch = super()._generate_and_score_completions(inputs)
        turns = [len([*sampled_spans(row)]) for row in batch["sampled_mask"].tolist()]
        seen.setdefault("turns", []).append(max(turns))
        seen.setdefault("farthest_from_its_score", []).append(largest_gap(self, batch))
        for part in ("prompt", "completion"):
            rows = zip(batch[f"{part}_ids"], batch[f"{part}_mask"].bool(), strict=True)
            seen.setdefault(f"{part}_ids", []).extend(row[chosen].tolist() for row, chosen in rows)
        return batch


class SecondIsToldToStop(TrainerCallback):
    """A signal reaches one process alone, in its first step."""

    def on_step_begin(self, *_, **__):
        if PartialState().process_index == 1:
            stop_signals.reason = "SIGTERM"


seen = {}


def forced_completion(policy, prompt_ids, place):
    """Ids that the policy allows, drawn from a generator of their own; the first of a group never stops thinking."""
    layout, draw = policy.layout, random.Random(1000 * sum(prompt_ids) + place)
    thinking = draw.randint(2, LONGEST - 6) if place else LONGEST
    length = draw.randint(thinking + 3, LONGEST) if place else LONGEST
    ids = [*prompt_ids, layout.think_open_id]
    while len(ids) - len(prompt_ids) < length:
        if len(ids) - len(prompt_ids) == thinking:
            ids.append(layout.think_close_id)
            continue
        region = int(region_of_next(torch.tensor([ids]), layout)[0])
        allowed = torch.isfinite(policy.bias_on(torch.device("cpu"))[region]).nonzero().flatten().tolist()
        ids.append(draw.choice([id_ for id_ in allowed if id_ not in layout.control_ids]))
    return ids[len(prompt_ids) :]


def evenness(completion_ids, **_):
    """The share of even ids: it differs within a group and asks for nothing but the ids."""
    return [sum(id_ % 2 == 0 for id_ in ids) / len(ids) for ids in completion_ids]


def is_short(completion_ids, **_):
    return [float(sum(ids) % 3 == 0) for ids in completion_ids]


def often_flat(completion_ids, solution, **_):
    """Of some problems all completions score the same."""
    return [float(len(text) % 2 and sum(ids) % 3 == 0) for ids, text in zip(completion_ids, solution, strict=True)]


def train(case):
    out = Path(case["out"])
    arguments = {**ARGUMENTS, "output_dir": str(out / "run"), **case.get("args", {})}
    lora = case.get("lora")
    rows = [{"prompt": [{"role": "user", "content": text}], "solution": text} for text in QUESTIONS * 4]
    seen.clear()
    adaptive = {"is_short": AdaptiveWeight(1.0, 1.0, Adaptation(below=0.4, window=1))} if case.get("adaptive") else None
    trainer = (ForcedTrainer if case.get("forced", True) else WatchedTrainer)(
        case["folder"],
        args=grpo_config(arguments),
        kl_log_steps=case.get("kl_log_steps", 0),
        adaptive_weights=adaptive,
        peft_config=None if lora is None else Lora(**lora),
        max_rounds=8 if case.get("dynamic_sampling") else 1,
        reward_funcs=[often_flat] if case.get("dynamic_sampling") else [evenness, is_short],
        train_dataset=Dataset.from_list(rows),
        tools=[ask] if case.get("tools") else None,
        callbacks=[StopOnSignalOrTime(), SecondIsToldToStop()] if case.get("second_is_told_to_stop") else [],
    )
    if case.get("first_ends_at_once") and trainer.accelerator.process_index == 0:
        trainer.generation_config.eos_token_id = list(range(trainer.policy.layout.rows))
    if case.get("tools") and trainer.accelerator.process_index == 0:
        trainer.max_tool_calling_iterations = 0
    trainer.train(resume_from_checkpoint=case.get("resume"))
    stop_signals.reason = None
    seen["class"] = type(trainer.model_wrapped).__name__
    seen["backend"] = torch.distributed.get_backend() if torch.distributed.is_initialized() else None
    gathered = gathered_weights(trainer)
    trainer.save_model(str(out / "model"))
    if trainer.accelerator.is_main_process:
        save_file(
            {name: weight.clone().contiguous() for name, weight in gathered.items()}, out / "gathered.safetensors"
        )
        (out / "history.json").write_text(json.dumps(trainer.state.log_history))
    (out / f"rank_{trainer.accelerator.process_index}.json").write_text(json.dumps(seen))


def gathered_weights(trainer):
    if trainer.is_deepspeed_enabled:
        return trainer.accelerator.get_state_dict(trainer.model_wrapped)
    weights = trainer.model.state_dict()
    return {name: weight.full_tensor() if isinstance(weight, DTensor) else weight for name, weight in weights.items()}


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    gc.freeze()  # each trainer looks for garbage at its end
    PartialState(cpu=all(case["args"].get("use_cpu", True) for case in cases))
    for one in cases:
        Path(one["out"]).mkdir(parents=True, exist_ok=True)
        try:
            train(one)
        except UserError as error:
            Path(one["out"], f"refused_{PartialState().process_index}").write_text(str(error))
    if PartialState().num_processes > 1:
        torch.distributed.destroy_process_group()
