"""Use of reasoning tokens: every count is one that was written by hand."""

import math
from pathlib import Path

import pytest

from rlvr_vocab.analysis.vocabulary import analyse_vocabulary
from rlvr_vocab.analysis.vocabulary.analyse import windows_of
from rlvr_vocab.analysis.vocabulary.sampled_tokens import evenly_spread
from rlvr_vocab.analysis.vocabulary.usage import Contexts
from rlvr_vocab.record.completions import CompletionFiles


def test_what_is_counted_is_what_was_sampled_while_thinking(trained):
    run = trained
    copied = run.copy(run.a)
    # In the answer even a copy does not count, nor does anything of the prompt.
    sampled = [
        [run.opened, copied, copied, run.b, run.closed, copied, run.eos],
        [run.opened, run.copy(run.b), run.a, run.closed, run.a, run.a],
    ]
    run.completions(1, sampled, prompt_ids=[[copied, run.e], [run.e]])
    [point] = analyse_vocabulary(run.record).usage.points
    # The closing tags are chosen while thinking, the opening ones are not.
    assert (point.thinking, point.copies, point.distinct) == (7, 3, 2)
    assert point.share == pytest.approx(3 / 7)


def test_a_prompt_that_opens_the_thinking_is_part_of_the_turn(trained):
    run = trained
    run.completions(1, [[run.copy(run.a), run.closed, run.a]], prompt_ids=[[run.e, run.opened]])
    [point] = analyse_vocabulary(run.record).usage.points
    assert (point.thinking, point.copies) == (2, 1)


def test_a_copy_that_grew_leads_and_rare_ones_do_not(trained):
    run = trained
    frequent, rare, shrank = run.copy(run.a), run.copy(run.b), run.copy(run.d)
    for step in range(1, 11):
        late = step > 8
        thought = [frequent] * (300 if late else 100) + [shrank] * (20 if late else 200)
        thought += [rare] * (3 if step == 10 else 0) + [run.e] * (1000 - len(thought))
        run.completions(step, [[run.opened, *thought]])
    usage = analyse_vocabulary(run.record).usage
    assert usage.windows == ((1, 2), (9, 10))
    assert [(each.k, each.early, each.late) for each in usage.growth] == [
        (run.a, 200, 600),
        (run.b, 0, 3),
        (run.d, 400, 40),
    ]
    ratios = [each.ratio for each in usage.growth]
    thinking = usage.thinking
    assert ratios[0] == pytest.approx((600 / thinking[1] + 5 / thinking[0]) / (205 / thinking[0]), rel=1e-2)
    assert ratios[1] < 2 < ratios[0]


def test_a_source_is_told_by_what_it_was_written_as(run, copied_rows):
    run.copies = 2 * 8
    for name in ("initial_model", "final_model"):
        run.model(name, {"model.embed_tokens.weight": copied_rows(run.layout)})
    second = run.copy(run.a, 2)
    run.completions(1, [[run.opened, *[run.a] * 30, *[run.copy(run.a)] * 10]])
    run.completions(2, [[run.opened, *[run.a] * 10, *[run.copy(run.a)] * 10, *[second] * 60, run.closed, run.eos]])
    [source] = analyse_vocabulary(run.record).usage.sources
    assert (source.source, source.early, source.late) == (run.a, (30, 10, 0), (10, 10, 60))
    # Five more occurrences, half of them copies.
    assert (source.early_share, source.late_share) == pytest.approx((12.5 / 45, 72.5 / 85))


def test_what_cannot_be_read_is_named_and_the_rest_is_told(trained):
    run = trained
    for step in (1, 2, 3, 4):
        run.completions(step, [[run.opened, run.copy(run.a)]])
    run.completions(2, [[run.opened, 16]])  # the model has rows 0 to 15
    whole = run.completions(3, [[run.opened]]).read_bytes()
    (run.folder / "completions" / "step_00003.parquet").write_bytes(whole[: len(whole) // 2])
    (run.folder / "completions" / "step_last.parquet").write_bytes(b"none of ours")
    analysis = analyse_vocabulary(run.record)
    assert analysis.steps == (1, 4)
    names = [Path(note.partition(":")[0]).name for note in analysis.notes]
    assert sorted(names) == ["step_00002.parquet", "step_00003.parquet"]
    assert "16 rows" in "".join(analysis.notes)


def test_a_run_without_thinking_or_without_completions_is_told_of(trained):
    run = trained
    assert "no completions" in analyse_vocabulary(run.record).notes[0]
    run.completions(1, [[run.a, run.eos], []])
    [point] = analyse_vocabulary(run.record).usage.points
    assert point.thinking == 0 and math.isnan(point.share)


def test_long_runs_are_read_at_evenly_spread_steps(tmp_path):
    files = [tmp_path / f"step_{number:05d}.parquet" for number in range(1, 1002)]
    chosen = [int(file.stem[5:]) for file in evenly_spread(files, 11)]
    assert chosen == list(range(1, 1002, 100))
    assert evenly_spread(files[:3], 11) == files[:3]


def test_windows_are_the_fifths_at_both_ends():
    assert windows_of(list(range(1, 201))) == ((1, 40), (161, 200))
    assert windows_of([7, 9]) == ((7, 7), (9, 9))


@pytest.mark.parametrize(("before_copy", "bits"), [("b", 0.0), ("d", 1.0)])
def test_contexts_tell_whether_two_ids_are_written_in_the_same_places(trained, before_copy, bits):
    """One bit where no context is shared; nothing where all are, whatever the sample holds by chance."""
    from rlvr_vocab.analysis.vocabulary.sampled_tokens import Tally, read_step, surface_ids

    run = trained
    thought = [run.b, run.a] * 500 + [getattr(run, before_copy), run.copy(run.a)] * 500
    # Contexts count as what they read as: the copy of b stands for b.
    thought += [run.copy(run.b), run.a] * 500
    run.completions(1, [[run.opened, *thought]])
    files = CompletionFiles(run.folder / "completions")
    tally = Tally(run.layout, windows_of([1]), None)
    tally.add(read_step(files, 1, None, run.layout, surface_ids(run.layout)))
    assert Contexts(tally).divergence(run.a, run.copy(run.a)) == pytest.approx(bits, abs=5e-3)
    assert math.isnan(Contexts(tally).divergence(run.a, run.copy(run.d)))
