"""One completion with its facts, the same on the screen and in every file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_vocab.analysis.samples.filter import CorrectnessReward
from rlvr_vocab.counted import counted
from rlvr_vocab.record.completions import SampledCompletion
from rlvr_vocab.record.metrics import RewardFact
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import CHOSEN_BITS, Marker, TextSpan
from rlvr_vocab.vocab.regions import THINKING, RegionTracker


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of a completion.

    Attributes:
        thinking, answering: chosen in each region.
        reasoning: reasoning tokens.
        ended: whether the last token ends a turn; else the completion was cut off at the length limit.
    """

    thinking: int
    reasoning: int
    answering: int
    ended: bool


def count_tokens(prompt_ids: Sequence[int], completion_ids: Sequence[int], layout: VocabLayout) -> TokenCounts:
    """Count the tokens of a completion."""
    tracker, thinking = RegionTracker(layout, prompt_ids), 0
    for token in completion_ids:
        thinking += tracker.region == THINKING
        tracker.add(token)
    reasoning = sum(token >= layout.standard_size for token in completion_ids)
    tags = (layout.think_open_id, layout.think_close_id)
    ended = bool(completion_ids) and completion_ids[-1] in layout.control_ids and completion_ids[-1] not in tags
    return TokenCounts(thinking, reasoning, len(completion_ids) - thinking, ended)


@dataclass(frozen=True)
class Sample:
    """A completion as it is shown.

    Attributes:
        spans: its text, with its marks.
        counts: None where the run's vocabulary is not at hand.
        right: by the correctness reward; None where it gave no score.
        weights: of the reward functions; None for one that adapts.
    """

    completion: SampledCompletion
    spans: tuple[TextSpan, ...]
    counts: TokenCounts | None
    right: bool | None
    weights: dict[str, float | None]

    @property
    def title(self) -> str:
        return f"step {self.completion.step}, completion {self.completion.row}"

    def facts(self) -> list[tuple[str, str]]:
        """Label and value of everything but the texts, harmless to show; values hold no line feed."""
        return [(_one_line(label), _one_line(value)) for label, value in self._facts()]

    def _facts(self) -> Iterator[tuple[str, str]]:
        own = self.completion
        verdict = {True: ", right", False: ", wrong", None: ""}[self.right]
        yield "reward", f"{_figure(own.reward)}{verdict} (advantage {own.advantage:+.3f})"
        for name, score in own.rewards.items():
            weight = self.weights.get(name, 1.0)
            weighed = " × adaptive weight" if weight is None else f" × {weight:g}" if weight != 1 else ""
            reason = f": {own.reasons[name]}" if name in own.reasons else ""
            yield name, f"{'no score' if score is None else _figure(score) + weighed}{reason}"
        if self.counts is not None:
            yield "tokens", self._tokens(self.counts)
        if own.choice_bits:
            chosen = sum(bits >= CHOSEN_BITS for bits in own.choice_bits)
            told = f"{sum(own.choice_bits):.2f} bits from chance, {CHOSEN_BITS:g} or more at {counted(chosen, 'token')}"
            yield "choices of ids", told
        if own.solution:
            yield "gold answer", own.solution
        if own.kind:
            yield "task", own.kind

    def _tokens(self, counts: TokenCounts) -> str:
        reasoning = f" ({counts.reasoning} of them reasoning tokens)" if counts.reasoning else ""
        end = "ended by itself" if counts.ended else "cut off"
        total = len(self.completion.completion_ids)
        return f"{total}: {counts.thinking} thinking{reasoning}, {counts.answering} answering; {end}"


@dataclass(frozen=True)
class SampleReader:
    """Turns completions into samples.

    Attributes:
        marker: None where the run's `initial_model/` is not there, or not loaded yet.
    """

    rewards: Sequence[RewardFact]
    correctness: CorrectnessReward | None
    marker: Marker | None = None

    def sample(self, completion: SampledCompletion) -> Sample:
        ids, counts = completion.completion_ids, None
        if self.marker is not None:
            counts = count_tokens(completion.prompt_ids, ids, self.marker.layout)
        weights = {each.name: None if each.adaptive else each.weight for each in self.rewards}
        return Sample(completion, self._spans(completion), counts, self._right(completion), weights)

    def _spans(self, completion: SampledCompletion) -> tuple[TextSpan, ...]:
        """Spans with their marks; the recorded text where nothing is marked."""
        ids = completion.completion_ids
        spans = () if self.marker is None else tuple(self.marker.spans(ids, completion.choice_bits))
        return spans if any(each.copy_index or each.chosen for each in spans) else (TextSpan(completion.completion, 0),)

    def _right(self, completion: SampledCompletion) -> bool | None:
        score = None if self.correctness is None else completion.rewards.get(self.correctness.name)
        return None if self.correctness is None or score is None else score >= self.correctness.threshold


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _one_line(text: str) -> str:
    return " ".join(visible_lines(text).split())
