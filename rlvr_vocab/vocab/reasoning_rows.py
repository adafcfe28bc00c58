"""The rows of reasoning tokens while a model trains: each its source's plus a difference of low rank; of rank 0, none.

A folder holds stock tables, one row for each id. `attach_low_rank_rows` cuts the copies' rows off a model that was read
from it and has embedding and head make them of their sources' rows, which then learn from the copies too, and of
differences, which are parameters with a file of their own beside the tables. What is saved puts both together again.
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
from rlvr_vocab.vocab.head_logits import OutputRows, whole_in_zero3
from rlvr_vocab.vocab.layout import VocabLayout

# In a folder of its own: some tools read every *.safetensors beside a config.json as the model's.
DIFFERENCES = Path("reasoning_rows", "differences.safetensors")
_TABLES = ("input", "output")
# Copies whose rows are made at once where a whole table is written: 64 MiB of them at a hidden size of 1024.
ROWS_AT_ONCE = 2**14
# Shapes: K copies, H hidden size, r rank, V standard tokens.


class Difference(nn.Module):
    """How far the rows of copies lie from those of their sources, in one table: `B · A`; of rank 0, nowhere.

    Attributes:
        A: `(r, H)`, None for rank 0.
        B: `(K, r)`, None for rank 0.
    """

    def __init__(self, A: torch.Tensor | None, B: torch.Tensor | None) -> None:
        super().__init__()
        self.A, self.B = (None if each is None else nn.Parameter(each) for each in (A, B))

    @classmethod
    def new(
        cls, shape_KH: Sequence[int], rank: int, noise_K1: torch.Tensor | None, generator: torch.Generator
    ) -> Difference:
        """Differences of zero, or of noise with a standard deviation for each copy.

        The entries of `A` are such that a step of `B` moves a row about as far as one of its own would.
        """
        copies, hidden = shape_KH
        A = torch.randn(rank, hidden, generator=generator) / math.sqrt(rank)
        B = torch.zeros(copies, rank) if noise_K1 is None else torch.randn(copies, rank, generator=generator) * noise_K1
        return cls(A, B)

    def forward(self, ks: torch.Tensor, sparse: bool = False) -> torch.Tensor | None:
        """`(…, H)`, of copies by their numbers; None for rank 0.

        Args:
            sparse: give `B` a sparse gradient.
        """
        return None if self.A is None or self.B is None else F.embedding(ks, self.B, sparse=sparse) @ self.A

    def projected(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """What the differences of products with hidden states are: `projected(hidden) · Bᵀ`."""
        return None if self.A is None else hidden @ self.A.t().to(hidden.dtype)


class CopiedRows:
    """The vocabulary of a model whose copies are held as differences from their sources.

    The model's tables have the standard rows alone; its embedding has a submodule `difference`, and so has a head with
    a table of its own, and a parameter `difference_bias` where it has a bias.
    """

    def __init__(self, model: Any, layout: VocabLayout, folder: str | Path) -> None:
        """
        Raises:
            UserError: the folder lacks its differences, or they are not those of the model's tables.
        """
        self.model, self.layout = model, layout
        self.embedding, self.head = model.get_input_embeddings(), model.get_output_embeddings()
        self.tied = self.head.weight is self.embedding.weight
        self.sources = torch.tensor(layout.source_ids, device=self.embedding.weight.device)
        self._copies_all = layout.source_ids == tuple(range(layout.standard_size))
        with whole_in_zero3(*(module.weight for _, module in self.own_tables()), self.head.bias):
            stored = self._read(folder)
            self._cut()
        for table, module in self.own_tables():
            parts = (stored.get(f"{table}.{name}") for name in ("A", "B"))
            module.difference = Difference(*(None if part is None else _typed(part, module.weight) for part in parts))
            module.difference.requires_grad_(module.weight.requires_grad)
        bias = stored.get("output.bias")
        if bias is not None:
            self.head.difference_bias = nn.Parameter(_typed(bias, self.head.weight), self.head.weight.requires_grad)
        self.embedding.forward = partial(self._embed, self.embedding.forward)
        self.head.forward = partial(self._logits, self.head.forward)
        model.save_pretrained = partial(self._save_pretrained, model.save_pretrained)

    @property
    def output_difference(self) -> Any:
        return self.embedding.difference if self.tied else self.head.difference

    def output_rows(self, hidden: torch.Tensor) -> OutputRows:
        """The output embedding as `region_logprobs` takes it."""
        difference = self.output_difference
        return OutputRows(
            self.head.weight,
            self.head.bias,
            projected=difference.projected(hidden),
            factor=difference.B,
            factor_bias=self._difference_bias,
        )

    def output_parameters(self) -> list[torch.Tensor | None]:
        difference = self.output_difference
        return [self.head.weight, self.head.bias, difference.A, difference.B, self._difference_bias]

    @property
    def _difference_bias(self) -> nn.Parameter | None:
        bias: nn.Parameter | None = getattr(self.head, "difference_bias", None)
        return bias

    def _read(self, folder: str | Path) -> dict[str, torch.Tensor]:
        rank, copies = self.layout.reasoning_rank, self.layout.size
        if not rank:
            return {}
        stored = read_differences(folder)
        expected: dict[str, tuple[int, ...]] = {} if self.head.bias is None else {"output.bias": (copies,)}
        for table, module in self.own_tables():
            expected |= {f"{table}.A": (rank, module.weight.size(1)), f"{table}.B": (copies, rank)}
        found = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        if found != expected:
            name = min(name for name, _ in found.items() ^ expected.items())
            of_which = f"the shape of its {name} is {found.get(name)}, not {expected.get(name)}"
            raise UserError(f"{Path(folder) / DIFFERENCES} does not fit the model's tables: {of_which}")
        return stored

    def own_tables(self) -> list[tuple[str, Any]]:
        """Embedding and, where it has a table of its own, head, by their names on disk."""
        modules = [self.embedding] if self.tied else [self.embedding, self.head]
        return list(zip(_TABLES, modules, strict=False))

    def _cut(self) -> None:
        standard = self.layout.standard_size
        self._set_tables([module.weight.data[:standard].clone() for _, module in self.own_tables()])
        if self.head.bias is not None:
            self.head.bias = nn.Parameter(self.head.bias.data[:standard].clone(), self.head.bias.requires_grad)

    def _set_tables(self, tables: list[torch.Tensor]) -> None:
        for (_, module), table in zip(self.own_tables(), tables, strict=True):
            module.weight = nn.Parameter(table, module.weight.requires_grad)
        if self.tied:
            self.head.weight = self.embedding.weight
        self.embedding.num_embeddings = self.head.out_features = len(self.head.weight)

    def _embed(self, own_forward: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
        is_copy = ids >= self.layout.standard_size
        ks = (ids - self.layout.standard_size).clamp(min=0)
        embedded = own_forward(torch.where(is_copy, self._sources_on(ids.device)[ks], ids))
        difference = self.embedding.difference(ks, self.embedding.sparse)
        if difference is None:
            return embedded
        scale = getattr(self.embedding, "embed_scale", None)  # Gemma multiplies what it looks up
        difference = difference * is_copy.unsqueeze(-1)
        return embedded + (difference if scale is None else difference * scale).to(embedded.dtype)

    def _logits(self, own_forward: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
        logits = own_forward(hidden)
        # The sum is one of float32, as in scoring: in 16 bits a small difference would be rounded away.
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        of_copies = logits if self._copies_all else logits[..., self._sources_on(logits.device)]
        difference, bias = self.output_difference, self._difference_bias
        projected = difference.projected(hidden)
        if projected is not None:
            of_copies = of_copies + F.linear(projected, difference.B.to(projected.dtype))
        if bias is not None:
            of_copies = of_copies + bias
        return torch.cat((logits, of_copies), dim=-1)

    def _sources_on(self, device: torch.device) -> torch.Tensor:
        if self.sources.device != device:
            self.sources = self.sources.to(device)
        return self.sources

    def split(self, state: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """A state dict of the model, whole, as that of a stock model and the differences by their names on disk."""
        stock, differences, names = dict(state), dict[str, torch.Tensor](), self._names()
        for table, module in self.own_tables():
            name = names[module]
            for part in ("A", "B"):
                found = stock.pop(f"{name}.difference.{part}", None)
                if found is not None:
                    differences[f"{table}.{part}"] = found
            factors = (differences.get(f"{table}.{part}") for part in ("A", "B"))
            stock[f"{name}.weight"] = whole_table(stock[f"{name}.weight"], self.sources, *factors)
        head = names[self.head]
        if self.tied and f"{head}.weight" in stock:
            stock[f"{head}.weight"] = stock[f"{names[self.embedding]}.weight"]
        if f"{head}.bias" in stock:
            bias = stock.pop(f"{head}.difference_bias", None)
            stock[f"{head}.bias"] = whole_table(stock[f"{head}.bias"], self.sources, None, bias)
            if bias is not None:
                differences["output.bias"] = bias
        return stock, differences

    def stock_parameters(self, named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Parameters under the names of a stock model, whole ones given one by one, with whole tables among them."""
        names = self._names()
        tables = {f"{names[module]}.weight": module for _, module in self.own_tables()}
        for name, tensor in named:
            if name in tables:
                difference = tables[name].difference
                with whole_in_zero3(difference.A, difference.B):
                    yield name, whole_table(tensor, self.sources, _gathered(difference.A), _gathered(difference.B))
            elif name == f"{names[self.head]}.bias":
                with whole_in_zero3(self._difference_bias):
                    yield name, whole_table(tensor, self.sources, None, _gathered(self._difference_bias))
            elif ".difference" not in name:
                yield name, tensor

    def _names(self) -> dict[nn.Module, str]:
        return {module: name for name, module in self.model.named_modules() if module in (self.embedding, self.head)}

    @contextmanager
    def reading(self, folder: str | Path) -> Iterator[None]:
        """Inside the block the model takes state dicts of a stock folder, and the differences that lie beside it."""
        stored, names, standard = self._read(folder), self._names(), self.layout.standard_size

        def cut(module: nn.Module, state: dict[str, torch.Tensor], *_: Any) -> None:
            for each in names.values():
                for part in ("weight", "bias"):
                    if f"{each}.{part}" in state:
                        state[f"{each}.{part}"] = state[f"{each}.{part}"][:standard]
            for table, held in self.own_tables():
                for part in ("A", "B"):
                    if f"{table}.{part}" in stored:
                        state[f"{names[held]}.difference.{part}"] = stored[f"{table}.{part}"]
            if "output.bias" in stored:
                state[f"{names[self.head]}.difference_bias"] = stored["output.bias"]

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
        """Save a stock model: whole tables, as its configuration says, and the differences and the layout beside it."""
        stock, differences = self.split(self.model.state_dict() if state_dict is None else state_dict)
        own_save_pretrained(save_directory, *args, state_dict=stock, **kwargs)
        if differences:
            save_differences(save_directory, differences)
        self.layout.save(Path(save_directory))


@torch.no_grad()
def whole_table(
    standard: torch.Tensor, sources: torch.Tensor, A: torch.Tensor | None = None, B: torch.Tensor | None = None
) -> torch.Tensor:
    """A table, or a bias, with a row for each copy behind the standard ones; nothing of its size is made beside it.

    Args:
        standard: `(V, …)`.
        sources: `(K,)` the standard token that each copy copies.
        A, B: of the differences of the copies from these, as `Difference` has them.
    """
    whole = standard.new_empty((len(standard) + len(sources), *standard.shape[1:]))
    whole[: len(standard)] = standard
    copies, sources = whole[len(standard) :], sources.to(standard.device)
    for start in range(0, len(copies), ROWS_AT_ONCE):
        ks = slice(start, start + ROWS_AT_ONCE)
        copies[ks] = standard[sources[ks]]
        if B is not None:  # without A that of a bias
            difference = B[ks] if A is None else B[ks].float() @ A.float()
            copies[ks] = copies[ks].to(difference.dtype) + difference
    return whole


def attach_low_rank_rows(model: Any, folder: str | Path) -> None:
    """Hold the copies of a model that was read from a folder as the folder says.

    Raises:
        UserError: the folder lacks its differences, or they are not those of its tables.
    """
    layout = VocabLayout.load(folder)
    if layout.holds_differences:
        model.held_rows = CopiedRows(model, layout, folder)


def held_rows(model: Any) -> CopiedRows | None:
    """How a model holds its copies, under whatever wrappers; None where each has a row of its own."""
    while not hasattr(model, "held_rows") and hasattr(model, "module"):
        model = model.module
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    held: CopiedRows | None = getattr(base, "held_rows", None)
    return held


def save_differences(folder: str | Path, differences: Mapping[str, torch.Tensor]) -> None:
    path = Path(folder) / DIFFERENCES
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in differences.items()}, path)


def read_differences(folder: str | Path) -> dict[str, torch.Tensor]:
    """The differences of a model folder, by table and part: `input.A`, `output.B`, `output.bias`, ….

    Raises:
        UserError: they cannot be read.
    """
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
    """On the table's device, in float32, or, where the table trains in a smaller type, in that: FSDP2 wants one."""
    dtype = table.dtype if table.requires_grad else torch.promote_types(table.dtype, torch.float32)
    return tensor.to(table.device, dtype)
