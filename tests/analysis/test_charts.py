"""Charts: deterministic, literal about words, honest about many points, legible on both grounds."""

import math
from xml.etree import ElementTree

import pytest

from rlvr_vocab.analysis.charts import Line, line_chart, save_charts

SVG = "{http://www.w3.org/2000/svg}"
WAVE = Line("wave", range(1, 31), [math.sin(step / 5) for step in range(1, 31)])


def words(svg):
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a_b $x^2$ $ &amp; \"'"])
def test_names_are_drawn_as_they_are(name):
    svg = line_chart([Line(name, [1, 2], [1, 2]), WAVE], y_label=name, title=name).svg
    assert words(svg).count(name) == 2  # in the legend and beside the axis
    assert ElementTree.fromstring(svg).get("aria-label", "").startswith(f"{name}. ")


def test_a_saved_figure_needs_no_font_and_stands_on_white(tmp_path):
    save_charts([line_chart([WAVE], title="KL to <x>", y_label="a_b$")], tmp_path)
    svg, pdf = (tmp_path / f"kl_to_x.{kind}" for kind in ("svg", "pdf"))
    root = ElementTree.parse(svg).getroot()
    ground = next(root.iter(f"{SVG}path"))
    assert not [*root.iter(f"{SVG}text")] and "fill: #ffffff" in ground.get("style", "")
    assert pdf.read_bytes().startswith(b"%PDF") and b"CreationDate" not in pdf.read_bytes()
