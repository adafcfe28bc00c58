"""Samples as one document: plain text, Markdown, or an HTML file that loads nothing and runs nothing.

Each writer yields the document in pieces, so that a run of any size goes through without being held as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from markupsafe import Markup

from rlvr_vocab.analysis.samples.sample import Sample
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import CLOSE_MARK, NUMBER_OF_COLOURS, OPEN_MARK, marked_html, marked_plain

_LEGEND = (
    f"{OPEN_MARK}…{CLOSE_MARK} reasoning tokens that are first copies, {OPEN_MARK}2:…{CLOSE_MARK} second copies, "
    "and so on; characters that would not show are drawn: ␛ <U+202E>"
)
# Told apart by the line below them too, for those who see no colours and for grey paper.
_COPY_STYLE = """
.m1 { color: #a0149a; border-bottom: 2px solid }
.m2 { color: #0b6e8a; border-bottom: 2px dashed }
.m3 { color: #9a5b00; border-bottom: 2px dotted }
.m4 { color: #1d7a28; border-bottom: 3px double }
.m5 { color: #2b50c8; border-bottom: 1px solid }
.m6 { color: #b3261e; border-bottom: 1px dashed }
@media screen and (prefers-color-scheme: dark) {
  .m1 { color: #f08bea } .m2 { color: #6fd3ee } .m3 { color: #f0b860 }
  .m4 { color: #7fd98a } .m5 { color: #9db4ff } .m6 { color: #ff9a92 }
}
"""
_STYLE = (
    """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem }
article { border-top: 1px solid #8888; margin-top: 1.5rem; break-inside: avoid-page }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem } h3 { font-size: .9rem; margin: .8rem 0 .2rem; opacity: .75 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: 0 }
dt { opacity: .75 } dd { margin: 0; overflow-wrap: anywhere }
pre { font: 14px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0;
  unicode-bidi: plaintext }
details > pre { opacity: .85 } summary { font-size: .9rem; margin-top: .5rem }
"""
    + _COPY_STYLE
)
_HEAD = Markup(
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>Completions</h1>\n<p>{heading}</p>\n{legend}"
)
_ARTICLE = Markup(
    "<article>\n<h2>{title}</h2>\n<dl>\n{facts}</dl>\n"
    "<details open>\n<summary>prompt</summary>\n<pre>\n{prompt}</pre>\n</details>\n"
    "<h3>completion</h3>\n<pre>\n{completion}</pre>\n</article>\n"
)
_FACT = Markup("<dt>{}</dt><dd>{}</dd>\n")


def text_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    """Plain text. Prompts and completions are indented, so that no line of them can pass for one of ours."""
    yield f"{heading}\n{_LEGEND}\n"
    for sample in samples:
        facts = "".join(f"{label}: {value}\n" for label, value in sample.facts())
        yield f"\n--- {sample.title}\n{facts}"
        yield f"prompt:\n{_indented(visible_lines(sample.completion.prompt))}\n"
        yield f"completion:\n{_indented(marked_plain(sample.spans))}\n"


def markdown_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    """Markdown. Facts, prompts and completions stand in fenced blocks."""
    head = _fenced(f"{heading}\n{_LEGEND}")
    yield f"# Completions\n\n{head}"
    for sample in samples:
        facts = "\n".join(f"{label}: {value}" for label, value in sample.facts())
        yield f"\n## {sample.title.capitalize()}\n\n{_fenced(facts)}"
        yield f"\nPrompt:\n\n{_fenced(visible_lines(sample.completion.prompt))}"
        yield f"\nCompletion:\n\n{_fenced(marked_plain(sample.spans))}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def _fenced(text: str) -> str:
    """A block whose fence is longer than any that its text could close it with."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def html_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    shown = visible_lines(heading)
    yield str(_HEAD.format(title=shown, style=Markup(_STYLE), heading=shown, legend=_legend()))
    for sample in samples:
        yield str(
            _ARTICLE.format(
                title=sample.title,
                facts=Markup("").join(_FACT.format(label, value) for label, value in sample.facts()),
                prompt=visible_lines(sample.completion.prompt),
                completion=marked_html(sample.spans),
            )
        )
    yield "</body>\n</html>\n"


def _legend() -> Markup:
    copies = (Markup('<span class="m{0}">copy {0}</span>').format(number + 1) for number in range(NUMBER_OF_COLOURS))
    return Markup("<p>Reasoning tokens, by which copy of the standard token they are: {}</p>\n").format(
        Markup(", ").join(copies)
    )


Format = Literal["text", "html", "md"]
PIECES: dict[Format, Callable[[Iterable[Sample], str], Iterator[str]]] = {
    "text": text_pieces,
    "html": html_pieces,
    "md": markdown_pieces,
}
