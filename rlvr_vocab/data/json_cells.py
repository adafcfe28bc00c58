"""Columns of a `Dataset` whose values Arrow has no one type for, handed on as they were read.

Apart from `table.py`, as it imports `datasets`, which takes a second.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import datasets
import pyarrow
from datasets.table import InMemoryTable


@dataclass
class JsonCell(datasets.Json):
    """A value kept as JSON text, read by Python: `datasets.Json` reads numbers with a fast parser.

    That one takes 0.30000000000000004 for 0.3 and refuses whole numbers above 64 bits.
    """

    def decode_example(self, example_data: str | None, token_per_repo_id: Any = None) -> Any:
        return None if example_data is None else json.loads(example_data)


def dataset_of(columns: Mapping[str, pyarrow.Array]) -> datasets.Dataset:
    """The rows of Arrow arrays; a JSON array's values are what its texts say."""
    table = pyarrow.table(dict(columns))
    features = datasets.Features.from_arrow_schema(table.schema)
    for name, array in columns.items():
        if isinstance(array, pyarrow.JsonArray):
            features[name] = JsonCell()
    return datasets.Dataset(InMemoryTable(table), info=datasets.DatasetInfo(features=features))
