"""The region policy as a Transformers sampler: any `model.generate` call follows it once it is attached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.logprobs import finite_log, row_dot
from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy
from rlvr_vocab.vocab.refuse_off_policy import TRUNCATIONS
from rlvr_vocab.vocab.regions import region_of_next
from rlvr_vocab.vocab.truncation import Truncation, kept_text_ids


class RegionLogitsProcessor(LogitsProcessor):
    """Adds `temperature × bias` to the logits, which Transformers divides by the temperature afterwards.

    Greedy decoding (`temperature` None) only forbids ids; it ignores the finite biases, which are for sampling. A
    truncation forbids the ids of the texts that it drops.
    """

    def __init__(self, policy: RegionPolicy, temperature: float | None, truncation: Truncation | None = None) -> None:
        self.policy, self.temperature, self._truncation = policy, temperature, truncation
        self._scaled_bias: torch.Tensor | None = None

    @classmethod
    def from_folder(cls, folder: str | Path, temperature: float | None = 1.0) -> RegionLogitsProcessor:
        """The policy of a model folder, for stock generation: `generate(…, logits_processor=[processor])`.

        The temperature is the one that is passed to `generate`; None or 0 for greedy decoding.
        """
        return cls(RegionPolicy(VocabLayout.load(folder)), temperature or None)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._scaled_bias is None:
            bias, scale = self.policy.bias_on(scores.device), self.temperature
            self._scaled_bias = bias.masked_fill(bias.isfinite(), 0.0) if scale is None else bias * scale
        scores = scores + self._scaled_bias[region_of_next(input_ids, self.policy.layout)]
        if not self._truncation or self.temperature is None:
            return scores
        return scores.masked_fill(self._truncation.drop_mask_of_ids(scores / self.temperature, self.policy), -torch.inf)


def draw_one(p_BN: torch.Tensor) -> torch.Tensor:
    """`p_BN.multinomial(1)` with the same random numbers, without its checks, which synchronise with the device."""
    noise_BN = torch.empty_like(p_BN).exponential_()
    return torch.div(p_BN, noise_BN, out=noise_BN).argmax(dim=1, keepdim=True)


class RecordingSampler:
    """Draws each token of a baseline as stock `generate` would, and sets all other scores to -inf.

    `temperature` divides the scores; a truncation follows. The token's log-probability, the distribution's entropies
    and the texts that a truncation kept are recorded.
    """

    def __init__(self, temperature: float = 1.0, truncation: Truncation | None = None) -> None:
        self._temperature, self._truncation = temperature, truncation or Truncation()
        self._steps = list[torch.Tensor]()  # `(3, B)` of each step
        self._kept = list[tuple[torch.Tensor, ...]]()  # the texts of each row of each step

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores / self._temperature
        if self._truncation:
            scores = scores.masked_fill(~self._keep(scores), -torch.inf)
        p_BR = scores.softmax(dim=1)
        drawn_B1, entropy_B = draw_one(p_BR), torch.special.entr(p_BR).sum(dim=1)
        log_p_B = scores.gather(1, drawn_B1).squeeze(1) - scores.logsumexp(dim=1)
        self._steps.append(torch.stack((log_p_B, entropy_B, torch.zeros_like(entropy_B))))
        return _only(scores, drawn_B1)

    def recorded(self) -> tuple[torch.Tensor, ...]:
        """`(B, steps)` each, in nats: log-probabilities of the drawn ids, entropy over texts, and H(copy | text)."""
        return tuple(torch.stack(self._steps, dim=2))

    def kept_texts(self) -> list[tuple[torch.Tensor, ...]]:
        """For each row those of each step; none without a truncation."""
        return list(zip(*self._kept, strict=True))

    def _keep(self, log_q_BV: torch.Tensor) -> torch.Tensor:
        kept_BV = self._truncation.keep_mask(log_q_BV)
        self._kept.append(kept_text_ids(kept_BV))
        return kept_BV


class TextThenIdSampler(RecordingSampler):
    """Draws each token's text first, and then one of the text's ids: the same distribution with fewer random numbers.

    `uniforms_BT2` are uniform numbers from 0 to 1 for text and id, instead of torch's generator. `texts_BT` are forced
    texts; where it is -1, and beyond its end, texts are drawn.
    """

    def __init__(
        self,
        policy: RegionPolicy,
        temperature: float,
        uniforms_BT2: torch.Tensor | None = None,
        texts_BT: torch.Tensor | None = None,
        truncation: Truncation | None = None,
    ) -> None:
        super().__init__(temperature, truncation)
        self._policy, self._uniforms_BT2, self._texts_BT = policy, uniforms_BT2, texts_BT

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        policy = self._policy
        regions = region_of_next(input_ids, policy.layout)
        bias_BR = policy.bias_on(scores.device, finite=True)[regions]
        log_p_BR = torch.add(bias_BR, scores, alpha=1 / self._temperature).log_softmax(dim=1)
        if self._truncation:
            kept_BV = self._keep(policy.over_texts(log_p_BR.exp()).log())
            log_p_BR = log_p_BR.masked_fill(~policy.of_ids(kept_BV), FORBIDDEN).log_softmax(dim=1)
        p_BR = log_p_BR.exp()
        of_texts_BV = policy.over_texts(p_BR)
        ids_BM, exists_BM = policy.ids_of_texts(self._texts(of_texts_BV))
        # In float32 all probabilities of an unlikely forced text may be 0.
        log_p_BM = log_p_BR.gather(1, ids_BM).masked_fill(~exists_BM, FORBIDDEN)
        nth_B1 = self._draw(log_p_BM.softmax(dim=1), 1)
        log_p_B = log_p_BM.gather(1, nth_B1).squeeze(1)
        log_p_BR.clamp_(min=FORBIDDEN)  # 0 · -inf would be NaN
        of_ids_B, of_texts_B = -row_dot(p_BR, log_p_BR), -row_dot(of_texts_BV, finite_log(of_texts_BV))
        self._steps.append(torch.stack((log_p_B, of_texts_B, of_ids_B - of_texts_B)))
        return _only(scores, ids_BM.gather(1, nth_B1))

    def _texts(self, of_texts_BV: torch.Tensor) -> torch.Tensor:
        drawn_B1, step = self._draw(of_texts_BV, 0), len(self._steps)
        if self._texts_BT is None or step >= self._texts_BT.size(1):
            return drawn_B1
        given_B1 = self._texts_BT[:, step : step + 1]
        return torch.where(given_B1 >= 0, given_B1, drawn_B1)

    def _draw(self, p_BN: torch.Tensor, which: int) -> torch.Tensor:
        if self._uniforms_BT2 is None:
            return draw_one(p_BN)
        below_BN = p_BN.double().cumsum(dim=1)
        at_B1 = self._uniforms_BT2[:, len(self._steps), which].unsqueeze(1) * below_BN[:, -1:]
        return torch.searchsorted(below_BN, at_B1, right=True).clamp(max=p_BN.size(1) - 1)


def _only(scores_BR: torch.Tensor, ids_B1: torch.Tensor) -> torch.Tensor:
    return torch.full_like(scores_BR, -torch.inf).scatter(1, ids_B1, 0.0)


# The drawn id is the likeliest one that `_only` leaves.
_GREEDY = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None, "min_p": None}


class RegionSampler:
    """`model.generate` under the region policy, recording log-probabilities on request; truncations are over texts.

    `last_logps` are `(B, steps)` of the last call under `recording()`; values past a row's end are meaningless.
    `last_entropies` are of the same draws, in nats: entropy over texts, and H(copy | text). `last_kept` are the texts
    that a truncation kept, for each step of each row; empty without one.
    """

    def __init__(self, model: PreTrainedModel, policy: RegionPolicy) -> None:
        self.policy = policy
        self.last_logps: torch.Tensor | None = None
        self.last_entropies: list[torch.Tensor] | None = None
        self.last_kept = list[tuple[torch.Tensor, ...]]()
        self._recording = False
        self._draw: TextThenIdSampler | None = None
        self._own_generate = model.generate
        self._model = model

    def __call__(
        self,
        *args: Any,
        generation_config: GenerationConfig | None = None,
        logits_processor: LogitsProcessorList | None = None,
        **kwargs: Any,
    ) -> Any:
        model: Any = self._model.get_base_model() if isinstance(self._model, PeftModel) else self._model
        options, _ = model._prepare_generation_config(generation_config, **kwargs)
        temperature = float(options.temperature) if options.do_sample else None
        processors = LogitsProcessorList(logits_processor or [])
        given = {"generation_config": generation_config, "logits_processor": processors, **kwargs}
        truncation = Truncation.of_options(options) if options.do_sample else Truncation()
        recorder: RecordingSampler | None = self._draw
        if recorder is None and self._recording and self.policy.layout.size:
            recorder = TextThenIdSampler(self.policy, temperature or 1.0, truncation=truncation)
        elif recorder is None:
            over_texts = truncation if self.policy.layout.size else None  # else Transformers' own is over texts
            processors.append(RegionLogitsProcessor(self.policy, temperature, over_texts))
            recorder = RecordingSampler(temperature or 1.0, truncation) if self._recording else None
        if recorder is None:
            untruncated = {name: neutral[0] for name, neutral in TRUNCATIONS.items()} if over_texts else {}
            return self._own_generate(*args, **{**given, **untruncated})
        with _last_of_all(recorder, model):
            output = self._own_generate(*args, **{**given, **_GREEDY})
        if recorder is self._draw or not recorder._steps:
            if recorder is not self._draw and (self.policy.layout.size or truncation):
                without = "copies" if self.policy.layout.size else "top_k, top_p and min_p"
                raise UserError(f"model.generate is one of your own, without our sampler: train without {without}")
            return output
        self.last_logps, *self.last_entropies = recorder.recorded()
        self.last_kept = recorder.kept_texts()
        if self.last_logps.isnan().any():
            raise UserError(
                "the model's probabilities are NaN, since its weights hold NaN or inf: start from other weights, or "
                "from an earlier checkpoint with a lower learning_rate"
            )
        return output

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside the block calls fill `last_logps`, `last_entropies` and `last_kept`."""
        self.last_logps, self.last_entropies, self._recording = None, None, True
        try:
            yield
        finally:
            self._recording = False

    @contextmanager
    def drawing(self, draw: TextThenIdSampler) -> Iterator[None]:
        """Inside the block calls sample with `draw` at its temperature; their own sampling options are ignored."""
        self._draw = draw
        try:
            yield
        finally:
            self._draw = None


@contextmanager
def _last_of_all(recorder: RecordingSampler, model: PreTrainedModel) -> Iterator[None]:
    """Inside the block the recorder runs after all processors, including temperature and truncations.

    Processors passed to `generate` would run before those. The public API for the whole list, `custom_generate`, drops
    `synced_gpus`.
    """
    prepare = model._get_logits_processor

    def prepared(*args: Any, **kwargs: Any) -> LogitsProcessorList:
        return LogitsProcessorList([*prepare(*args, **kwargs), recorder])

    model._get_logits_processor = prepared
    try:
        yield
    finally:
        del model._get_logits_processor


def attach_region_sampler(model: PreTrainedModel, policy: RegionPolicy) -> RegionSampler:
    """Make every later `model.generate` follow the policy, in place of an earlier one; stock `generate` does not."""
    for each in (model, model.get_base_model() if isinstance(model, PeftModel) else model):
        if isinstance(vars(each).get("generate"), RegionSampler):
            del each.generate
    sampler = RegionSampler(model, policy)
    model.generate = sampler
    model.get_output_embeddings().register_forward_pre_hook(_contiguous)
    return sampler


def _contiguous(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Copies hidden states that are views of longer ones: for each view torch would copy a frozen bfloat16 table."""
    return tuple(each.contiguous() for each in inputs)
