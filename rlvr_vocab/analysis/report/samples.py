"""The completions on a page, chosen by rule so that the choice flatters nobody.

At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one drawn
with a fixed seed. Of the held-out problems: the first of each kind of change.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
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
from rlvr_vocab.text import pluralize, visible_text
from rlvr_vocab.vocab.marking import Marker, TextSpan, marked_html, shared_prefix_length, shortened

MOST_MOMENTS = 5
_SEED = 0
_HEAD, _TAIL = 1400, 700  # characters of a long text that are shown
_HOW_CHOSEN = (
    "At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one "
    "drawn with a fixed seed."
)
_CHANGES: Mapping[str, object] = {
    "wrong before, right after": (False, True),
    "right before, wrong after": (True, False),
    "wrong before and after": (False, False),
}
_CHANGES_OF_SCORE: Mapping[str, object] = {"better after": 1, "worse after": -1, "the same": 0}


def choose_samples(files: CompletionFiles, most: int) -> tuple[list[tuple[str, SampledCompletion]], list[str]]:
    """At most so many completions, in the order of their steps, each with why; and a line for each unreadable file."""
    chosen, unreadable = list[tuple[str, SampledCompletion]](), list[str]()
    moments = min(MOST_MOMENTS, most // 3)
    for step in evenly_spread(files.steps, moments) if moments > 1 else files.steps[-1:]:
        try:
            completions = files.read(step)
        except UserError as error:
            unreadable.append(str(error))
            continue
        scored = [each for each in completions if each.reward == each.reward]
        left = sorted(scored or completions, key=lambda each: each.reward)
        chosen += [("highest reward", left.pop())] if left else []
        chosen += [("lowest reward", left.pop(0))] if left else []
        left = sorted(left, key=lambda each: each.row)
        chosen += [("drawn at random", random.Random(_SEED).choice(left))] if left else []
    return chosen[:most], unreadable


def training_section(
    chosen: Sequence[tuple[str, SampledCompletion]], unreadable: Sequence[str], reader: SampleReader
) -> Markup:
    """Completions during training; the beginning and end that all prompts share are not repeated."""
    before, after = _shared_by(sorted({each.prompt for _, each in chosen}))
    parts = [Markup(), *(paragraph(f"Not shown: {line}", "missing") for line in unreadable)]
    if chosen:
        parts += [heading("During training"), paragraph(_HOW_CHOSEN, "note")]
    for step, of_step in groupby(chosen, key=lambda each: each[1].step):
        cards = []
        for why, completion in of_step:
            sample = reader.sample(completion)
            problem = completion.prompt.removeprefix(before).removesuffix(after).strip() or completion.prompt
            facts = [(label, _shortened(value)) for label, value in sample.facts]
            cards.append(_card(why, problem, sample.spans, facts))
        parts.append(samples(f"Step {step:,}", cards))
    return Markup().join(parts)


def held_out_section(held_out: HeldOutAnswers, most: int, marker: Marker | None) -> tuple[Markup, int]:
    """How many problems changed, and the first answers to the first problem of each kind; returns how many answers."""
    pairs = [(early[0], late[0]) for early, late in held_out.by_problem()]
    changes = [_change(*pair) for pair in pairs]
    kinds = _CHANGES if held_out.metric.is_share else _CHANGES_OF_SCORE
    shown = [(name, pairs[changes.index(kind)]) for name, kind in kinds.items() if kind in changes][:most]
    if not shown:
        return Markup(), 0
    counts = "; ".join(f"{changes.count(kind):,} {name}" for name, kind in kinds.items())
    intro = f"Of {pluralize(len(changes), 'problem')}: {counts}. The first of each kind, as it was answered:"
    cards = [
        samples(name, [_of_answer(before, "before GRPO", marker), _of_answer(after, "after GRPO", marker)])
        for name, (before, after) in shown
    ]
    return Markup().join([heading("Held-out problems"), paragraph(intro), *cards]), 2 * len(shown)


def _shared_by(prompts: Sequence[str]) -> tuple[str, str]:
    """The beginning and end that all prompts share; problems may, too, so only up to a line break, or from a tag on."""
    if len(prompts) < 2:
        return "", ""
    prefix, suffix = _prefix(prompts), _prefix([prompt[::-1] for prompt in prompts])[::-1]
    start = re.search(r"[\n<\[]", suffix)
    return prefix[: prefix.rfind("\n") + 1], suffix[start.start() :] if start else ""


def _prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # in their order, these two differ first
    return first[: shared_prefix_length(first, last)]


def _change(before: ProblemResult, after: ProblemResult) -> object:
    """Whether each was right; where nothing is right or wrong, whether the score rose (1) or fell (-1)."""
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
    facts = {"gold": cell_text(answer.solution), "task": kind_text(answer.task, answer.difficulty)}
    shown = [(name, visible_text(_shortened(value))) for name, value in facts.items() if value]
    return _card(title, answer.prompt, spans, shown)


def _card(title: str, prompt: str, spans: Sequence[TextSpan], facts: Sequence[tuple[str, str]]) -> SampleCard:
    body = marked_html(shortened(spans, _HEAD, _TAIL))
    return SampleCard(title, visible_text(_shortened(prompt)), body, facts)


def _shortened(text: str) -> str:
    return "".join(each.text for each in shortened([TextSpan(text, 0)], _HEAD, _TAIL))
