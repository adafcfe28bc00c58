"""Whether a run may write where it is told to: not over another configuration's run or foreign files."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.from_config import as_typed
from rlvr_vocab.exp.recorded_config import differences, read_recorded

DIFFERENCES_SHOWN = 3


def check_run_folder(folder: Path, resolved: Mapping[str, Any], overwrite: bool) -> None:
    """Raises UserError where the folder holds anything but an earlier part of the same run."""
    if os.environ.get("RANK", "0") != "0":  # the main process may have begun to write by now
        return
    check_no_file_in_the_way(folder, "output_dir")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / "config.yaml").is_file():
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours (no config.yaml); choose another one")
    try:
        recorded = read_recorded(folder, resolve=True)
    except UserError as error:
        raise UserError(f"output_dir={folder}: not empty, and not a run of ours ({error})") from error
    if overwrite and holds_more_than_a_run(folder):
        raise UserError(f"output_dir={folder}: overwrite=true would delete more than a run; choose another folder")
    different = list(differences(recorded, resolved))
    if different and not overwrite:
        shown = "; ".join(
            f"{key}: {as_typed(there)} there, {as_typed(here)} here"
            for key, there, here in different[:DIFFERENCES_SHOWN]
        )
        more = f"; {len(different) - DIFFERENCES_SHOWN} more" if len(different) > DIFFERENCES_SHOWN else ""
        raise UserError(
            f"output_dir={folder}: holds a run with another configuration ({shown}{more}); "
            "choose another exp_name or output_dir, or add overwrite=true"
        )


def holds_more_than_a_run(folder: Path) -> bool:
    """A config.yaml copied into a working folder or a repository does not make it a run's folder."""
    return (folder / ".git").exists() or Path.cwd().is_relative_to(folder.resolve())


def check_new_folder(folder: Path, key: str) -> None:
    """Raises UserError where the folder exists and is not empty."""
    check_no_file_in_the_way(folder, key)
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{key}={folder}: not empty; choose another folder")


def check_new_file(file: Path, key: str, read: Iterable[str]) -> None:
    """Raises UserError where a folder is in the way, or the file is one of those that are read."""
    if file.is_dir():
        raise UserError(f"{key}={file}: a folder; give a file")
    if any(Path(name).expanduser().resolve() == file.resolve() for name in read):
        raise UserError(f"{key}={file}: is a problem set of this command; give another file")
    check_no_file_in_the_way(file.parent, key)


def check_no_file_in_the_way(folder: Path, key: str) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise UserError(f"{key}={folder}: {path} is a file; give a folder")
