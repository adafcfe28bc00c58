"""The completions of a run: which of them, in which order, as text. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.text import Text

from rlvr_vocab.bounds import reaches
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion, sampled_flags
from rlvr_vocab.record.results import recorded_grader
from rlvr_vocab.rewards.reward import assistant_turns, is_assistant, transcript
from rlvr_vocab.text import short_text, visible_text
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker, TextSpan, colour_number, marked_plain
from rlvr_vocab.vocab.regions import THINKING, RegionTracker

Order = Literal["file", "lowest", "highest"]
SampleId = tuple[int, int]  # step and row
_COLOURS = ("magenta", "cyan", "yellow", "green", "blue", "red")
_GIVEN = "italic blue"


class CorrectnessReward(NamedTuple):
    """The reward that decides whether a completion is right: its score reaches `threshold`."""

    name: str
    threshold: float

    @classmethod
    def of_run(cls, folder: Path) -> CorrectnessReward | None:
        """The reward that grades held-out answers; None where a sum of rewards does, or nothing is right or wrong."""
        grader = recorded_grader(folder)
        if grader is None or grader["threshold"] is None or len(grader["functions"]) != 1:
            return None
        return cls(grader["name"], grader["threshold"])

    def verdict(self, score: float | None) -> Literal["right", "wrong"] | None:
        if score is None or math.isnan(score):
            return None
        return "right" if reaches(score, self.threshold) else "wrong"


@dataclass(frozen=True)
class SampleFilter:
    """Conditions that a completion must meet; None is no condition. verdict: by the correctness reward.

    step: a step, or a range of them, both ends included: `40`, `10:50`, `100:`, `:20`.
    problem: text that its prompt holds; contains: text that it holds itself. Capitals do not matter.
    """

    step: str | None = None
    problem: str | None = None
    contains: str | None = None
    verdict: Literal["right", "wrong"] | None = None
    min_reward: float | None = None
    max_reward: float | None = None

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in vars(self).items() if value is not None)

    def accepts(self, row: Mapping[str, Any], correctness: CorrectnessReward | None) -> bool:
        """Whether a row of a step's file meets all conditions but that on the step."""
        reward = math.nan if row["reward"] is None else row["reward"]
        verdict = correctness.verdict(row.get(f"reward/{correctness.name}")) if correctness is not None else None
        return (
            (self.problem is None or self.problem.casefold() in row["prompt"].casefold())
            and (self.contains is None or self.contains.casefold() in _text(row).casefold())
            and (self.verdict is None or verdict == self.verdict)
            and (self.min_reward is None or reaches(reward, self.min_reward))
            and (self.max_reward is None or reaches(self.max_reward, reward))
        )


def _text(row: Mapping[str, Any]) -> str:
    """All that a row's completion shows, words of tools too."""
    parts = transcript(json.loads(row.get("messages") or "[]"))
    return "\n".join(text for _, text in parts) or str(row["completion"])


def read_steps(text: str | None) -> tuple[float, float]:
    """First and last step of a range; UserError where it is none.

    >>> read_steps("40"), read_steps("10:50"), read_steps("100:")
    ((40, 40), (10, 50), (100, inf))
    """
    if text is None:
        return 0, math.inf
    first, colon, last = text.strip().partition(":")
    if not f"{first}{last}".isdecimal():
        raise UserError(f"step={text}: give a step or a range of steps, as in 40, 10:50, 100: or :20")
    return int(first or 0), int(last) if last else math.inf if colon else int(first)


def find_samples(
    files: CompletionFiles,
    sample_filter: SampleFilter,
    correctness: CorrectnessReward | None,
    order: Order,
    unreadable: list[str],
) -> Iterator[SampleId]:
    """Step and row of each completion that passes, as they are found; by reward, equals in the order of the files.

    `unreadable` gets a message for each file that cannot be read; it is passed over.
    """
    first, last = read_steps(sample_filter.step)
    scores = [] if correctness is None else [f"reward/{correctness.name}"]
    columns = ["reward", "prompt", "completion", "messages", *scores]

    def scored() -> Iterator[tuple[float, SampleId]]:
        for step in (step for step in files.steps if first <= step <= last):
            try:
                rows = files.table(step, columns).to_pylist()
            except UserError as error:
                unreadable.append(str(error))
                continue
            for number, row in enumerate(rows, start=1):
                if sample_filter.accepts(row, correctness):
                    yield math.nan if row["reward"] is None else row["reward"], (step, number)

    found = scored()
    if order != "file":
        sign = -1 if order == "highest" else 1
        found = iter(sorted(found, key=lambda each: (math.isnan(each[0]), sign * each[0])))
    return (sample_id for _, sample_id in found)


@dataclass(frozen=True)
class Sample:
    """A completion as it is shown.

    parts: author, `completion` or those of `transcript`, and text. facts: label and value of everything else.
    """

    completion: SampledCompletion
    parts: Sequence[tuple[str, Sequence[TextSpan]]]
    facts: Sequence[tuple[str, str]]


def shown_sample(own: SampledCompletion, marker: Marker | None, correctness: CorrectnessReward | None = None) -> Sample:
    """A completion, marked where the run's vocabulary is at hand; facts hold no line break and no control character."""
    facts = [
        (short_text(label), " ".join(visible_text(value).split())) for label, value in _facts(own, marker, correctness)
    ]
    return Sample(own, [*_parts(own, marker)], facts)


def is_given(author: str) -> bool:
    """Whether the author of a part is a tool or a user."""
    return author.startswith(("tool", "user"))


def _parts(own: SampledCompletion, marker: Marker | None) -> Iterator[tuple[str, Sequence[TextSpan]]]:
    """Where any token is marked, turns are those that were sampled, without the text of their calls."""
    flags = sampled_flags(own.segments, len(own.completion_ids))
    runs = groupby(zip(flags, own.completion_ids, strict=True), key=itemgetter(0))
    marked = [marker.spans([token for _, token in run]) for is_sampled, run in runs if is_sampled and marker]
    turns = iter(marked if any(span.copy_index for spans in marked for span in spans) else ())
    if not own.messages:
        yield "completion", next(turns, [TextSpan(own.completion, 0)])
    for message in own.messages:
        as_sampled = next(turns, None) if is_assistant(message) else None
        for author, text in transcript([message]):
            spans = [TextSpan(text, 0)]
            if author == "assistant" and as_sampled is not None:
                spans = [*_beginning(as_sampled, text)] or spans  # no mark rather than no text
            yield short_text(author), spans


def _beginning(spans: Sequence[TextSpan], content: str) -> Iterator[TextSpan]:
    """The part of a turn that `content` has, which may begin with prefilled text and lacks calls."""
    whole = "".join(span.text for span in spans)
    left = next(len(content) - start for start in range(len(content) + 1) if whole.startswith(content[start:]))
    for span in spans:
        if left > 0:
            yield span._replace(text=span.text[:left])
        left -= len(span.text)


def _facts(
    own: SampledCompletion, marker: Marker | None, correctness: CorrectnessReward | None
) -> Iterator[tuple[str, str]]:
    verdict = None if correctness is None else correctness.verdict(own.rewards.get(correctness.name))
    yield "reward", f"{own.reward:.4g}{f', {verdict}' if verdict else ''} (advantage {own.advantage:+.3f})"
    for name, score in own.rewards.items():
        reason = f": {own.reasons[name]}" if name in own.reasons else ""
        yield name, f"{'no score' if score is None else f'{score:.4g}'}{reason}"
    if marker is not None:
        yield "tokens", count_tokens(own.prompt_ids, own.completion_ids, marker.layout, own.segments)
    if turns := assistant_turns(own.messages):
        end = "; it ends in a call, without an answer" if turns[-1].ended_in_call else ""
        yield "calls", f"{sum(len(turn.calls) for turn in turns)}{end}"
    if own.solution:
        yield "gold answer", own.solution
    if own.task or own.difficulty:  # `chain_sum (num_terms 2)`
        yield "task", f"{own.task} ({own.difficulty})" if own.task and own.difficulty else own.task or own.difficulty


def count_tokens(
    prompt_ids: Sequence[int], completion_ids: Sequence[int], layout: VocabLayout, segments: Sequence[int] = ()
) -> str:
    """Sampled tokens by the region in which they were chosen, whether they ended or were cut off; given tokens."""
    tracker, thinking, flags = RegionTracker(layout, prompt_ids), 0, sampled_flags(segments, len(completion_ids))
    for token, is_sampled in zip(completion_ids, flags, strict=True):
        thinking += is_sampled and tracker.region == THINKING
        tracker.add(token)
    reasoning = sum(token >= layout.standard_size for token in completion_ids)
    of_them = f" ({reasoning} of them reasoning tokens)" if reasoning else ""
    ends = set(layout.control_ids) - {layout.think_open_id, layout.think_close_id}
    end = "ended by itself" if completion_ids and completion_ids[-1] in ends else "cut off"
    sampled = sum(flags)
    given = f"; beside them {len(flags) - sampled} of tools" if sampled < len(flags) else ""
    return f"{sampled}: {thinking} thinking{of_them}, {sampled - thinking} answering; {end}{given}"


def head_text(heading: str, probe: str | None, copies: int, *, tools: bool, colour: bool) -> Text:
    """A legend of the marks of up to `copies` copies of a token, and the finding of a probe of the run."""
    marks = (TextSpan("first copies", 1), TextSpan("second copies", 2))[:copies]
    legend = [_span_text(each, colour=colour) for each in marks]
    legend += [Text("words of tools", _GIVEN)] if tools and colour else []
    text = Text(f"{heading}\n").append_text(Text("  ").join(legend)).append("\n" * bool(legend))
    return text if probe is None else text.append(f"probe: {visible_text(probe)}\n")


def sample_text(sample: Sample, *, colour: bool) -> Text:
    """Prompt and completion are indented, so that no line of them can pass for one of ours."""
    own = sample.completion
    text = Text().append(f"\n--- step {own.step}, completion {own.row}\n", "bold")
    for label, value in sample.facts:
        text.append(f"{label}: ", "dim").append(f"{value}\n")
    for author, spans in (("prompt", [TextSpan(own.prompt, 0)]), *sample.parts):
        text.append(f"{author}:\n", "dim")
        style = _GIVEN if is_given(author) and colour else ""
        shown = Text(style=style).join(_span_text(each, colour=colour) for each in spans)
        for line in shown.split("\n", allow_blank=True):
            text.append("    ").append_text(line).append("\n")
    return text


def _span_text(span: TextSpan, *, colour: bool) -> Text:
    if not colour:
        return Text(marked_plain([span]))
    style = f"bold {_COLOURS[colour_number(span.copy_index) - 1]}" if span.copy_index else ""
    return Text(visible_text(span.text), style)
