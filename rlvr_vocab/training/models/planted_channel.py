"""A model whose answers can only be told by its copies: what a probe for meaning must find.

The text of every thought is the same. Its first token with a copy carries a symbol: the standard id for one answer, the
first copy for the other. Two things are learned, and nothing else connects problem and answer:

- to choose the symbol of the problem's answer, but for an error rate;
- to answer what the symbol says, but for the same rate; the symbols that this is learned from are drawn by chance,
  whatever the problem is.

So the symbol tells of the answer what a binary symmetric channel does, and the probability of an answer is the one that
follows from the symbol. Every other choice between a token and its copies is left to chance. In the first half of the
steps neither errs: what is hardly worth knowing is hardly learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from scipy import optimize, special
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.models.warmup import WorkedProblem
from rlvr_vocab.training.settings import WarmupSettings
from rlvr_vocab.vocab.interventions import CopyExchange
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions
from rlvr_vocab.vocab.tokenizer import load_tokenizer

_GRADIENT_NORM = 1.0


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
class _Turn:
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


def plant_channel(
    folder: Path,
    problems: Sequence[WorkedProblem],
    settings: WarmupSettings,
    bits: float,
    temperature: float,
    seed: int,
    on_progress: Callable[[int, float], None],
) -> None:
    """Train the expanded model of a folder, in place.

    Args:
        problems: whose turns are the same but for one token, the answer, which is one of two.
        bits: what the symbol tells of the answer, as it is sampled at that temperature.
        on_progress: called with (step, loss).

    Raises:
        UserError: the turns are not so, or no token of the thought has a copy.
    """
    tokenizer = load_tokenizer(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    policy = RegionPolicy(VocabLayout.load(folder), model.get_output_embeddings().weight.size(0))
    prompts = [
        tokenizer.apply_chat_template(each.prompt, add_generation_prompt=True, return_dict=False) for each in problems
    ]
    turn, told = _one_turn(tokenizer, policy, prompts[0], [each.turn for each in problems])
    learner = _Learner(model, policy, temperature, turn)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.max_steps)
    draw = torch.Generator().manual_seed(seed)
    model.train()
    for step in range(settings.max_steps):
        chosen = torch.randint(len(prompts), (settings.batch_size,), generator=draw).tolist()
        error = 0.0 if bits and step < settings.max_steps // 2 else error_rate(bits)
        answers_B = torch.tensor([told[each] for each in chosen])
        loss = learner.loss([prompts[each] for each in chosen], answers_B, error, draw)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), _GRADIENT_NORM)
        optimizer.step()
        optimizer.zero_grad()
        decay.step()
        on_progress(step + 1, loss.item())
    model.save_pretrained(folder)


def _one_turn(tokenizer: Any, policy: RegionPolicy, prompt: list[int], turns: Sequence[str]) -> tuple[_Turn, list[int]]:
    """The turn, and which of its two answers each problem has."""
    texts = sorted(set(turns))
    ids = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in texts]
    places = [place for place, tokens in enumerate(zip(*ids, strict=False)) if len(set(tokens)) > 1]
    if len(texts) != 2 or len(ids[0]) != len(ids[1]) or len(places) != 1:
        raise UserError(
            "warmup.planted_bits: needs problems with two answers of one token each, as in experiment=planted_channel"
        )
    exchange = CopyExchange(policy)
    thought = exchange.thought(prompt, ids[0])
    if thought is None or not thought.places:
        raise UserError("warmup.planted_bits: no token of the thought has a copy")
    choices = {place: exchange.open_ids(ids[0][place]) for place in thought.places}
    turn = _Turn(ids[0], places[0], (ids[0][places[0]], ids[1][places[0]]), choices)
    return turn, [texts.index(each) for each in turns]


class _Learner:
    def __init__(self, model: Any, policy: RegionPolicy, temperature: float, turn: _Turn) -> None:
        self._model, self._policy, self._temperature, self._turn = model, policy, temperature, turn

    def loss(
        self, prompts: Sequence[list[int]], answers_B: torch.Tensor, error: float, draw: torch.Generator
    ) -> torch.Tensor:
        """Cross-entropy of the model with what each place of the turn is to be, in nats a token."""
        symbols_B = torch.randint(2, answers_B.shape, generator=draw)
        turns_BT = self._drawn(symbols_B, draw)
        ids = [torch.tensor([*prompt, *turn]) for prompt, turn in zip(prompts, turns_BT.tolist(), strict=True)]
        input_ids = pad_sequence(ids, batch_first=True, padding_side="left")
        mask = pad_sequence([torch.ones_like(each) for each in ids], batch_first=True, padding_side="left")
        length = turns_BT.size(1)
        logits = self._model(input_ids=input_ids, attention_mask=mask, logits_to_keep=length + 1).logits[:, :-1]
        regions = scored_regions(input_ids, self._policy.layout)[:, -length:]
        bias_BTR = self._policy.bias_on(logits.device, finite=True)[regions]
        logps_BTR = (logits.float() / self._temperature + bias_BTR).log_softmax(2)
        return -(self._wanted(answers_B, symbols_B, error, logps_BTR.size(2)) * logps_BTR).sum(2).mean()

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
