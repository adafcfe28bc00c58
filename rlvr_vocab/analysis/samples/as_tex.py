r"""Samples as a TeX document for lualatex or xelatex, which know Unicode; all that is not ours is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rlvr_vocab.analysis.marked import NUMBER_OF_COLOURS, colour_of, readable
from rlvr_vocab.analysis.samples.sample import Sample
from rlvr_vocab.vocab.marking import Stretch

# Braces of their own behind each, so that no two characters become one: `--`, `<<`, ?` and their like.
_ESCAPED = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': r"\textquotedbl{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "-": "-{}",
    ",": ",{}",
    "\n": "\\par\n",
}
# Stand for what TeX has to be told and no readable text holds.
_BREAK, _SPACE = "\0", "\1"
_TOLD = {_BREAK: r"\allowbreak{}", _SPACE: "\\ "}
_LONGEST_WORD = 20
_RGB = ("160,20,154", "11,110,138", "154,91,0", "29,122,40", "43,80,200", "179,38,30")
_HEAD = r"""% Compile with lualatex or xelatex. Characters that the font lacks are left out, and the log names them.
\documentclass{article}
\usepackage{iftex}
\RequireTUTeX
\usepackage[margin=2.5cm]{geometry}
\usepackage{fontspec}
\usepackage{xcolor}
\IfFontExistsTF{DejaVu Sans Mono}{\setmonofont{DejaVu Sans Mono}[Scale=0.8]}{}
\setlength{\parindent}{0pt}
\newcommand{\sample}[1]{\bigskip\hrule\medskip\textbf{#1}\par}
\newenvironment{sampled}{\begin{quote}\ttfamily\small\raggedright}{\end{quote}}
"""


def tex_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    yield _HEAD
    for number, rgb in enumerate(_RGB[:NUMBER_OF_COLOURS], start=1):
        yield f"\\definecolor{{copy{number}}}{{RGB}}{{{rgb}}}\n"
    yield f"\\begin{{document}}\n\\section*{{Completions}}\n{tex(heading)}\\par\n"
    copies = (f"\\textcolor{{copy{number}}}{{\\textbf{{copy {number}}}}}" for number in range(1, NUMBER_OF_COLOURS + 1))
    yield f"Reasoning tokens, by which copy of the standard token they are: {', '.join(copies)}\n"
    for sample in samples:
        yield f"\n\\sample{{{tex(sample.title)}}}\n"
        for label, value in sample.facts():
            yield f"{tex(label)}: \\texttt{{{tex(value)}}}\\par\n"
        yield _block("prompt", [Stretch(sample.completion.prompt, 0)])
        yield _block("completion", sample.stretches)
    yield "\\end{document}\n"


def tex(text: str) -> str:
    r"""Text that TeX sets as it is; line feeds end paragraphs, and long words may break.

    >>> print(tex("50% of $x_1$ & \\input{a}"))
    50\% of \$x\_1\$ \& \textbackslash{}input\{a\}
    """
    broken = re.sub(rf"(\S{{{_LONGEST_WORD}}})(?=\S)", rf"\1{_BREAK}", readable(text))
    spaced = re.sub(r"^ +|(?<= ) +", lambda spaces: _SPACE * len(spaces[0]), broken, flags=re.MULTILINE)
    return "".join(_TOLD.get(character) or _ESCAPED.get(character, character) for character in spaced)


def _block(label: str, stretches: Iterable[Stretch]) -> str:
    return f"{label}:\n\\begin{{sampled}}%\n{''.join(map(_stretch, stretches))}%\n\\end{{sampled}}\n"


def _stretch(stretch: Stretch) -> str:
    """Colours end with each line: a paragraph may not end inside \\textcolor."""
    if not stretch.multiplicity:
        return tex(stretch.text)
    colour = f"copy{colour_of(stretch.multiplicity)}"
    lines = stretch.text.split("\n")
    return "\\par\n".join(f"\\textcolor{{{colour}}}{{\\textbf{{{tex(line)}}}}}" if line else "" for line in lines)
