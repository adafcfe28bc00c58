"""Thoughts on a page, token by token: what a reader of their text does not see."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from rlvr_vocab.analysis.report.page import SampleCard, paragraph, samples
from rlvr_vocab.record.probe import TokenMap
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import CHOSEN_BITS, CHOSEN_MEANS

_LEVELS = (0.1, 0.3, 1.0, 3.0)  # nats from which on a change has the next colour
_NOTE = (
    "Thoughts of the first run, on the first problems where they have choices and an answer. A token is coloured if "
    "another id of its text, in its place alone, changes log p of the answer: red where that becomes less likely, "
    f"green where more, in steps from {', '.join(f'{level:g}' for level in _LEVELS)} nats. It is underlined if "
    f"{CHOSEN_MEANS}."
)


def token_maps(shown: Sequence[TokenMap]) -> Markup:
    if not shown:
        return paragraph("No thought with choices has an answer, its own or a gold one, to be followed.", "missing")
    return paragraph(_NOTE, "note") + samples("Token by token", [_card(each) for each in shown])


def _card(shown: TokenMap) -> SampleCard:
    tokens = zip(shown.texts, shown.copies, shown.bits, shown.changes, strict=True)
    changes = [change or 0.0 for change in shown.changes]
    facts = [
        ("answer", visible_lines(shown.answer)),
        ("log p of it", _signed(shown.answer_logp)),
        ("largest change", _signed(max(changes, key=abs, default=0.0))),
        ("bits from chance", f"{sum(bits or 0.0 for bits in shown.bits):.3f}"),
    ]
    return SampleCard(
        f"problem {shown.problem}",
        visible_lines(shown.question),
        Markup().join(_token(*each) for each in tokens),
        facts,
    )


def _token(text: str, copy: int, bits: float | None, change: float | None) -> Markup:
    if bits is None:
        return escape(visible_lines(text))
    level = sum(abs(change or 0.0) >= each for each in _LEVELS)
    classes = [f"{'down' if (change or 0.0) < 0 else 'up'}{level}"] * (level > 0) + ["chosen"] * (bits >= CHOSEN_BITS)
    exchanged = "not exchanged" if change is None else f"exchanged: {_signed(change)} nats"
    told = f"{f'copy {copy}' if copy else 'standard'}; {bits:.2f} bits from chance; {exchanged}"
    return Markup('<span class="{}" title="{}">{}</span>').format(" ".join(classes), told, visible_lines(text))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
