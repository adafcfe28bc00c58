"""Reports in a real Chromium: a silent console, every picture drawn, nothing wider than a phone, legible print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_vocab.config.command_sections import ReportSettings
from rlvr_vocab.runs.report import write_report

from ..browser import Browser
from .report_run import HOSTILE, answer, completion, metrics, write_completions, write_json, write_rows, write_run

PHONE, DESK = 390, 1400
SMALLEST_PRINT = 8  # CSS pixels

# In the page: what each picture takes on the screen, and how large its words are there.
PICTURES = """JSON.stringify([...document.querySelectorAll('svg')].map(svg => {
  const box = svg.getBoundingClientRect(), words = [...svg.querySelectorAll('text')];
  const scale = matrix => Math.hypot(matrix.a, matrix.b);
  const size = word => parseFloat(getComputedStyle(word).fontSize) * scale(word.getScreenCTM());
  return {width: box.width, height: box.height, lines: svg.querySelectorAll('path').length,
          print: Math.min(...words.map(size))}
}))"""
OUTSIDE = """JSON.stringify([...document.querySelectorAll('svg text')].filter(each => {
  const word = each.getBoundingClientRect(), figure = each.closest('figure').getBoundingClientRect();
  return word.left < figure.left - 2 || word.right > figure.right + 2;
}).map(each => each.textContent))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, expand_shape: Callable[..., Path]) -> Path:
    """A run with a reasoning vocabulary, in stages, whose names, prompts and answers mean harm or have no breaks."""
    run = write_run(tmp_path_factory.mktemp("runs") / "run", 60, reward="a" * 90 + ".py:<script>")
    (run / "initial_model").symlink_to(expand_shape("llama", size=50))
    (run / "final_model").symlink_to(expand_shape("llama", size=50, init_noise=0.2))
    rows = [
        {**metrics(step, 60), "stage": "easy" if step < 30 else "hard" * 9, "rewards/boxed/mean": 0.1, "kl": 9.0 * step}
        for step in range(1, 61)
    ]
    write_rows(run / "metrics.jsonl", rows)
    ids = {"prompt_ids": [1, 2], "completion_ids": [3, 4, 5]}
    for step in (1, 60):
        hostile = {**completion(step, 0), "prompt": HOSTILE, "completion": "w" * 3000}
        write_completions(run, step, [{**hostile, **ids}, {**completion(step, 1), **ids, "completion": HOSTILE}])
    write_rows(
        run / "evaluation" / "after.jsonl", [answer(problem, right=problem > 3, text=HOSTILE) for problem in range(40)]
    )
    write_json(run / "problems.json", {"rows_read": 400, "dropped": {"no answer" * 20: 3}})
    write_report(ReportSettings(run, run / "report.html", 24))
    return run / "report.html"


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_silently_and_draws_every_picture(tab: Browser, page: Path, width: int, dark: bool) -> None:
    tab.open(page, width, dark)
    assert tab.said == []
    pictures = json.loads(tab.tell(PICTURES))
    assert len(pictures) > 10
    for picture in pictures:
        assert picture["width"] > 250 and picture["height"] > 100 and picture["lines"] > 5
        assert picture["print"] >= SMALLEST_PRINT
    assert tab.tell("document.documentElement.scrollWidth") <= width
    assert json.loads(tab.tell(OUTSIDE)) == []


def test_it_is_dark_where_the_reader_is(tab: Browser, page: Path) -> None:
    grounds = []
    for dark in (False, True):
        tab.open(page, DESK, dark)
        grounds.append(tab.tell("getComputedStyle(document.body).backgroundColor"))
        words = tab.tell("getComputedStyle(document.querySelector('svg text')).fill")
        assert words == tab.tell("getComputedStyle(document.body).color")
    assert grounds[0] != grounds[1]


def test_its_policy_lets_nothing_run(tab: Browser, page: Path, tmp_path: Path) -> None:
    """Even if something slipped through; and the console, looked at above, would have told."""
    slipped = tmp_path / "slipped.html"
    text = page.read_text().replace("</body>", "<script>document.title = 'ran'</script><img src='x.png'></body>")
    slipped.write_text(text)
    tab.open(slipped, DESK)
    assert tab.tell("document.title") != "ran"
    assert len(tab.said) >= 2 and all("Content Security Policy" in said or "blocked" in said for said in tab.said)


def test_on_paper_folded_parts_are_open(tab: Browser, page: Path) -> None:
    folded = "document.querySelector('#configuration details').getBoundingClientRect().height"
    tab.open(page, DESK)
    assert tab.tell(folded) < 60
    tab.on_paper_from_now()
    assert tab.tell(folded) > 600
