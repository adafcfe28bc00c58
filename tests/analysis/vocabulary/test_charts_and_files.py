"""What is written and drawn of the analysis: whole, in order, and no token can break it."""

import csv
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from rlvr_vocab.analysis.vocabulary import analyse_vocabulary, vocabulary_charts, vocabulary_tables, write_analysis
from rlvr_vocab.analysis.vocabulary.drift import MOST_COPIES, most_used, onto_two
from rlvr_vocab.analysis.vocabulary.token_text import TokenTexts, shown
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout


@pytest.fixture(scope="module")
def eventful_run(run_in, copied_rows, tmp_path_factory):
    """A run in which everything happens; tests only read it."""
    return eventful(run_in(tmp_path_factory.mktemp("told") / "run"), copied_rows)


@pytest.fixture(scope="module")
def analysis(eventful_run):
    return analyse_vocabulary(eventful_run.record)


@pytest.fixture(scope="module")
def folder(analysis):
    return write_analysis(analysis)


def eventful(run, copied_rows):
    """With copies of tokens that would break a file or a page."""
    start = copied_rows(run.layout)
    end = start + 0.1 * torch.randn(start.shape, generator=torch.Generator().manual_seed(5))
    run.model("initial_model", {"model.embed_tokens.weight": start})
    run.model("checkpoint-3", {"model.embed_tokens.weight": (start + end) / 2})
    run.model("final_model", {"model.embed_tokens.weight": end})
    run.rows = [{"step": step, "loss": 0.0, "entropy/thinking": 1.0 / step} for step in range(1, 6)]
    for step in range(1, 6):
        thought = [run.a, run.copy(run.hostile), run.copy(run.d), run.hostile] * (20 + 5 * step) + [run.copy(run.a)]
        sampled = [run.opened, *thought, run.closed, run.e]
        run.completions(step, [sampled], sampling_entropies=[[0.1 * step] * len(sampled)])
    return run


def rows_of(folder, name):
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_files_hold_the_figures_of_the_story(eventful_run, analysis, folder):
    assert [float(row["share"]) for row in rows_of(folder, "usage")] == [point.share for point in analysis.usage.points]
    tokens = {int(row["id"]): row for row in rows_of(folder, "tokens")}
    [final] = analysis.drift.final
    for place, k in enumerate(final.ks.tolist()):
        row = tokens[eventful_run.copy(k)]
        assert float(row["cosine_to_start_both"]) == pytest.approx(1 - final.from_start[place])
        assert int(row["total"]) == analysis.usage.total[eventful_run.copy(k)]
    drift = rows_of(folder, "drift")
    assert {row["model"] for row in drift} == {"initial_model", "checkpoint-3", "final_model"}
    projected = [(float(row["copy_x"]), float(row["copy_y"])) for row in rows_of(folder, "projection")]
    assert projected == [tuple(place) for place in analysis.projection.copy.tolist()] and len(projected) == 5
    about = json.loads((folder / "about.json").read_text())
    assert (about["steps_read"], about["end"], about["tied"]) == (5, "final_model", True)


def test_no_token_moves_a_cell_or_hides_in_a_file(eventful_run, folder):
    texts = {int(row["source_id"]): row["text"] for row in rows_of(folder, "tokens")}
    assert texts[eventful_run.hostile] == '=1,"⏎$x$</svg>'
    assert texts[eventful_run.d] == "␛[2Jd"
    for path in folder.glob("*.csv"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) == text.count("\n")  # a row a line, whatever the tokens hold
        assert all(line.isprintable() for line in text.splitlines()), path


def test_a_second_telling_leaves_nothing_of_the_first(eventful_run, folder):
    (folder / "surprisal_by_token.csv").write_text("of an earlier telling")
    (folder / "mine.txt").write_text("of the user's")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_analysis(analyse_vocabulary(eventful_run.record))
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before.keys() - after.keys() == {"surprisal_by_token.csv"}
    assert all(before[name] == content for name, content in after.items())  # and the same data, the same bytes


def test_every_chart_is_a_document_of_its_own_that_says_what_it_shows(analysis):
    drawn = vocabulary_charts(analysis)
    names = [chart.name for chart in drawn]
    assert names == ["distinct", "drift_source", "drift_start", "drift_norm", "projection", "entropy_written"]
    for chart in drawn:
        root = ElementTree.fromstring(chart.svg)
        assert root.tag.endswith("svg") and chart.title and chart.note.endswith(".")


def test_tables_are_plain_cells_under_their_header(analysis):
    found = vocabulary_tables(analysis)
    for table in found:
        assert table.rows and all(len(row) == len(table.header) for row in table.rows), table.title
        assert all(isinstance(cell, str) and "nan" not in cell for row in table.rows for cell in row)
    [apart] = [table for table in found if "come apart" in table.title]
    scores = [float(row[-1]) for row in apart.rows]
    assert scores == sorted(scores, reverse=True) and len(scores) == 3


def test_the_score_of_a_pair_is_its_formula(eventful_run, analysis):
    [final] = analysis.drift.final
    for each in analysis.separated_copies:
        drift = final.from_source[final.ks.tolist().index(each.k)]
        contexts = 0 if math.isnan(each.contexts) else each.contexts
        assert each.score == pytest.approx((drift + contexts) * each.as_copy**0.5)
        assert each.as_copy == analysis.usage.late[eventful_run.copy(each.k)]
        assert each.as_standard == analysis.usage.late[each.k]


def test_a_plane_is_projected_onto_itself():
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.normal(size=(12, 12)))[0][:2]
    flat = generator.normal(size=(50, 2)) * [5, 1]
    points, explained = onto_two(flat @ axes)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert distances == pytest.approx(np.linalg.norm(flat[:, None] - flat[None], axis=2))
    assert explained == pytest.approx(1)
    # One row more with the same spread in all directions takes its share.
    assert onto_two(np.eye(8))[1] == pytest.approx(2 / 8)
    assert onto_two(np.zeros((3, 5)))[1] == 0
    assert onto_two(np.ones((3, 1)))[0].shape == (3, 2)


def test_of_a_big_vocabulary_the_most_used_are_projected(run):
    run.source_ids = tuple(k % 5 for k in range(1000))
    total = np.zeros(run.layout.rows, np.int64)
    total[8 + 700 :] = np.arange(300) + 1
    assert len(most_used(np.arange(1000), total, run.layout)) == MOST_COPIES
    assert set(most_used(np.arange(1000), total, run.layout).tolist()) == set(range(700, 1000))
    assert most_used(np.arange(1000), None, run.layout).tolist() == list(range(MOST_COPIES))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(" a", "␣a"), ("\n\n", "⏎⏎"), ("", "#7"), ("\ufffd", "#7"), ("\u202e", "<U+202E>"), ("\t", "␉"), ("é", "é")],
)
def test_token_text_is_visible(text, expected):
    assert shown(text, 7) == expected
    assert len(shown(" " * 200, 7)) <= 32


def test_copies_read_as_their_sources_in_every_tokenizer(expand_shape):
    """The first word of a SentencePiece text loses its space when it is decoded alone; a token's text keeps it."""
    for name in ("qwen3", "gemma3"):
        folder = expand_shape(name, size=None)
        layout = VocabLayout.load(folder)
        texts = TokenTexts(folder, layout)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        ids = tokenizer.encode("She sold half", add_special_tokens=False).ids
        assert "".join(texts.of(ids)).replace("␣", " ").strip() == "She sold half"
        assert texts.of([token + layout.standard_size for token in ids]) == texts.of(ids)


def test_a_damaged_tokenizer_is_named(run, copied_rows):
    eventful_run = eventful(run, copied_rows)
    (eventful_run.folder / "initial_model" / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json is not a tokenizer"):
        write_analysis(analyse_vocabulary(eventful_run.record))
    (eventful_run.folder / "initial_model" / "tokenizer.json").unlink()
    assert analyse_vocabulary(eventful_run.record).texts(eventful_run.copy(3)) == "#3"
