"""Charts: deterministic, literal about words, honest about many points, legible on both grounds."""

import math
import re
from xml.etree import ElementTree

import pytest

from rlvr_vocab.analysis.charts import Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"
WAVE = Line("wave", range(1, 31), [math.sin(step / 5) for step in range(1, 31)])


def words(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a_b $x^2$ $ &amp; \"'"])
def test_names_are_drawn_as_they_are(name: str) -> None:
    svg = line_chart([Line(name, [1, 2], [1, 2]), WAVE], y_label=name, title=name)
    assert words(svg).count(name) == 2  # in the legend and beside the axis
    assert ElementTree.fromstring(svg).get("aria-label", "").startswith(f"{name}. ")


def test_nothing_is_loaded_and_the_same_data_gives_the_same_text() -> None:
    svg = line_chart([WAVE], y_label="height", title="Waves")
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "g", "path", "use", "defs", "clipPath", "rect", "text", "tspan", "style")
    }
    assert not re.findall(r"https?://(?!www\.w3\.org/)", svg)
    assert root.get("aria-label", "").startswith("Waves. wave: 0.199 at step 1")
    assert svg == line_chart([WAVE], y_label="height", title="Waves")


def test_no_peak_is_lost_among_many_points_and_the_file_stays_small() -> None:
    values = [0.0] * 20_000
    values[12_345] = 100.0
    spiked = line_chart([Line("y", [number / 20_000 for number in range(20_000)], values)], y_label="y")
    assert len(spiked) < 60_000
    # Steps lie between 0 and 1: a tick beyond is one of the height that is drawn, 100, and not of a mean.
    assert max(float(word) for word in words(spiked) if word.replace(".", "").isdecimal()) >= 75


def test_many_points_are_shown_beside_their_mean() -> None:
    many, few = (
        line_chart([Line("y", range(count), [(step * 37) % 11 for step in range(count)])], y_label="y")
        for count in (100, 30)
    )
    assert "step · strong: mean of 5" in words(many) and "stroke-opacity: 0.38" in many
    assert "step" in words(few) and "stroke-opacity: 0.38" not in few
