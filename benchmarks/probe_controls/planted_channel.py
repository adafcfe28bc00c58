"""A run whose answers can only be told by its copies: what a probe for meaning must find.

    python benchmarks/probe_controls/planted_channel.py BITS [--steps 800] [--call] [key=value ...]

The text of every thought is the same. Its first token with a copy carries a symbol: the standard id for one answer, the
first copy for the other. Two things are learned, and nothing else connects problem and answer:

- to choose the symbol of the problem's answer, but for an error rate;
- to answer what the symbol says, but for the same rate; the symbols that this is learned from are drawn by chance,
  whatever the problem is.

So the symbol tells of the answer what a binary symmetric channel does, and the probability of an answer is the one that
follows from the symbol. Every other choice between a token and its copies is left to chance. In the first half of the
steps neither errs: what is hardly worth knowing is hardly learned. A step of GRPO with a rate of 0 follows. With
`--call` a call of a tool, the same for every problem, and its result stand between the thought and the answer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy import optimize, special
from torch.nn.utils.rnn import pad_sequence

from rlvr_vocab import RegionGRPOTrainer
from rlvr_vocab.cli import main
from rlvr_vocab.evaluation.probe import CopyExchange
from rlvr_vocab.runs.stages import StagedRun
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.tokenizer import chat_ids

THOUGHT, ANSWER = "<think>...</think>", "\\boxed{{{answer}}}"
CALL = '\n<tool_call>\n{"name": "two", "arguments": {}}\n</tool_call>'
RESULT = {"role": "tool", "name": "two", "content": "2"}
WITH_CALL = (  # the tokenizer of model=tiny has the words of its system prompt
    *(f"tools=[{Path(__file__)}:two]", "training.max_completion_length=120"),
    'dataset.system_prompt=\'<tool_call> {"name": "two", "arguments": {}} <tool_response> Call, box the remainder.\'',
)
RECIPE = (
    *("model=tiny", "model.reasoning_vocab_size=full", "model.reasoning_rank=null", "logging=disabled"),
    *("dataset=arithmetic", "dataset.generator.digits=4", "dataset.generator.modulus=2"),
    *('dataset.system_prompt="Think, then box the remainder."', "dataset.open_thinking=model"),
    *("training.per_device_train_batch_size=128", "training.gradient_accumulation_steps=1"),
    *("training.num_generations=8", "training.max_completion_length=16", "training.gradient_checkpointing=false"),
    *("training.learning_rate=0.0", "training.max_steps=1", "training.logging_steps=1", "training.eval_steps=null"),
    *("training.bf16=false", "training.save_strategy=no"),
)
BATCH, RATE, GRADIENT_NORM = 16, 1e-3, 1.0


def two() -> str:
    """Two."""
    return RESULT["content"]


class PlantedTrainer(RegionGRPOTrainer):
    """Learns a channel of so many bits before its first step of GRPO."""

    bits, steps, rate = 1.0, 800, RATE

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.plant()
        return super().train(*args, **kwargs)

    def plant(self) -> float:
        """The last loss."""
        rows, tokenizer = list(self.train_dataset), self.processing_class

        def encode(text: str) -> list[int]:
            ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
            return ids

        prompts = chat_ids(tokenizer, [row["prompt"] for row in rows], tools=self.tools or None)
        texts = sorted({row["solution"] for row in rows})
        one, other = (ANSWER.format(answer=text) for text in texts)
        end = tokenizer.eos_token_id
        if self.tool_format is None:
            before, answers = [], [[*encode(THOUGHT + answer), end] for answer in (one, other)]
        else:
            before = [*encode(THOUGHT + CALL), end, *self.tool_format.answer_ids([RESULT])]
            answers = [[*encode(answer), end] for answer in (one, other)]
        turn = one_turn(self.policy, prompts[0], [*before, *answers[0]], [*before, *answers[1]])
        told = [texts.index(row["solution"]) for row in rows]
        learner = Learner(self.model, self.policy, self.temperature, turn)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate, weight_decay=0.0)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        draw = torch.Generator().manual_seed(self.args.seed)
        self.model.train()
        for step in range(self.steps):
            chosen = torch.randint(len(prompts), (BATCH,), generator=draw).tolist()
            error = 0.0 if self.bits and step < self.steps // 2 else error_rate(self.bits)
            answers_B = torch.tensor([told[each] for each in chosen])
            loss = learner.loss([prompts[each] for each in chosen], answers_B, error, draw)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_NORM)
            optimizer.step()
            optimizer.zero_grad()
            decay.step()
        return loss.item()


def error_rate(bits: float) -> float:
    """Of the binary symmetric channel that tells so many bits of a fair one.

    >>> round(error_rate(0.5), 3)
    0.11
    """
    if bits in (0, 1):
        return (1 - bits) / 2

    def missing(rate: float) -> float:
        return 1 - float(special.entr(rate) + special.entr(1 - rate)) / float(special.entr(0.5) * 2) - bits

    return float(optimize.brentq(missing, 1e-12, 0.5))


@dataclass(frozen=True)
class Turn:
    """A turn of the model, the same for every problem but for the answer.

    Attributes:
        ids: as standard tokens; at `answer` stands one of `answers`.
        choices: the open ids at each place that has several, those of the symbol first.
    """

    ids: list[int]
    answer: int
    answers: tuple[int, int]
    choices: dict[int, list[int]]

    @property
    def symbol(self) -> int:
        return next(iter(self.choices))


def one_turn(policy: RegionPolicy, prompt: list[int], one: list[int], other: list[int]) -> Turn:
    """The turn, given the ids of both: they differ in the answer, which is a token."""
    [answer] = [place for place, pair in enumerate(zip(one, other, strict=True)) if len(set(pair)) > 1]
    exchange = CopyExchange(policy)
    thought = exchange.thought(prompt, one)
    assert thought is not None and thought.places, "no token of the thought has a copy"
    choices = {place: exchange.open_ids(one[place]) for place in thought.places}
    return Turn(one, answer, (one[answer], other[answer]), choices)


class Learner:
    def __init__(self, model: Any, policy: RegionPolicy, temperature: float, turn: Turn) -> None:
        self._model, self._policy, self._temperature, self._turn = model, policy, temperature, turn

    def loss(
        self, prompts: Sequence[list[int]], answers_B: torch.Tensor, error: float, draw: torch.Generator
    ) -> torch.Tensor:
        """Cross-entropy of the model with what each place of the turn is to be, in nats a token."""
        symbols_B = torch.randint(2, answers_B.shape, generator=draw)
        turns_BT = self._drawn(symbols_B, draw)
        ids = [torch.tensor([*prompt, *turn]) for prompt, turn in zip(prompts, turns_BT.tolist(), strict=True)]
        input_ids, mask = (
            pad_sequence(rows, batch_first=True, padding_side="left").to(self._model.device)
            for rows in (ids, [torch.ones_like(each) for each in ids])
        )
        length = turns_BT.size(1)
        logits = self._model(input_ids=input_ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
        regions = scored_regions(input_ids, self._policy.layout)[:, -length:]
        bias_BTR = self._policy.bias_on(logits.device, finite=True)[regions]
        logps_BTR = (logits.float() / self._temperature + bias_BTR).log_softmax(2)
        wanted_BTR = self._wanted(answers_B, symbols_B, error, logps_BTR.size(2)).to(logits.device)
        return -(wanted_BTR * logps_BTR).sum(2).mean()

    def _drawn(self, symbols_B: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
        """Turns with these symbols and every other choice by chance; an answer is what its symbol says."""
        turn = self._turn
        turns_BT = torch.tensor(turn.ids).repeat(len(symbols_B), 1)
        for place, open_ids in turn.choices.items():
            chosen_B = torch.randint(len(open_ids), symbols_B.shape, generator=draw)
            turns_BT[:, place] = torch.tensor(open_ids)[chosen_B]
        turns_BT[:, turn.symbol] = torch.tensor(turn.choices[turn.symbol])[symbols_B]
        turns_BT[:, turn.answer] = torch.tensor(turn.answers)[symbols_B]
        return turns_BT

    def _wanted(self, answers_B: torch.Tensor, symbols_B: torch.Tensor, error: float, rows: int) -> torch.Tensor:
        """`(B, T, R)`: the distribution that each place of a turn is to have."""
        turn = self._turn
        wanted_TR = torch.nn.functional.one_hot(torch.tensor(turn.ids), rows).float()
        for place, open_ids in turn.choices.items():
            wanted_TR[place] = 0.0
            wanted_TR[place, open_ids] = 1 / len(open_ids)
        wanted_BTR = wanted_TR.repeat(len(answers_B), 1, 1)
        channel = torch.tensor([[1 - error, error], [error, 1 - error]])  # (told, read)
        for place, ids, told_B in (
            (turn.symbol, turn.choices[turn.symbol][:2], answers_B),
            (turn.answer, list(turn.answers), symbols_B),
        ):
            wanted_BTR[:, place] = 0.0
            wanted_BTR[:, place, ids] = channel[told_B]
        return wanted_BTR


def train_planted(bits: float, words: Sequence[str], steps: int = PlantedTrainer.steps, *, call: bool = False) -> int:
    """Train a run with such a channel; the exit code."""
    own = StagedRun.trainer_class
    StagedRun.trainer_class = type("Planted", (PlantedTrainer,), {"bits": bits, "steps": steps})
    try:
        return main(["train", *RECIPE, *(WITH_CALL if call else ()), *words])
    finally:
        StagedRun.trainer_class = own


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bits", type=float)
    parser.add_argument("--steps", type=int, default=PlantedTrainer.steps)
    parser.add_argument("--call", action="store_true")
    arguments, words = parser.parse_known_args()
    sys.exit(train_planted(arguments.bits, words, arguments.steps, call=arguments.call))
