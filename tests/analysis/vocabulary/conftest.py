"""Runs on disk whose counts, rows and entropies are known, because they were written by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rlvr_vocab.record.metrics import RunFacts, RunRecord
from rlvr_vocab.vocab.layout import VocabLayout

# The standard vocabulary; reasoning token k has id STANDARD + k.
TEXTS = ["a", " b", '=1,"\n$x$</svg>', "\x1b[2Jd", "e", "<think>", "</think>", "<eos>"]
STANDARD, WIDTH = len(TEXTS), 16

Rows = Mapping[str, torch.Tensor]


@dataclass
class WrittenRun:
    """A run's folder, and what is written into it."""

    a, b, hostile, d, e, opened, closed, eos = range(STANDARD)

    folder: Path
    copies: int = STANDARD
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    source_ids: tuple[int, ...] | None = None

    @staticmethod
    def copy(source: int, multiplicity: int = 1) -> int:
        """The id of a copy."""
        return STANDARD * multiplicity + source

    @property
    def layout(self) -> VocabLayout:
        sources = self.source_ids if self.source_ids is not None else tuple(k % STANDARD for k in range(self.copies))
        return VocabLayout(STANDARD, sources, self.opened, self.closed, (), (self.opened, self.closed, self.eos))

    @property
    def record(self) -> RunRecord:
        return RunRecord(self.folder, _facts(self.layout.size), tuple(self.rows), (), self.summary)

    def model(self, name: str, vocabulary_tables: Rows, files: int = 1) -> Path:
        """A model folder with these tensors, over so many files."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        self.layout.save(folder)
        (folder / "config.json").write_text("{}")
        words = WordLevel({text: token for token, text in enumerate(TEXTS)}, unk_token="a")
        Tokenizer(words).save(str(folder / "tokenizer.json"))
        others = {"model.norm.weight": torch.ones(WIDTH), "model.layers.0.up_proj.weight": torch.ones(STANDARD * 2, 2)}
        tensors = {name: tensor.contiguous() for name, tensor in (others | dict(vocabulary_tables)).items()}
        if files == 1:
            save_file(tensors, folder / "model.safetensors")
            return folder
        weight_map = {}
        for number, (key, tensor) in enumerate(tensors.items()):
            weight_map[key] = f"model-{number:05d}.safetensors"
            save_file({key: tensor}, folder / weight_map[key])
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return folder

    def completions(self, step: int, sampled: Sequence[Sequence[int]], **columns: Any) -> Path:
        """The file of a step: what was sampled after a prompt of one token, `e`."""
        folder = self.folder / "completions"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"step_{step:05d}.parquet"
        prompts = columns.pop("prompt_ids", [[self.e]] * len(sampled))
        ids = {"prompt_ids": [list(ids) for ids in prompts], "completion_ids": [list(ids) for ids in sampled]}
        pq.write_table(pa.table(ids | columns), path)
        return path


@pytest.fixture
def run(tmp_path: Path) -> WrittenRun:
    """A run with one copy of every token, and nothing written yet."""
    return WrittenRun(tmp_path / "run")


@pytest.fixture(scope="session")
def run_in() -> Callable[[Path], WrittenRun]:
    """The same in a folder of one's own."""
    return WrittenRun


@pytest.fixture(scope="session")
def copied_rows() -> Callable[..., torch.Tensor]:
    """Rows of any run: standard ones at random, and every copy as its source."""

    def make(layout: VocabLayout, seed: int = 0) -> torch.Tensor:
        standard = torch.randn(STANDARD, WIDTH, generator=torch.Generator().manual_seed(seed))
        return torch.cat([standard, standard[list(layout.source_ids)]])

    return make


@pytest.fixture
def trained(run: WrittenRun, copied_rows: Callable[..., torch.Tensor]) -> WrittenRun:
    """A run with its first and its last model, equal, and no completions yet."""
    for name in ("initial_model", "final_model"):
        run.model(name, {"model.embed_tokens.weight": copied_rows(run.layout)})
    return run


def _facts(size: int) -> RunFacts:
    return RunFacts(
        exp_name="run",
        seed=0,
        model="tiny",
        dataset="arithmetic",
        reasoning_vocab_size=size,
        think_tags=("<think>", "</think>"),
        rewards=(),
        num_generations=2,
        max_completion_length=8,
        temperature=1.0,
        learning_rate=1e-3,
        lr_scheduler_type="linear",
        beta=0.0,
        max_grad_norm=1.0,
        max_steps=None,
        use_vllm=False,
    )
