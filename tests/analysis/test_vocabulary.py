"""Use and drift of copies: every count, turn and length is one that was written by hand."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rlvr_vocab.analysis.vocabulary import analyse_vocabulary, token_tables, write_vocabulary
from rlvr_vocab.vocab.layout import VocabLayout

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# The standard vocabulary; the copy of a token has its id + STANDARD.
TEXTS = ["a", " b", '=1,"\n$x$</svg>', "\x1b[2Jd", "e", "<think>", "</think>", "<eos>"]
STANDARD, WIDTH = len(TEXTS), 16


@dataclass
class WrittenRun:
    """A run's folder with one copy of every token, and what is written into it."""

    a, b, hostile, d, e, opened, closed, eos = range(STANDARD)
    layout = VocabLayout(STANDARD, tuple(range(STANDARD)), opened, closed, (), (opened, closed, eos))

    folder: Path

    def model(self, name, tables, split=False):
        """A model folder with these tensors, in one file or in one each."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        self.layout.save(folder)
        (folder / "config.json").write_text("{}")
        words = WordLevel({text: token for token, text in enumerate(TEXTS)}, unk_token="a")
        Tokenizer(words).save(str(folder / "tokenizer.json"))
        tensors = {"model.norm.weight": torch.ones(WIDTH), "model.layers.0.up_proj.weight": torch.ones(STANDARD * 2, 2)}
        tensors |= {key: tensor.contiguous() for key, tensor in tables.items()}
        for number, part in enumerate([{key: tensors[key]} for key in tensors] if split else [tensors]):
            save_file(part, folder / f"model-{number:05d}.safetensors")

    def models(self, end):
        """The first and the last model, tied."""
        self.model("initial_model", {EMBEDDING: copied_rows()})
        self.model("final_model", {EMBEDDING: end})

    def completions(self, step, sampled, prompt_ids=None):
        """The file of a step: what was sampled, after a prompt of one token, `e`, unless given."""
        path = self.folder / "completions" / f"step_{step:05d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        prompts = prompt_ids or [[self.e]] * len(sampled)
        pq.write_table(pa.table({"prompt_ids": prompts, "completion_ids": [list(ids) for ids in sampled]}), path)

    def written(self):
        """The rows of the CSV."""
        write_vocabulary(analyse_vocabulary(self.folder))
        with (self.folder / "vocabulary.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


def copy(source):
    return STANDARD + source


def copied_rows(seed=0):
    """Standard rows at random, and every copy as its source."""
    standard = torch.randn(STANDARD, WIDTH, generator=torch.Generator().manual_seed(seed))
    return torch.cat([standard, standard])


@pytest.fixture
def run(tmp_path):
    return WrittenRun(tmp_path / "run")


def moved_by(analysis, side="both"):
    """1 - cosine at the end, of the copies that may be sampled, to the source."""
    return analysis.drift[side][:5]


def test_tokens_sampled_while_thinking_are_counted(run):
    run.models(copied_rows())
    copied = copy(run.a)
    # In the answer even a copy does not count, nor does anything of the prompt.
    sampled = [
        [run.opened, copied, copied, run.b, run.closed, copied, run.eos],
        [run.opened, copy(run.b), run.a, run.closed, run.a, run.a],
        [copied, run.closed],
    ]
    run.completions(1, sampled, prompt_ids=[[copied, run.e], [run.e], [run.e, run.opened]])
    analysis = analyse_vocabulary(run.folder)
    # The closing tags are chosen while thinking, the opening ones are not.
    assert any("2 different reasoning tokens of 8 sampled" in note for note in analysis.notes)
    assert analysis.sampled[[run.a, run.b, run.closed, copied, copy(run.b)]].tolist() == [1, 1, 3, 3, 1]
    assert analysis.sampled.sum() == 9
    [row, *_] = run.written()
    assert [int(row[name]) for name in ("id", "source_id", "sampled", "source_sampled")] == [copied, run.a, 3, 1]


def turned(row, angle):
    """The row at an angle to itself, as long as it was."""
    row = row.double()
    other = torch.roll(row, 1)
    other -= (other @ row) / (row @ row) * row
    return (math.cos(angle) * row + math.sin(angle) * other / other.norm() * row.norm()).float()


@pytest.fixture
def moved():
    """The end of a table: copy 0 turned by 60°, copy 1 stretched, copy 2 turned a little, source 3 turned."""
    start = copied_rows()
    end = start.clone()
    end[copy(0)] = turned(start[0], math.pi / 3)
    end[copy(1)] = 2.5 * start[1]
    end[copy(2)] = turned(start[2], 1e-3)
    end[3] = turned(start[3], math.pi / 2)
    return end


def test_angles_are_those_that_the_rows_were_turned_by(run, moved):
    run.models(moved)
    analysis = analyse_vocabulary(run.folder)
    small = 1 - math.cos(1e-3)
    assert moved_by(analysis) == pytest.approx([0.5, 0, small, 1, 0], abs=1e-7)
    assert np.isnan(analysis.drift["both"][5:]).all()  # copies of control ids cannot be sampled
    listed = {int(row["source_id"]): float(row["from_source_both"]) for row in run.written()}
    assert listed == pytest.approx({0: 0.5, 1: 0, 2: small, 3: 1}, abs=1e-6)


def test_turns_far_below_the_rounding_of_a_cosine_are_measured(run):
    start = copied_rows().zero_()
    start[:, 0] = 1
    end = start.clone()
    end[copy(0), 1] = 1e-6  # a turn by a millionth: the cosine is 1 - 5e-13
    run.models(end)
    assert moved_by(analyse_vocabulary(run.folder))[0] == pytest.approx(5e-13, rel=1e-3)


def test_an_untied_model_has_a_drift_on_both_sides_whatever_its_files_and_types(run, moved):
    head = copied_rows(seed=1)
    run.model("initial_model", {})
    head[copy(4)] = turned(head[4], math.pi / 2)
    run.model("final_model", {EMBEDDING: moved.bfloat16(), HEAD: head.half()}, split=True)
    analysis = analyse_vocabulary(run.folder)
    assert list(analysis.drift) == ["input", "output"]
    assert moved_by(analysis, "input")[[0, 4]] == pytest.approx([0.5, 0], abs=2e-2)
    assert moved_by(analysis, "output")[[0, 4]] == pytest.approx([0, 1], abs=2e-2)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_rows_of_zeros_or_nan_spoil_no_quantile(run, moved, value):
    moved[copy(4)] = value
    run.models(moved)
    analysis = analyse_vocabulary(run.folder)
    assert np.isnan(moved_by(analysis)).tolist() == [False] * 4 + [True]
    expected = "embedding and head of the final model: median 0.25, 90 % from 7.5e-08 to 0.925."  # of 0, 5e-7, 0.5, 1
    assert analysis.notes[-1].endswith(expected)


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
        table = found["both" if "both" in found else side]
        assert torch.equal(table, weight.detach())


def test_no_token_moves_a_cell_or_hides_in_the_file(run, moved):
    run.models(moved)
    run.completions(1, [[run.opened, copy(run.hostile), copy(run.d), copy(run.b)]])
    texts = {int(row["source_id"]): row["text"] for row in run.written()}
    assert texts == {0: "a", run.b: "␣b", run.hostile: '=1,"⏎$x$</svg>', run.d: "␛[2Jd"}
    text = (run.folder / "vocabulary.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == text.count("\n") and all(line.isprintable() for line in text.splitlines())
