"""A limit on what the choice among the ids of a text can tell: `hidden_bits` of a layout.

With m open ids a choice has room for log2 m bits. In a share 1 - hidden_bits / log2 m of the cases the id is drawn by
chance instead, whatever the model says:

    p(id | text) = own · p_model(id | text) + chance,    own = min(1, hidden_bits / log2 m),    chance = (1 - own) / m

The divergence from chance is convex, so what is left of it is at most own · log2 m. Texts keep their probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.text_blocks import open_ids


class ChoiceLimit:
    """`own` and `chance` of each id; 1 and 0 of ids without another of their text.

    Args:
        bias: of the region policy, `(2, rows)`.
        over_texts: `RegionPolicy.over_texts`.
    """

    def __init__(
        self, layout: VocabLayout, bias: torch.Tensor, over_texts: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        assert layout.hidden_bits is not None
        texts_R = torch.zeros(bias.size(1), dtype=torch.long)  # of rows beyond the layout, too: none is ever open
        texts_R[: layout.rows] = torch.tensor([*range(layout.standard_size), *layout.source_ids])
        own, chance = torch.ones_like(bias), torch.zeros_like(bias)
        for region, allowed_R in enumerate(torch.isfinite(bias)):
            number_R = open_ids(layout, allowed_R)[texts_R]
            chosen_R = allowed_R & (number_R > 1)
            own[region, chosen_R] = (layout.hidden_bits / number_R[chosen_R].log2()).clamp(max=1.0)
            chance[region, chosen_R] = (1 - own[region, chosen_R]) / number_R[chosen_R]
        self.limits_anything = bool((chance > 0).any())
        self._over_texts = over_texts
        self._on_device = lru_cache(maxsize=8)(lambda device: tuple(each.to(device) for each in (own, chance, texts_R)))

    def of(self, ids: torch.Tensor, regions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`own` and `chance` of some ids, each in its region."""
        own, chance, _ = self._on_device(ids.device)
        return own[regions, ids], chance[regions, ids]

    def rows(self, region: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """`own` and `chance` of all rows in a region."""
        own, chance, _ = self._on_device(device)
        return own[region], chance[region]

    def apply(self, p_BR: torch.Tensor, regions_B: torch.Tensor | int) -> torch.Tensor:
        """Probabilities of ids under the limit, from those without."""
        own, chance, texts_R = self._on_device(p_BR.device)
        return own[regions_B] * p_BR + chance[regions_B] * self._over_texts(p_BR)[:, texts_R]

    def apply_to_scores(
        self, scores_BR: torch.Tensor, regions_B: torch.Tensor | int, temperature: float | torch.Tensor
    ) -> torch.Tensor:
        """The same for scores that are divided by the temperature later; those of -inf stay.

        The log of the normaliser stays what it was, as penalties go by the sign of a score.
        """
        z_BR = scores_BR / temperature
        limited = self.apply(z_BR.softmax(dim=1), regions_B).log() + z_BR.logsumexp(dim=1, keepdim=True)
        return (limited * temperature).masked_fill(scores_BR == -torch.inf, -torch.inf)
