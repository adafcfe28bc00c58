"""Completions on a page: prompt, tokens in the colours of their multiplicity, rewards and why they were given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

from rlvr_vocab.analysis.report.blocks import Sample, heading, paragraph, samples
from rlvr_vocab.analysis.report.choice import Choice, Chosen
from rlvr_vocab.analysis.report.held_out import Answer, HeldOut, is_right
from rlvr_vocab.counted import counted
from rlvr_vocab.record.completions import SampledCompletion
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import Marker, TextSpan, marked_html, shared_prefix_length, shortened

# Of a long text, what is shown from its start and from its end.
_HEAD, _TAIL = 1400, 700
_HOW_CHOSEN = (
    "At moments spread evenly over the run: the completion with the highest reward, the one with the lowest, and one "
    "drawn with a fixed seed."
)
_FATES = {
    "wrong before, right after": (False, True),
    "right before, wrong after": (True, False),
    "wrong before and after": (False, False),
}


def held_out_answers(held_out: HeldOut) -> list[tuple[str, Answer, Answer]]:
    """The first problem of each fate, before and after: learned, unlearned, never right."""
    pairs = held_out.pairs()
    firsts = ((name, next((pair for pair in pairs if _fate(pair) == fate), None)) for name, fate in _FATES.items())
    return [(name, *pair) for name, pair in firsts if pair is not None]


def held_out_section(held_out: HeldOut, shown: Sequence[tuple[str, Answer, Answer]], marker: Marker | None) -> Markup:
    """How many problems changed, and some of them."""
    fates = [_fate(pair) for pair in held_out.pairs()]
    counts = "; ".join(f"{fates.count(fate):,} {name}" for name, fate in _FATES.items())
    words = f"Of {counted(len(fates), 'problem')}: {counts}. The first of each kind, as it was answered:"
    cards = (
        samples(name, [_of_answer(before, "before GRPO", marker), _of_answer(after, "after GRPO", marker)])
        for name, before, after in shown
    )
    return heading("Held-out problems") + paragraph(words) + Markup().join(cards)


def training_section(choice: Choice, marker: Marker | None) -> Markup:
    """What the model wrote while it was trained."""
    known = _Template(choice.prompts)
    parts = [Markup(), *(paragraph(f"Not shown: {line}", "missing") for line in choice.unreadable)]
    if choice.early_and_late:
        cards = [_of_chosen(each, f"step {each.completion.step:,}", marker, known) for each in choice.early_and_late]
        parts += [heading("The same problem, early and late"), samples("", cards)]
    if choice.moments:
        parts += [heading("During training"), paragraph(_HOW_CHOSEN, "note")]
    for step, chosen in groupby(choice.moments, key=lambda each: each.completion.step):
        parts.append(samples(f"Step {step:,}", [_of_chosen(each, each.why, marker, known) for each in chosen]))
    return Markup().join(parts)


class _Template:
    """What all prompts begin and end with: chat template and system prompt, which need not be read each time.

    Args:
        prompts: different ones, sorted.
    """

    def __init__(self, prompts: Sequence[str]) -> None:
        # Of sorted texts, the first and the last tell for all.
        first, last = (prompts[0], prompts[-1]) if len(prompts) > 1 else ("", "")
        prefix = first[: shared_prefix_length(first, last)]
        backwards = sorted(prompt[::-1] for prompt in prompts)
        suffix = backwards[0][: shared_prefix_length(backwards[0], backwards[-1])][::-1] if first else ""
        start = re.search(r"[\n<\[]", suffix)
        # Problems may begin or end alike: only up to a break in the line, or from a tag on.
        self._before = prefix[: prefix.rfind("\n") + 1]
        self._after = suffix[start.start() :] if start else ""

    def problem(self, prompt: str) -> str:
        inner = prompt.removeprefix(self._before).removesuffix(self._after)
        return inner.strip() or prompt


def _fate(pair: tuple[Answer, Answer]) -> tuple[bool, bool]:
    return is_right(pair[0]), is_right(pair[1])


def _of_answer(answer: Answer, title: str, marker: Marker | None) -> Sample:
    sampled = marker.spans(answer.completion_ids) if marker is not None else []
    text = "".join(each.text for each in sampled)
    spans = [TextSpan(answer.completion, 0)]
    if answer.completion.endswith(text):
        spans = [TextSpan(answer.completion.removesuffix(text), 0), *sampled]
    body = marked_html(shortened(spans, _HEAD, _TAIL))
    return Sample(
        title, visible_lines(_shortened(answer.prompt)), body, [("gold", visible_lines(_shortened(answer.solution)))]
    )


def _of_chosen(chosen: Chosen, title: str, marker: Marker | None, template: _Template) -> Sample:
    completion = chosen.completion
    spans = [TextSpan(completion.completion, 0)]
    if marker is not None and completion.completion_ids:
        spans = marker.spans(completion.completion_ids)
    prompt = visible_lines(_shortened(template.problem(completion.prompt)))
    return Sample(title, prompt, marked_html(shortened(spans, _HEAD, _TAIL)), list(_facts(completion)))


def _facts(completion: SampledCompletion) -> Iterator[tuple[str, str]]:
    if completion.solution:
        yield "gold", visible_lines(_shortened(completion.solution))
    yield "reward", f"{completion.reward:.3g}"
    yield "advantage", f"{completion.advantage:+.2f}".replace("-", "−")
    several = len(completion.rewards) > 1
    for name, score in completion.rewards.items():
        reason = visible_lines(_shortened(completion.reasons.get(name, "")))
        shown = "no score" if score is None else f"{score:.3g}"
        if several or reason:
            yield visible_lines(name), f"{shown} ({reason})" if reason else shown


def _shortened(text: str) -> str:
    return "".join(each.text for each in shortened([TextSpan(text, 0)], _HEAD, _TAIL))
