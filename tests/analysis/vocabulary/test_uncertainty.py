"""Entropy by region and by token: means that can be worked out in the head."""

import math

import pytest

from rlvr_vocab.analysis.vocabulary import analyse_vocabulary, vocabulary_charts, vocabulary_tables

NAN = float("nan")


def by_token(analysis):
    return {(each.region, each.source, each.written_as): each for each in analysis.uncertainty.tokens}


def test_entropies_are_averaged_by_region_token_and_what_was_written(trained):
    run = trained
    sampled = [run.opened, run.a, run.copy(run.a), run.b, run.closed, run.a]
    run.completions(1, [sampled], sampling_entropies=[[9.0, 1.0, 2.0, 3.0, 4.0, 0.5]])
    run.completions(2, [sampled], sampling_entropies=[[9.0, 5.0, 7.0, 3.0, 4.0, 0.7]], sampling_logps=[[-1.0] * 6])
    analysis = analyse_vocabulary(run.record)
    assert analysis.uncertainty.kind == "entropy"
    lines = {line.name: line.values for line in analysis.uncertainty.means}
    assert lines["thinking"] == pytest.approx((2.5, 4.75))
    assert lines["answering"] == pytest.approx((4.75, 4.85))
    assert lines["thinking, standard tokens"] == pytest.approx((8 / 3, 4))
    assert lines["thinking, copies"] == (2.0, 7.0)
    found = by_token(analysis)
    both = found["thinking", run.a, "any"]
    assert (both.early_count, both.late_count, both.early, both.late) == (2, 2, 1.5, 6.0)
    # Two positions of 6 and thirty of the late mean of thinking.
    assert both.level == pytest.approx((2 * 6 + 30 * 4.75) / 32)
    assert found["thinking", run.a, "standard"].late == 5
    assert found["thinking", run.a, "copy 1"].late == 7
    assert found["answering", run.a, "any"].late == pytest.approx(0.7)
    assert ("answering", run.a, "standard") not in found


def test_without_entropies_it_is_surprisal_and_called_so(trained):
    run = trained
    for step in (1, 2):
        run.completions(step, [[run.opened, run.a]], sampling_logps=[[-0.1, -2.0]])
    analysis = analyse_vocabulary(run.record)
    assert analysis.uncertainty.kind == "surprisal"
    assert by_token(analysis)["thinking", run.a, "any"].late == 2
    shown = [each.title for each in (*vocabulary_charts(analysis), *vocabulary_tables(analysis))]
    assert "Tokens of the highest surprisal" in shown and "Tokens of the highest entropy" not in shown


def test_positions_without_an_entropy_do_not_count(trained):
    run = trained
    sampled = [run.opened, run.a, run.a, run.a]
    run.completions(1, [sampled], sampling_entropies=[[0.0, 1.0, NAN, None]])
    run.completions(2, [sampled], sampling_entropies=[[0.0, 3.0, 3.0]])  # one too few: nobody knows which
    run.completions(3, [sampled], sampling_logps=[[-1.0] * 4])  # a step that was drawn by a sampler without entropies
    analysis = analyse_vocabulary(run.record)
    assert analysis.steps == (1, 3) and "sampling_entropies has not a value for every token" in str(analysis.notes)
    found = by_token(analysis)["thinking", run.a, "any"]
    assert (found.early_count, found.early, found.late_count) == (1, 1.0, 0)
    assert math.isnan(found.late) and math.isnan(found.level)


def test_a_baseline_has_entropies_and_a_sentence_in_place_of_the_rest(run, copied_rows):
    run.copies = 0
    run.model("initial_model", {"model.embed_tokens.weight": copied_rows(run.layout)})
    for step in (1, 2):
        run.completions(step, [[run.opened, run.a, run.closed, run.b]], sampling_entropies=[[0.0, 1.0, 2.0, 3.0]])
    analysis = analyse_vocabulary(run.record)
    assert (analysis.usage, analysis.drift, analysis.projection, analysis.separated_copies) == (None, None, None, ())
    assert any("baseline" in note for note in analysis.notes)
    assert vocabulary_charts(analysis) == []
    assert [table.title for table in vocabulary_tables(analysis)] == ["Tokens of the highest entropy"]
    assert by_token(analysis)["thinking", run.a, "any"].late == 1
    assert {written_as for _, _, written_as in by_token(analysis)} == {"any"}
