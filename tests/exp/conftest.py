"""A quiet place for every test: an empty working folder, no W&B, one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def quiet_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    for name in ("WORLD_SIZE", "RANK", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes the files by which a model folder is recognised; nothing in them can be loaded."""

    def make(name: str = "base", **config: Any) -> Path:
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 100, **config}))
        (folder / "model.safetensors").touch()
        (folder / "tokenizer.json").touch()
        return folder

    return make
