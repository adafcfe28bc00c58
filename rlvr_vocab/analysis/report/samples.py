"""The completions on a page: which are shown, and how.

They are chosen by rule, so that the choice flatters nobody: at moments spread evenly over the run the completion with
the highest reward, the one with the lowest, and one drawn with a fixed seed; of the held-out problems the first of each
kind of change.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from rlvr_vocab.analysis.report.outcome import HeldOutAnswers
from rlvr_vocab.analysis.report.page import SampleCard, heading, paragraph, samples
from rlvr_vocab.analysis.samples import SampleReader
from rlvr_vocab.analysis.vocabulary import evenly_spread
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.record.results import ProblemResult, kind_text
from rlvr_vocab.text import pluralize, visible_lines
from rlvr_vocab.vocab.marking import CHOSEN_MEANS, Marker, TextSpan, marked_html, shared_prefix_length, shortened

MOST_MOMENTS = 5
_SEED = 0
# Of a long text, what is shown from its start and from its end.
_HEAD, _TAIL = 1400, 700
_HOW_CHOSEN = (
    "At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one "
    f"drawn with a fixed seed. Underlined: {CHOSEN_MEANS}."
)
_CHANGES = {
    "wrong before, right after": (False, True),
    "right before, wrong after": (True, False),
    "wrong before and after": (False, False),
}
_CHANGES_OF_SCORE = {"better after": 1, "worse after": -1, "the same": 0}


@dataclass(frozen=True)
class ChosenSample:
    """A completion, and why it is shown."""

    why: str
    completion: SampledCompletion


@dataclass(frozen=True)
class ChosenSamples:
    """The completions that are shown, in the order of their steps.

    Attributes:
        prompts: all different prompts of these steps.
        unreadable: a line for each file that could not be read.
    """

    samples: tuple[ChosenSample, ...]
    prompts: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


def choose_samples(files: CompletionFiles, most: int) -> ChosenSamples:
    """Choose at most so many completions from the files that can be read."""
    unreadable: list[str] = []
    chosen: list[ChosenSample] = []
    prompts: set[str] = set()
    moments = min(MOST_MOMENTS, most // 3)
    for step in evenly_spread(files.steps, moments) if moments > 1 else files.steps[-1:]:
        try:
            completions = files.read(step)
        except UserError as error:
            unreadable.append(str(error))
            continue
        prompts.update(each.prompt for each in completions)
        chosen += _highest_lowest_random(completions)
    return ChosenSamples(tuple(chosen[:most]), tuple(sorted(prompts)), tuple(unreadable))


def _highest_lowest_random(completions: Sequence[SampledCompletion]) -> Iterator[ChosenSample]:
    """Highest, lowest, random: three different ones where there are three."""
    scored = [each for each in completions if each.reward == each.reward]
    left = sorted(scored, key=lambda each: each.reward)
    if left:
        yield ChosenSample("highest reward", left.pop())
    if left:
        yield ChosenSample("lowest reward", left.pop(0))
    rest = sorted(
        [each for each in completions if each in left or each.reward != each.reward], key=lambda each: each.row
    )
    if rest:
        yield ChosenSample("drawn at random", random.Random(_SEED).choice(rest))


def held_out_answers(held_out: HeldOutAnswers) -> list[tuple[str, ProblemResult, ProblemResult]]:
    """For each kind of change its first problem, with the answer before and the one after."""
    pairs, kinds = held_out.pairs(), _kinds(held_out)
    firsts = {name: next((pair for pair in pairs if _change(pair) == kind), None) for name, kind in kinds.items()}
    return [(name, *pair) for name, pair in firsts.items() if pair is not None]


def held_out_section(
    held_out: HeldOutAnswers, shown: Sequence[tuple[str, ProblemResult, ProblemResult]], marker: Marker | None
) -> Markup:
    """How many problems changed, and some of them."""
    changes = [_change(pair) for pair in held_out.pairs()]
    counts = "; ".join(f"{changes.count(kind):,} {name}" for name, kind in _kinds(held_out).items())
    words = f"Of {pluralize(len(changes), 'problem')}: {counts}. The first of each kind, as it was answered:"
    cards = (
        samples(name, [_of_answer(before, "before GRPO", marker), _of_answer(after, "after GRPO", marker)])
        for name, before, after in shown
    )
    return heading("Held-out problems") + paragraph(words) + Markup().join(cards)


def training_section(choice: ChosenSamples, reader: SampleReader) -> Markup:
    """What the model wrote while it was trained."""
    before, after = _shared_by(choice.prompts)
    parts = [Markup(), *(paragraph(f"Not shown: {line}", "missing") for line in choice.unreadable)]
    if choice.samples:
        parts += [heading("During training"), paragraph(_HOW_CHOSEN, "note")]
    for step, chosen in groupby(choice.samples, key=lambda each: each.completion.step):
        cards = []
        for each in chosen:
            prompt = each.completion.prompt
            problem = prompt.removeprefix(before).removesuffix(after).strip() or prompt
            cards.append(_of_chosen(each, problem, reader))
        parts.append(samples(f"Step {step:,}", cards))
    return Markup().join(parts)


def _shared_by(prompts: Sequence[str]) -> tuple[str, str]:
    """The beginning and end that all prompts share (chat template, system prompt), which need not be shown each time.

    Problems may begin or end alike: only up to a break in the line, or from a tag on.
    """
    if len(prompts) < 2:
        return "", ""
    prefix, suffix = _prefix(prompts), _prefix([prompt[::-1] for prompt in prompts])[::-1]
    start = re.search(r"[\n<\[]", suffix)
    return prefix[: prefix.rfind("\n") + 1], suffix[start.start() :] if start else ""


def _prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # in their order, these two tell for all
    return first[: shared_prefix_length(first, last)]


def _kinds(held_out: HeldOutAnswers) -> Mapping[str, object]:
    return _CHANGES if held_out.measure.is_share else _CHANGES_OF_SCORE


def _change(pair: tuple[ProblemResult, ProblemResult]) -> object:
    """Whether each was right; where nothing is right or wrong, whether the score rose (1) or fell (-1)."""
    before, after = pair
    if before.right is not None or after.right is not None:
        return before.right, after.right
    early, late = before.score or 0.0, after.score or 0.0
    return (late > early) - (late < early)


def _of_answer(answer: ProblemResult, title: str, marker: Marker | None) -> SampleCard:
    sampled = marker.spans(answer.completion_ids) if marker is not None else []
    text = "".join(each.text for each in sampled)
    spans = [TextSpan(answer.completion, 0)]
    if answer.completion.endswith(text):
        spans = [TextSpan(answer.completion.removesuffix(text), 0), *sampled]
    body = marked_html(shortened(spans, _HEAD, _TAIL))
    gold = cell_text(answer.solution)
    facts = [] if gold is None else [("gold", visible_lines(_shortened(gold)))]
    if kind := kind_text(answer.task, answer.difficulty):
        facts.append(("task", visible_lines(_shortened(kind))))
    return SampleCard(title, visible_lines(_shortened(answer.prompt)), body, facts)


def _of_chosen(chosen: ChosenSample, problem: str, reader: SampleReader) -> SampleCard:
    sample = reader.sample(chosen.completion)
    body = marked_html(shortened(sample.spans, _HEAD, _TAIL))
    facts = [(label, _shortened(value)) for label, value in sample.facts]
    return SampleCard(chosen.why, visible_lines(_shortened(problem)), body, facts)


def _shortened(text: str) -> str:
    return "".join(each.text for each in shortened([TextSpan(text, 0)], _HEAD, _TAIL))
