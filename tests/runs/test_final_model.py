"""The final model appears whole, and the other processes do not wait while one merges."""

import shutil
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console
from torch import nn

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.manifest import problem_with
from rlvr_vocab.record.results import ACCURACY
from rlvr_vocab.runs import final_model
from rlvr_vocab.runs.final_model import save_final_model
from rlvr_vocab.runs.folder import Run
from rlvr_vocab.vocab.adapter import load_model
from rlvr_vocab.vocab.layout import VocabLayout


class DummyTrainer:
    """Saves a model that lies ready, and notes what happened in which order."""

    def __init__(self, ready, model, is_main=True):
        self.ready, self.model, self.initial_model = ready, model, ready
        self.noted = []
        self.accelerator = SimpleNamespace(
            is_main_process=is_main, wait_for_everyone=lambda: self.noted.append("waited")
        )

    def save_model(self, folder):
        self.noted.append(f"saved in {Path(folder).name}")
        shutil.copytree(self.ready, folder, dirs_exist_ok=True)


def save(trainer, run_folder):
    settings = SimpleNamespace(output_dir=run_folder, resolved=read_settings("train", []).resolved)
    run = Run(settings, VocabLayout(4, (), 1, 2, (), ()), Console(quiet=True))
    save_final_model(run, trainer, 3, ACCURACY)


def test_a_whole_model_appears_at_once_with_its_card_in_place_of_an_earlier_one(expand_shape, tmp_path):
    (tmp_path / "final_model").mkdir()
    (tmp_path / "final_model" / "stale").touch()
    trainer = DummyTrainer(expand_shape("llama", size=20), nn.Linear(1, 1))
    save(trainer, tmp_path)
    names = {path.name for path in (tmp_path / "final_model").iterdir()}
    assert names == {"README.md", "manifest.json", *(path.name for path in trainer.ready.iterdir())}
    assert [path.name for path in tmp_path.iterdir()] == ["final_model"]
    assert trainer.noted[0].startswith("saved in final_model.partial-")


def test_a_model_that_has_been_evaluated_is_not_thrown_away(expand_shape, tmp_path):
    results = Path("evaluation", "gsm8k", "results.jsonl")
    (tmp_path / "final_model" / results).parent.mkdir(parents=True)
    (tmp_path / "final_model" / results).touch()
    trainer = DummyTrainer(expand_shape("llama", size=20), nn.Linear(1, 1))
    save(trainer, tmp_path)
    (tmp_path / "final_model" / "README.md").write_text("edited")
    assert not problem_with(tmp_path / "final_model")
    (tmp_path / "final_model" / "config.json").write_text("{}")
    assert problem_with(tmp_path / "final_model")
    assert (tmp_path / "earlier-final_model" / results).is_file()


def test_the_main_process_merges_when_the_others_have_stopped_waiting(
    expand_shape, make_adapter, tmp_path, monkeypatch
):
    adapter = make_adapter(expand_shape("llama", size=20))
    trainer = DummyTrainer(adapter, load_model(adapter))
    monkeypatch.setattr(final_model, "_merge", lambda run, folder, *_: trainer.noted.append(f"merged {folder.name}"))
    save(trainer, tmp_path)
    assert trainer.noted[1:] == ["waited", "waited", "merged final_adapter"]
    assert (tmp_path / "final_adapter" / "README.md").is_file()
