"""The rows of reasoning tokens in training: each is its source's row plus a low-rank delta (no delta with rank 0).

A folder holds stock tables with one row per id. `attach_low_rank_rows` removes the copies' rows from the loaded model.
Embedding and head then compute them from the sources' rows, so that gradients of copies reach the sources too, and from
the deltas. Deltas are parameters with their own file beside the tables. Saving adds both together again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from rlvr_vocab.errors import UserError
from rlvr_vocab.vocab.head_logits import HeadWeights, whole_in_zero3
from rlvr_vocab.vocab.layout import VocabLayout

# In a separate folder: some tools read every *.safetensors beside a config.json as weights of the model.
DIFFERENCES = Path("reasoning_rows", "differences.safetensors")
_TABLES = ("input", "output")
# Copies whose rows are computed at once when a whole table is written: 64 MiB at a hidden size of 1024.
ROWS_AT_ONCE = 2**14
# Shapes: K copies, H hidden size, r rank, V standard tokens.


class RowDelta(nn.Module):
    """The difference of copies' rows from their sources' in a table: `B · A`, `(K, r)` and `(r, H)`; None at rank 0."""

    def __init__(self, A: torch.Tensor | None, B: torch.Tensor | None) -> None:
        super().__init__()
        self.A, self.B = (None if each is None else nn.Parameter(each) for each in (A, B))

    @property
    def in_force(self) -> RowDelta:
        """The active delta: this one, or that of the layer with which an adapter replaces this one."""
        return self

    @classmethod
    def new(
        cls, shape_KH: Sequence[int], rank: int, noise_K1: torch.Tensor | None, generator: torch.Generator
    ) -> RowDelta:
        """A delta of zero, or of noise with a standard deviation for each copy.

        The entries of `A` are scaled so that an optimizer step of `B` moves a row about as far as a step of a full row.
        """
        copies, hidden = shape_KH
        A = torch.randn(rank, hidden, generator=generator) / math.sqrt(rank)
        B = torch.zeros(copies, rank) if noise_K1 is None else torch.randn(copies, rank, generator=generator) * noise_K1
        return cls(A, B)

    def forward(self, ks: torch.Tensor, sparse: bool = False) -> torch.Tensor | None:
        """`(…, H)` for numbers of copies, `B` with a sparse gradient if asked; None for rank 0."""
        return None if self.A is None or self.B is None else F.embedding(ks, self.B, sparse=sparse) @ self.A

    def projected(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """`(…, r)`: products of hidden states with the delta are `projected(hidden) · Bᵀ`."""
        return None if self.A is None else hidden @ self.A.t().to(hidden.dtype)


class CopiedRows:
    """A model whose tables hold only the standard rows, with deltas for the copies.

    The embedding has a submodule `difference`, and so has an untied head. The head's bias of a copy is its source's.
    """

    def __init__(self, model: Any, layout: VocabLayout, folder: str | Path) -> None:
        self.model, self.layout = model, layout
        self.embedding, self.head = model.get_input_embeddings(), model.get_output_embeddings()
        self.tied = self.head.weight is self.embedding.weight
        self.sources = torch.tensor(layout.source_ids, device=self.embedding.weight.device)
        with whole_in_zero3(*(module.weight for _, module in self.own_tables()), self.head.bias):
            stored = read_differences(folder) if layout.reasoning_rank else {}
            self._cut_tables()
        for table, module in self.own_tables():
            parts = (stored.get(f"{table}.{name}") for name in ("A", "B"))
            module.difference = RowDelta(*(None if part is None else _typed(part, module.weight) for part in parts))
            module.difference.requires_grad_(module.weight.requires_grad)
        self.embedding.forward = partial(self._embed, self.embedding.forward)
        self.head.forward = partial(self._logits, self.head.forward)
        model.save_pretrained = partial(self._save_pretrained, model.save_pretrained)

    def own_tables(self) -> list[tuple[str, Any]]:
        """Embedding and, where it has a table of its own, head, by their names on disk."""
        modules = [self.embedding] if self.tied else [self.embedding, self.head]
        return list(zip(_TABLES, modules, strict=False))

    def head_weights(self, hidden: torch.Tensor) -> HeadWeights:
        """The output embedding as `region_logprobs` takes it."""
        delta = self._output_delta
        return HeadWeights(self.head.weight, self.head.bias, projected=delta.projected(hidden), factor=delta.B)

    def head_parameters(self) -> list[torch.Tensor | None]:
        return [self.head.weight, self.head.bias, self._output_delta.A, self._output_delta.B]

    @property
    def _output_delta(self) -> Any:
        return (self.embedding if self.tied else self.head).difference.in_force

    def _cut_tables(self) -> None:
        standard, bias = self.layout.standard_size, self.head.bias
        for _, module in self.own_tables():
            module.weight = nn.Parameter(module.weight.data[:standard].clone(), module.weight.requires_grad)
        if self.tied:
            self.head.weight = self.embedding.weight
        if bias is not None:
            self.head.bias = nn.Parameter(bias.data[:standard].clone(), bias.requires_grad)
        self.embedding.num_embeddings = self.head.out_features = standard

    def _embed(self, own_forward: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
        is_copy = ids >= self.layout.standard_size
        ks = (ids - self.layout.standard_size).clamp(min=0)
        embedded = own_forward(torch.where(is_copy, self._sources_on(ids.device)[ks], ids))
        delta = self.embedding.difference.in_force(ks, self.embedding.sparse)
        if delta is None:
            return embedded
        scale = getattr(self.embedding, "embed_scale", None)  # Gemma multiplies its embeddings
        delta = delta * is_copy.unsqueeze(-1)
        return embedded + (delta if scale is None else delta * scale).to(embedded.dtype)

    def _logits(self, own_forward: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
        logits = own_forward(hidden)
        # Summed in float32, as in scoring: in 16 bits a small delta would be rounded away.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        of_copies = logits if self.layout.copies_each_token_once else logits[..., self._sources_on(logits.device)]
        delta = self._output_delta
        projected = delta.projected(hidden)
        if projected is not None:
            of_copies = of_copies + F.linear(projected, delta.B.to(projected.dtype))
        return torch.cat((logits, of_copies), dim=-1)

    def _sources_on(self, device: torch.device) -> torch.Tensor:
        self.sources = self.sources.to(device)
        return self.sources

    def stock_parameters(self, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Unsharded parameters, one at a time, under the names of a stock model and with whole tables."""
        names = self._names()
        tables = {f"{names[module]}.weight": module for _, module in self.own_tables()}
        for name, tensor in named:
            if name in tables:
                delta = tables[name].difference.in_force
                with whole_in_zero3(delta.A, delta.B):
                    yield name, whole_table(tensor, self.sources, _gathered(delta.A), _gathered(delta.B))
            elif name == f"{names[self.head]}.bias":
                yield name, whole_table(tensor, self.sources)
            elif ".difference" not in name:
                yield name, tensor

    def _names(self) -> dict[nn.Module, str]:
        return {module: name for name, module in self.model.named_modules() if module in (self.embedding, self.head)}

    def _names_on_disk(self) -> dict[str, str]:
        """The name of each delta on disk, by its name in the model's state dict."""
        names = self._names()
        tables = [(f"{names[module]}.difference", table) for table, module in self.own_tables()]
        return {f"{name}.{part}": f"{table}.{part}" for name, table in tables for part in ("A", "B")}

    @contextmanager
    def reading(self, folder: str | Path) -> Iterator[None]:
        """Inside the block the model loads state dicts of a stock folder, and the deltas beside it."""
        stored = read_differences(folder) if self.layout.reasoning_rank else {}
        modules = self._names().values()

        def cut(module: nn.Module, state: dict[str, torch.Tensor], *_: Any) -> None:
            for name in (f"{module}.{part}" for module in modules for part in ("weight", "bias")):
                if name in state:
                    state[name] = state[name][: self.layout.standard_size]
            on_disk = self._names_on_disk().items()
            state.update({name: stored[stored_name] for name, stored_name in on_disk if stored_name in stored})

        handle = self.model.register_load_state_dict_pre_hook(cut)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def _save_pretrained(
        self,
        own_save_pretrained: Callable[..., None],
        save_directory: str | Path,
        *args: Any,
        state_dict: Mapping[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        """Save a stock model with whole tables, as configured, with deltas and layout beside it."""
        stock, names = dict(self.model.state_dict() if state_dict is None else state_dict), self._names()
        on_disk = self._names_on_disk().items()
        stored = {stored_name: stock.pop(name) for name, stored_name in on_disk if name in stock}
        for table, module in self.own_tables():
            name, factors = f"{names[module]}.weight", (stored.get(f"{table}.{part}") for part in ("A", "B"))
            stock[name] = whole_table(stock[name], self.sources, *factors)
        head = names[self.head]
        if self.tied and f"{head}.weight" in stock:
            stock[f"{head}.weight"] = stock[f"{names[self.embedding]}.weight"]
        if f"{head}.bias" in stock:
            stock[f"{head}.bias"] = whole_table(stock[f"{head}.bias"], self.sources)
        own_save_pretrained(save_directory, *args, state_dict=stock, **kwargs)
        if stored:
            save_differences(save_directory, stored)
        self.layout.save(Path(save_directory))


@torch.no_grad()
def whole_table(
    standard: torch.Tensor, sources: torch.Tensor, A: torch.Tensor | None = None, B: torch.Tensor | None = None
) -> torch.Tensor:
    """A table, or a bias, with a row per copy after the standard rows; no second tensor of that size is allocated.

    `standard` is `(V, …)`; `sources` is `(K,)`, the standard token of each copy; `A` and `B` are those of a `RowDelta`.
    """
    whole = standard.new_empty((len(standard) + len(sources), *standard.shape[1:]))
    whole[: len(standard)] = standard
    copies, sources = whole[len(standard) :], sources.to(standard.device)
    for start in range(0, len(copies), ROWS_AT_ONCE):
        ks = slice(start, start + ROWS_AT_ONCE)
        copies[ks] = standard[sources[ks]]
        if A is not None and B is not None:
            delta = B[ks].float() @ A.float()
            copies[ks] = copies[ks].to(delta.dtype) + delta
    return whole


def attach_low_rank_rows(model: Any, folder: str | Path) -> None:
    """Replace the copies' rows of a loaded model by the deltas of its folder, where its layout has any."""
    layout = VocabLayout.load(folder)
    if layout.holds_deltas:
        model.copied_rows = CopiedRows(model, layout, folder)


def copied_rows_of(model: Any) -> CopiedRows | None:
    """The deltas of a model, under any wrappers; None where each copy has a row of its own."""
    while not hasattr(model, "copied_rows") and hasattr(model, "module"):
        model = model.module
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    copied: CopiedRows | None = getattr(base, "copied_rows", None)
    return copied


def save_differences(folder: str | Path, differences: Mapping[str, torch.Tensor]) -> None:
    path = Path(folder) / DIFFERENCES
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in differences.items()}, path)


def read_differences(folder: str | Path) -> dict[str, torch.Tensor]:
    """The deltas of a model folder, by table and part (`input.A`, `output.B`, …); UserError without them."""
    path = Path(folder) / DIFFERENCES
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path} cannot be read, the differences of its reasoning rows: {reason}") from error


def _gathered(parameter: torch.Tensor | None) -> torch.Tensor | None:
    """All of a parameter that FSDP2 has sharded."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def _typed(tensor: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """On the table's device, in float32 or the smaller dtype in which the table trains: FSDP2 requires one dtype."""
    dtype = table.dtype if table.requires_grad else torch.promote_types(table.dtype, torch.float32)
    return tensor.to(table.device, dtype)
