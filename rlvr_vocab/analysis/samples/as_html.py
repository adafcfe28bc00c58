"""Samples as one HTML file that loads nothing and runs nothing; legible on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markupsafe import Markup

from rlvr_vocab.analysis.marked import NUMBER_OF_COLOURS, as_html, readable
from rlvr_vocab.analysis.samples.sample import Sample

# Told apart by the line below them too, for those who see no colours and for grey paper.
STRETCH_STYLE = """
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
    + STRETCH_STYLE
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


def html_pieces(samples: Iterable[Sample], heading: str) -> Iterator[str]:
    yield str(_HEAD.format(title=readable(heading), style=Markup(_STYLE), heading=readable(heading), legend=_legend()))
    for sample in samples:
        yield str(
            _ARTICLE.format(
                title=sample.title,
                facts=Markup("").join(_FACT.format(label, value) for label, value in sample.facts()),
                prompt=readable(sample.completion.prompt),
                completion=as_html(sample.stretches),
            )
        )
    yield "</body>\n</html>\n"


def _legend() -> Markup:
    copies = (Markup('<span class="m{0}">copy {0}</span>').format(number + 1) for number in range(NUMBER_OF_COLOURS))
    return Markup("<p>Reasoning tokens, by which copy of the standard token they are: {}</p>\n").format(
        Markup(", ").join(copies)
    )
