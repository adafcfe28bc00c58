"""Rows of a problem set that `datasets` reads: from the hub, its cache, or a folder."""

from typing import Any

from rlvr_vocab.data.files import one_line
from rlvr_vocab.data.paths import expanded
from rlvr_vocab.errors import UserError


def hub_rows(name: str, subset: str | None, split: str) -> list[dict[str, Any]]:
    """The rows of one split.

    Raises:
        UserError: If it cannot be had: offline, no such set, configuration or split, no access.
    """
    from datasets import load_dataset

    # `datasets` does not know a home folder's `~`.
    place = str(expanded(name)) if name.startswith("~") else name
    try:
        return load_dataset(place, subset, split=split).to_list()
    # The hub's client lets through anything from httpx.ConnectError to a script's RuntimeError;
    # to the user all of them mean that this set cannot be had, and the cause is kept in the line.
    except Exception as error:
        wanted = f"split {split}" if subset is None else f"configuration {subset}, split {split}"
        raise UserError(
            f"dataset {name} ({wanted}) could not be loaded from the Hugging Face hub or a folder:"
            f" {one_line(error)}; to read a local file, set dataset=local dataset.name=FILE"
        ) from error
