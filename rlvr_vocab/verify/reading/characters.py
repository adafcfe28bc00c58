"""LaTeX in ASCII for what Unicode has characters of its own for: `½`, `x²`, `√`, `≤`, `∞`, `４２`."""

from __future__ import annotations

import re
import unicodedata

_LATEX = str.maketrans(
    {
        **dict.fromkeys("−‒–—―‐‑", "-"), "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/",
        "∕": "/", "⁄": "/", "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ",
        "⩾": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ",
        "∈": r"\in ", "°": r"\degree ", "º": r"\degree ", "≈": r"\approx ", "…": r"\dots ", "⟨": r"\langle ",
        "⟩": r"\rangle ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
        "ℂ": r"\mathbb{C}", "∠": r"\angle ", "△": r"\triangle ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ",
        "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ", "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ",
        "φ": r"\phi ", "ω": r"\omega ", "′": "'", "’": "'", "‘": "'", "“": '"', "”": '"',
    }
)  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴-⁹⁺⁻ⁿ]+")
_SUBSCRIPT_RUN = re.compile("[₀-₉]+")
_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
_SPACE = re.compile(r"\s")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
# Letters and digits in another width or face. Other compatibility characters say more than their letters: ② is not 2.
_FACES = ("<wide>", "<narrow>", "<font>")


def ascii_latex(text: str) -> str:
    r"""A text with its Unicode mathematics as LaTeX, and every kind of white space as a space; the rest as it was.

    >>> ascii_latex("½π ≤ x²")
    '\\frac{1}{2}\\pi  \\le  x^{2}'
    """
    if not text.isascii():
        text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{run[0].translate(_SUPERSCRIPTS)}}}", text)
        text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{run[0].translate(_SUBSCRIPTS)}}}", text)
        text = _VULGAR_FRACTION.sub(_fraction, text).translate(_LATEX)
        text = _NOT_ASCII.sub(_in_common_face, text)
    return _SPACE.sub(" ", text)


def _fraction(character: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", character[0]).partition("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _in_common_face(character: re.Match[str]) -> str:
    kind = unicodedata.decomposition(character[0]).partition(" ")[0]
    return unicodedata.normalize("NFKC", character[0]) if kind in _FACES else character[0]
