"""Thoughts with other ids of the same text: a reader sees the same, the model does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import THINKING, regions_after, scored_regions


@dataclass(frozen=True)
class Thought:
    """A completion up to the end of its thinking.

    Attributes:
        ids: the sampled ones, the closing tag included.
        places: indices in `ids` at which another id of the same text was open.
        start: index in `ids` at which the thinking begins.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    places: tuple[int, ...]
    start: int


class CopyExchange:
    """Exchanges ids of thoughts for open ids of the same text."""

    def __init__(self, policy: RegionPolicy) -> None:
        rows = torch.arange(policy.layout.rows)
        self._policy = policy
        self._text_of = policy.surface_ids(rows).tolist()
        self._open_ids: dict[int, list[int]] = defaultdict(list)
        for each in torch.isfinite(policy.bias[THINKING])[: len(rows)].nonzero().squeeze(1).tolist():
            self._open_ids[self._text_of[each]].append(each)

    def thought(self, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> Thought | None:
        """The thought of a completion; None where thinking does not begin or does not end."""
        ids, length, layout = torch.tensor([[*prompt_ids, *completion_ids]]), len(prompt_ids), self._policy.layout
        thinking = (scored_regions(ids, layout)[0, length:] == THINKING).tolist()
        closed = (regions_after(ids, layout)[0, length:] != THINKING).tolist()
        ends = [place for place, chosen in enumerate(thinking) if chosen and closed[place]]
        if not ends:
            return None
        kept = tuple(completion_ids[: ends[0] + 1])
        places = tuple(place for place in range(len(kept)) if thinking[place] and len(self.open_ids(kept[place])) > 1)
        return Thought(tuple(prompt_ids), kept, places, thinking.index(True))

    def open_ids(self, token: int) -> list[int]:
        """The ids of a token's text that are open while thinking, the standard one first where it is."""
        return self._open_ids.get(self._text_of[token], [])

    def texts(self, thought: Thought) -> list[int]:
        """The text of each id, as standard tokens."""
        return [self._text_of[token] for token in thought.ids]

    def sources(self, thought: Thought) -> Thought:
        """Every token its standard one, where that is open."""
        return self._each(thought, lambda token: self.open_ids(token)[0])

    def copies(self, thought: Thought, random: np.random.Generator) -> Thought:
        """Every token one of its copies, by chance."""
        return self._each(thought, lambda token: int(random.choice(self._copies(token))))

    def coin(self, thought: Thought, random: np.random.Generator) -> Thought:
        """Every token one of its open ids, by chance."""
        return self._each(thought, lambda token: int(random.choice(self.open_ids(token))))

    def dose(self, thought: Thought, share: float, random: np.random.Generator) -> Thought:
        """A share of the tokens exchanged, each for another id of its text."""
        chosen = random.permutation(len(thought.places))[: round(share * len(thought.places))]
        ids = list(thought.ids)
        for place in (thought.places[each] for each in sorted(chosen)):
            ids[place] = int(random.choice([each for each in self.open_ids(ids[place]) if each != ids[place]]))
        return replace(thought, ids=tuple(ids))

    def cut(self, thought: Thought, share: float) -> Thought:
        """The thinking closed after a share of its tokens."""
        length = len(thought.ids) - 1 - thought.start
        kept = thought.ids[: thought.start + round(share * length)]
        places = tuple(place for place in thought.places if place < len(kept))
        return replace(thought, ids=(*kept, thought.ids[-1]), places=places)

    def permuted(self, thoughts: Sequence[Thought], random: np.random.Generator) -> list[Thought]:
        """The ids of each text permuted over all thoughts: each keeps its rate, and loses its place."""
        where: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, thought in enumerate(thoughts):
            for place in thought.places:
                where[self._text_of[thought.ids[place]]].append((number, place))
        ids = [list(thought.ids) for thought in thoughts]
        for places in where.values():
            dealt = [places[each] for each in random.permutation(len(places))]
            for (number, place), (other, from_place) in zip(places, dealt, strict=True):
                ids[number][place] = thoughts[other].ids[from_place]
        return [replace(thought, ids=tuple(each)) for thought, each in zip(thoughts, ids, strict=True)]

    def transplanted(self, thought: Thought, donor: Thought, random: np.random.Generator) -> Thought:
        """The nth token of a text as the nth of that text in the donor; by chance where the donor has fewer."""
        given: dict[int, list[int]] = defaultdict(list)
        for place in reversed(donor.places):
            given[self._text_of[donor.ids[place]]].append(donor.ids[place])
        ids = list(thought.ids)
        for place in thought.places:
            from_donor = given[self._text_of[ids[place]]]
            ids[place] = from_donor.pop() if from_donor else int(random.choice(self.open_ids(ids[place])))
        return replace(thought, ids=tuple(ids))

    def _copies(self, token: int) -> list[int]:
        return [each for each in self.open_ids(token) if each >= self._policy.layout.standard_size]

    def _each(self, thought: Thought, exchange: Callable[[int], int]) -> Thought:
        ids = list(thought.ids)
        for place in thought.places:
            ids[place] = exchange(ids[place])
        return replace(thought, ids=tuple(ids))
