"""Drift: rows that were turned and stretched by what is expected here."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rlvr_vocab.analysis.vocabulary import analyse_vocabulary, vocabulary_charts, vocabulary_tables, write_analysis
from rlvr_vocab.analysis.vocabulary.drift import row_drift
from rlvr_vocab.analysis.vocabulary.models import MOST_CHECKPOINTS, TokenRows, model_folders, token_tables
from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.layout import VocabLayout

NAN = float("nan")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def turned(row: torch.Tensor, angle: float) -> torch.Tensor:
    """The row at an angle to itself, as long as it was."""
    row = row.double()
    other = torch.roll(row, 1)
    other -= (other @ row) / (row @ row) * row
    return (math.cos(angle) * row + math.sin(angle) * other / other.norm() * row.norm()).float()


@pytest.fixture
def moved(run, copied_rows):
    """Start and end of a table: copy 0 turned by 60°, copy 1 by a millionth, copy 2 stretched, source 3 turned."""
    start = copied_rows(run.layout)
    end = start.clone()
    end[run.copy(0)] = turned(start[0], math.pi / 3)
    end[run.copy(1)] = 2.5 * start[1]
    end[run.copy(2)] = turned(start[2], 1e-3)
    end[3] = turned(start[3], math.pi / 2)
    return start, end


def test_angles_and_lengths_are_those_that_the_rows_were_moved_by(run, moved):
    start, end = moved
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    drift = analyse_vocabulary(run.record).drift
    [final] = drift.final
    assert (drift.tied, final.side, drift.end) == (True, "both", "final_model")
    assert final.ks.tolist() == [0, 1, 2, 3, 4]  # copies of control ids are none that could be sampled
    small = 1 - math.cos(1e-3)
    assert final.from_start == pytest.approx([0.5, 0, small, 0, 0], abs=1e-9)
    assert final.from_source == pytest.approx([0.5, 0, small, 1, 0], abs=1e-6)
    assert final.source_from_start == pytest.approx([0, 0, 0, 1, 0], abs=1e-6)
    assert final.norm / final.start_norm == pytest.approx([1, 2.5, 1, 1, 1], rel=1e-5)
    assert final.source_norm == pytest.approx(start[:5].norm(dim=1).numpy(), rel=1e-5)


def test_turns_far_below_the_rounding_of_a_cosine_are_measured(run, copied_rows):
    start = copied_rows(run.layout).zero_()
    start[:, 0] = 1
    end = start.clone()
    end[run.copy(0), 1] = 1e-6  # a turn by a millionth: the cosine is 1 - 5e-13
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    assert analyse_vocabulary(run.record).drift.final[0].from_start[0] == pytest.approx(5e-13, rel=1e-3)


def test_the_projection_holds_what_training_added_to_the_rows(run, copied_rows):
    start = copied_rows(run.layout)
    end = start.clone()
    end[run.copy(0), 0] += 3
    end[3, 1] += 2
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    projection = analyse_vocabulary(run.record).projection
    assert projection.ks.tolist() == [0, 1, 2, 3, 4] and projection.of == 5
    assert np.linalg.norm(projection.copy, axis=1) == pytest.approx([3, 0, 0, 0, 0], abs=1e-5)
    assert np.linalg.norm(projection.source, axis=1) == pytest.approx([0, 0, 0, 2, 0], abs=1e-5)
    assert projection.explained == pytest.approx(1)


def test_an_untied_model_is_told_of_on_both_sides(run, moved, copied_rows):
    start, end = moved
    head = copied_rows(run.layout, seed=1)
    run.model("initial_model", {EMBEDDING: start, HEAD: head})
    turned_head = head.clone()
    turned_head[run.copy(4)] = turned(head[4], math.pi / 2)
    run.model("final_model", {EMBEDDING: end, HEAD: turned_head})
    analysis = analyse_vocabulary(run.record)
    sides = {final.side: final for final in analysis.drift.final}
    assert not analysis.drift.tied and list(sides) == ["input", "output"]
    assert sides["input"].from_start[[0, 4]] == pytest.approx([0.5, 0], abs=1e-6)
    assert sides["output"].from_start[[0, 4]] == pytest.approx([0, 1], abs=1e-6)


def test_shards_and_half_precision_are_read_as_one_table(run, moved):
    start, end = moved
    run.model("initial_model", {EMBEDDING: start, HEAD: start}, files=4)
    run.model("final_model", {EMBEDDING: end.bfloat16(), HEAD: end.half()}, files=4)
    for final in analyse_vocabulary(run.record).drift.final:
        assert final.from_start[[0, 4]] == pytest.approx([0.5, 0], abs=2e-2)


def test_rows_of_zeros_have_no_direction_and_spoil_no_quantile(run, moved):
    start, end = (rows.clone() for rows in moved)
    start[4] = start[run.copy(4)] = end[4] = end[run.copy(4)] = 0
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    drift = analyse_vocabulary(run.record).drift
    assert np.isnan(drift.final[0].from_start).tolist() == [False] * 4 + [True]
    assert drift.points[-1].copies == 4 and np.isfinite(drift.points[-1].cosine_to_start).all()


@pytest.mark.parametrize("broken", [[1], [0, 1, 2, 3, 4]])
def test_rows_that_diverged_are_named_and_the_others_told_of(run, moved, broken):
    start, end = moved
    end = end.clone()
    end[[run.copy(k) for k in broken]] = NAN
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    analysis = analyse_vocabulary(run.record)
    assert any("with NaN or infinity at the end: left out" in note for note in analysis.notes)
    last = [point.copies for point in analysis.drift.points if point.name == "final_model"]
    assert last == ([4] if len(broken) == 1 else [])
    assert (analysis.projection is None) == (len(broken) == 5)
    assert len(vocabulary_charts(analysis)) >= 3 and all(
        cell != "nan" for table in vocabulary_tables(analysis) for row in table.rows for cell in row
    )


def test_a_run_whose_copies_can_never_be_sampled_has_nothing_to_draw(run, copied_rows):
    run.source_ids = (run.opened, run.closed, run.eos)
    for name in ("initial_model", "final_model"):
        run.model(name, {EMBEDDING: copied_rows(run.layout)})
    analysis = analyse_vocabulary(run.record)
    assert analysis.drift.points == () and vocabulary_charts(analysis) == [] and vocabulary_tables(analysis) == []
    assert write_analysis(analysis).is_dir()


def test_rows_beside_an_adapter_stand_for_those_of_its_base(run, moved):
    start, end = moved
    base = run.model("initial_model", {EMBEDDING: start})
    for name, rows in (("checkpoint-1", start), ("checkpoint-2", end)):
        adapter = run.folder / name
        adapter.mkdir()
        run.layout.save(adapter)
        config = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
        (adapter / "adapter_config.json").write_text(json.dumps(config))
        trained = {"base_model.model.model.embed_tokens.lora_rows": rows[run.copy(0) :].contiguous()}
        trained |= {"base_model.model.q.lora_A.weight": torch.ones(2, 2)}
        save_file(trained, adapter / "adapter_model.safetensors")
    analysis = analyse_vocabulary(run.record)
    assert analysis.drift.end == "checkpoint-2"
    assert analysis.drift.final[0].from_start[:3] == pytest.approx([0.5, 0, 5e-7], abs=1e-9)
    assert analysis.drift.final[0].source_from_start.max() == 0  # the base's own rows are frozen
    medians = {point.name: point.cosine_to_start[0] for point in analysis.drift.points}
    assert medians["initial_model"] == medians["checkpoint-1"] == 1 > medians["checkpoint-2"]


def test_checkpoints_of_stages_count_the_steps_of_the_run(run, moved):
    start, end = moved
    run.rows = [
        {"step": 2, "stage": "first", "stage_step": 2, "loss": 0.0},
        {"step": 5, "stage": "second", "stage_step": 1, "loss": 0.0},
    ]
    run.model("initial_model", {EMBEDDING: start})
    for place in ("1_first/checkpoint-2", "1_first/checkpoint-4", "2_second/checkpoint-3", "3_third/checkpoint-1"):
        run.model(f"stages/{place}", {EMBEDDING: end})
    run.model("final_model", {EMBEDDING: end})
    run.summary = {"steps": 9}
    analysis = analyse_vocabulary(run.record)
    assert [(point.step, point.name) for point in analysis.drift.points] == [
        (0, "initial_model"),
        (2, "1_first/checkpoint-2"),
        (4, "1_first/checkpoint-4"),
        (7, "2_second/checkpoint-3"),
        (9, "final_model"),
    ]
    assert any("stage third" in note for note in analysis.notes)


def test_many_checkpoints_are_thinned_and_damaged_ones_named(run, moved):
    start, end = moved
    run.model("initial_model", {EMBEDDING: start})
    for step in range(1, 2 * MOST_CHECKPOINTS + 1):
        run.model(f"checkpoint-{step}", {EMBEDDING: end})
    (run.folder / "checkpoint-1" / "model.safetensors").write_bytes(b"\xff" * 9)
    (run.folder / "checkpoint-no").mkdir()
    assert len(model_folders(run.record)[0]) == MOST_CHECKPOINTS
    analysis = analyse_vocabulary(run.record)
    assert [point.step for point in analysis.drift.points][-1] == 2 * MOST_CHECKPOINTS
    assert any(note.startswith("checkpoint-1 was left out") for note in analysis.notes)


def test_without_a_trained_model_use_is_told_and_drift_is_not(run, copied_rows):
    run.model("initial_model", {EMBEDDING: copied_rows(run.layout)})
    run.completions(1, [[run.opened, run.copy(run.a)]])
    analysis = analyse_vocabulary(run.record)
    assert analysis.usage is not None and analysis.drift is None and analysis.projection is None
    assert any("no trained model" in note for note in analysis.notes)
    assert analyse_vocabulary(type(run)(run.folder / "nothing").record) is None


def test_copies_that_were_sampled_are_told_apart_from_others(run, moved):
    start, end = moved
    run.model("initial_model", {EMBEDDING: start})
    run.model("final_model", {EMBEDDING: end})
    run.completions(1, [[run.opened, run.copy(0), run.copy(0)]])
    last = {point.group: point for point in analyse_vocabulary(run.record).drift.points if point.name == "final_model"}
    assert (last["sampled"].copies, last["never sampled"].copies) == (1, 4)
    assert last["sampled"].cosine_to_start == pytest.approx([0.5] * 5, abs=1e-6)
    assert last["never sampled"].cosine_to_start[-1] == pytest.approx(1, abs=1e-6)


class CountedRows(TokenRows):
    """Rows that refuse to be read by more than a block at once: a table of a real model is gigabytes."""

    def rows(self, ids):
        assert len(ids) <= 1024
        return super().rows(ids)


def test_blocks_give_what_the_whole_table_gives():
    generator = torch.Generator().manual_seed(0)
    standard, copies = 700, 3000
    sources = tuple(torch.randint(0, standard, (copies,), generator=generator).tolist())
    layout = VocabLayout(standard, sources, 0, 1, (), (0, 1))
    start, now = (torch.randn(standard + copies, 8, generator=generator) for _ in range(2))
    found = row_drift("input", CountedRows(now), CountedRows(start), layout, np.arange(copies))
    ids = torch.arange(standard, standard + copies)
    cosine = torch.nn.functional.cosine_similarity
    of = torch.tensor(sources)
    now, start = now.double(), start.double()
    assert 1 - found.from_source == pytest.approx(cosine(now[ids], now[of]).numpy(), abs=1e-6)
    assert 1 - found.from_start == pytest.approx(cosine(now[ids], start[ids]).numpy(), abs=1e-6)
    assert found.norm == pytest.approx(now[ids].norm(dim=1).numpy(), rel=1e-5)


@pytest.mark.parametrize(
    "name", ["qwen3", "gpt2_untied", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gemma3", "phi"))]
)
def test_both_tables_of_every_architecture_are_found(name, expand_shape):
    from transformers import AutoModelForCausalLM

    folder = expand_shape(name, size=None)
    rows = VocabLayout.load(folder).rows
    found = token_tables(folder, rows)
    model = AutoModelForCausalLM.from_pretrained(folder)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert set(found) == ({"both"} if head is embedding else {"input", "output"})
    for side, weight in (("input", embedding), ("output", head)):
        table = found.get(side) or found["both"]
        assert torch.equal(table.rows(np.arange(rows)), weight.detach())


def test_pickled_weights_are_not_read(run, copied_rows):
    folder = run.model("initial_model", {EMBEDDING: copied_rows(run.layout)})
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="pickled"):
        token_tables(folder, run.layout.rows)
