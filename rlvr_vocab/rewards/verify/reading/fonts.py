r"""Takes fonts off: `\mathrm{cm}` and `\textbf{cm}` are the text `cm`, `\mathbf{v}` is the letter `v`."""

from __future__ import annotations

import re

from rlvr_vocab.rewards.verify.reading.scanning import group_end

_FONT = re.compile(
    r"\\(?:(?P<text>text(?:bf|it|rm|sf|tt|normal|sc|up)?|mbox|hbox|operatorname\*?)"
    r"|math(?:rm|bf|it|sf|tt|normal)|boldsymbol|bm|pmb) *(?=\{)"
)

_TEXT_GROUP = re.compile(r"\\text\{([^{}]*)\}")
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan)h?|cot|sec|csc|ln|log|exp")
_WORDS = re.compile(r"[A-Za-z ./'-]{2,}")
_POWER_OF_UNIT = re.compile(r"([A-Za-z ./]+)\^\{?([23])\}?")
# Single upright letters that are units behind a number, and else the names of numbers.
_UNIT_LETTERS = frozenset("mgslhLNJWVK")
_BEHIND_NUMBER = re.compile(r"[0-9)}/]\s*$")
_UNIT = r"\\text\{ *([A-Za-z]+) *\}"
_RATIO = re.compile(rf"{_UNIT} */ *{_UNIT}")
_FRACTION = re.compile(rf"\\frac *\{{ *{_UNIT} *\}} *\{{ *{_UNIT} *\}}")


def without_fonts(text: str) -> str:
    r"""Words and units as `\text{…}`, everything else without its font.

    >>> without_fonts(r"9.8\mathrm{m/s^2}"), without_fonts(r"\mathbf{v}=\textbf{(3)}"), without_fonts(r"\mathrm{sin} x")
    ('9.8\\text{m/s}^{2}', 'v=(3)', '\\sin  x')
    """
    for font in reversed(list(_FONT.finditer(text))):
        end = group_end(text, font.end())
        if end is None:
            continue
        before, inner = text[: font.start()], text[font.end() + 1 : end - 1]
        behind_number = _BEHIND_NUMBER.search(before[-9:]) is not None
        text = before + _without_font(inner, font["text"] is not None, behind_number) + text[end:]
    return _RATIO.sub(r"\\text{\1/\2}", _FRACTION.sub(r"\\text{\1/\2}", text))


def _without_font(inner: str, is_text: bool, behind_number: bool) -> str:
    inner = _TEXT_GROUP.sub(r"\1", inner)
    bare = inner.strip()
    if not re.search("[A-Za-z]", inner):
        return inner
    if _FUNCTION.fullmatch(bare):
        return f"\\{bare} "
    if raised := _POWER_OF_UNIT.fullmatch(bare):
        return rf"\text{{{raised[1]}}}^{{{raised[2]}}}"
    if len(bare) == 1 and not (is_text and bare != "i") and not (behind_number and bare in _UNIT_LETTERS):
        return bare
    is_words = is_text or len(bare) == 1 or _WORDS.fullmatch(bare)
    return rf"\text{{{inner}}}" if is_words else f"{{{inner}}}"
