"""One completion with what there is to say about it: the same facts on the screen and in every file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlvr_vocab.analysis.marked import readable
from rlvr_vocab.analysis.samples.lengths import RegionLengths, ended_by_itself, region_lengths
from rlvr_vocab.analysis.samples.sieve import Judge
from rlvr_vocab.record.completions import SampledCompletion
from rlvr_vocab.record.metrics import RewardFact
from rlvr_vocab.vocab.marking import Marker, Stretch


@dataclass(frozen=True)
class Sample:
    """A completion as it is shown.

    Attributes:
        stretches: its text, with the multiplicity of its tokens.
        lengths: tokens of its regions; None where the run's vocabulary is not at hand.
        ended: whether it ended by itself; None as above.
        right: what the judge says; None where it says nothing.
        weights: of the reward functions; None for one that adapts.
    """

    completion: SampledCompletion
    stretches: tuple[Stretch, ...]
    lengths: RegionLengths | None
    ended: bool | None
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
        if self.lengths is not None:
            yield "tokens", self._tokens(self.lengths)
        if own.solution:
            yield "gold answer", own.solution

    def _tokens(self, lengths: RegionLengths) -> str:
        reasoning = f" ({lengths.reasoning} of them reasoning tokens)" if lengths.reasoning else ""
        end = "ended by itself" if self.ended else "cut off"
        total = len(self.completion.completion_ids)
        return f"{total}: {lengths.thinking} thinking{reasoning}, {lengths.answering} answering; {end}"


@dataclass(frozen=True)
class SampleReader:
    """Turns completions into samples.

    Attributes:
        marker: None where the run's `initial_model/` is not there, or not loaded yet.
    """

    rewards: Sequence[RewardFact]
    judge: Judge | None
    marker: Marker | None = None

    def sample(self, completion: SampledCompletion) -> Sample:
        return Sample(
            completion=completion,
            stretches=self._stretches(completion),
            lengths=None if self.marker is None else self._lengths(completion, self.marker),
            ended=None if self.marker is None else ended_by_itself(completion.completion_ids, self.marker.layout),
            right=self._right(completion),
            weights={each.name: None if each.adaptive else each.weight for each in self.rewards},
        )

    def _stretches(self, completion: SampledCompletion) -> tuple[Stretch, ...]:
        """As it was recorded where nothing in it is marked: of a baseline, say."""
        ids = completion.completion_ids
        if self.marker is not None and any(map(self.marker.multiplicity, ids)):
            return tuple(self.marker.stretches(ids))
        return (Stretch(completion.completion, 0),)

    @staticmethod
    def _lengths(completion: SampledCompletion, marker: Marker) -> RegionLengths:
        return region_lengths(completion.prompt_ids, completion.completion_ids, marker.layout)

    def _right(self, completion: SampledCompletion) -> bool | None:
        score = None if self.judge is None else completion.rewards.get(self.judge.name)
        return None if self.judge is None or score is None else score >= self.judge.least


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _one_line(text: str) -> str:
    return " ".join(readable(text).split())
