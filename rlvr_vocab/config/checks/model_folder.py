"""Whether a folder holds a model, without loading it."""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from rlvr_vocab.config.sections import ModelSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json
from rlvr_vocab.record.files import FINAL_MODEL
from rlvr_vocab.record.manifest import MANIFEST, problem_with
from rlvr_vocab.text import nearest_word
from rlvr_vocab.vocab.layout import refuse_expanded, refuse_quantized
from rlvr_vocab.vocab.weights import ADAPTER_WEIGHTS, find_base, is_adapter


def check_model(model: ModelSettings) -> None:
    """The chat template is there, and a folder of model.name holds a model, not quantized, without reasoning tokens."""
    if model.chat_template is not None and not model.chat_template.is_file():
        raise UserError(f"model.chat_template={model.chat_template}: no such file")
    name, folder = model.name, Path(model.name).expanduser()
    looks_like_path = name.startswith(("/", ".", "~")) or name.endswith("/") or name.count("/") > 1
    if model.tiny is None and (folder.exists() or looks_like_path):
        refuse_quantized(name, check_folder(folder, f"model.name={name}").get("quantization_config"))
        refuse_expanded(str(folder))


def check_checkpoint(folder: Path, base: Path | None) -> None:
    """A checkpoint to sample from is a whole model, or an adapter whose base is there."""
    if is_adapter(folder):
        check_adapter(folder, base)
        return
    if not folder.exists() and str(folder).count("/") == 1 and not folder.parent.exists():
        expand = f"rlvr-vocab expand model.name={folder} model.reasoning_vocab_size=0 out=./{folder.name}"
        raise UserError(f"checkpoint={folder}: no such folder; for a model of the hub type {expand} first")
    check_folder(folder, f"checkpoint={folder}")
    _require_whole(folder)
    if base is not None:
        raise UserError(f"base={base}: checkpoint={folder} is a whole model and needs none; leave it out")


def check_adapter(folder: Path, base: Path | None) -> None:
    """The adapter has readable weights, and its base exists."""
    try:
        with safe_open(folder / ADAPTER_WEIGHTS, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise UserError(f"checkpoint={folder}: its {ADAPTER_WEIGHTS} cannot be read: {error}") from error
    _require_whole(folder)
    if base is not None:
        check_folder(base, f"base={base}")
    found = find_base(folder, base)
    check_folder(found, f"checkpoint={folder}: its base {found}")


def _require_whole(folder: Path) -> None:
    """A folder with a manifest has the files that it lists, unchanged; folders of other tools have no manifest."""
    problem = problem_with(folder) if (folder / MANIFEST).is_file() else None
    if problem is not None:
        remedy = f"take another, or delete {MANIFEST} if you edited the folder yourself"
        raise UserError(f"checkpoint={folder}: not what was written, by its {MANIFEST}: {problem}; {remedy}")


def check_folder(folder: Path, given: str) -> dict[str, Any]:
    """The config.json of a model folder; UserError names what is missing, and the nearest folder."""
    if not folder.is_dir():
        near = nearest_word(folder.name, [path.name for path in folder.parent.glob("*/")])
        hint = f"; did you mean {folder.parent / near}?" if near else ""
        raise UserError(f"{given}: {'is a file, not a model folder' if folder.is_file() else 'no such folder'}{hint}")
    if not (folder / "config.json").is_file():
        hint = ""
        if is_adapter(folder):
            hint = f", only an adapter: fold it into its base first, rlvr-vocab merge checkpoint={folder} out=…"
        elif inside := sorted(folder.glob("*/config.json"), key=lambda path: (path.parent.name == FINAL_MODEL, path)):
            hint = f"; did you mean {inside[-1].parent}?"
        raise UserError(f"{given}: no config.json in it{hint}")
    config = read_json(folder / "config.json")
    if not config.get("model_type"):
        raise UserError(f"{given}: its config.json names no model_type, so it is not a model")
    tokenizers = ("tokenizer.json", "tokenizer_config.json")
    if next(folder.glob("*.safetensors"), None) is None:
        raise UserError(f"{given}: no weights in it (*.safetensors); pickled ones are not read")
    if not any((folder / name).is_file() for name in tokenizers):
        raise UserError(f"{given}: no tokenizer in it ({' or '.join(tokenizers)})")
    return config
