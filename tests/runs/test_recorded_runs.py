"""config=FILE, and what an output folder may already hold."""

import json
import shutil
from pathlib import Path

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.runs.folder import start_run_folder
from tests.settings import load_settings, refusal

TINY = ["experiment=quickstart", "exp_name=run"]


def record(words):
    settings = load_settings("train", words)
    settings.output_dir.mkdir(parents=True)
    path = settings.output_dir / "config.yaml"
    path.write_text(config_yaml(settings.resolved))
    return path


def test_a_recorded_run_starts_again_in_its_own_folder_or_in_another_one():
    path = record([*TINY, "seed=5", r"dataset.system_prompt=pay \${amount} or ${amount}"])
    again = load_settings("train", [f"config={path}"])
    assert (again.seed, again.output_dir) == (5, Path("out/run"))
    assert again.dataset.system_prompt == r"pay \${amount} or ${amount}"
    elsewhere = load_settings("train", [f"config={path.parent}", "output_dir=other"])
    assert (elsewhere.seed, elsewhere.output_dir) == (5, Path("other"))
    assert elsewhere.training == again.training and elsewhere.model == again.model
    other = read_settings("train", [f"config={path}", "dataset=gsm8k"])  # replaces a whole section
    assert other.dataset == read_settings("train", ["dataset=gsm8k"]).dataset and other.model.name == "tiny"


def test_what_is_no_run_is_never_written_over():
    content, folder = record(TINY).read_text(), Path("out/run")
    load_settings("train", [*TINY, "logging=offline", "logging.project=other"])  # logging may differ
    for place in (Path(), Path("repository")):
        place.mkdir(exist_ok=True)
        (place / "config.yaml").write_text(content)
        Path("repository/.git").mkdir(parents=True, exist_ok=True)
        assert "more than a run" in refusal("train", [*TINY, f"output_dir=./{place}", "overwrite=true"])
    (folder / "config.yaml").unlink()
    load_settings("train", TINY)  # an empty folder is fine
    (folder / "thesis.tex").touch()
    assert "out/run" in refusal("train", [*TINY, "overwrite=true"])
    (folder / "config.yaml").write_text("services: [web]\n")
    assert "not a run of ours" in refusal("train", [*TINY, "overwrite=true"])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["training.max_steps=300", "allow_changes=[training.max_steps]"], "train nothing more"),
        (["training.optim=sgd", "allow_changes=[training.optim]"], "cannot change on resume"),
        (["overwrite=true", "resume=out/run/checkpoint-5"], "set one of them"),
    ],
)
def test_what_would_come_to_nothing_is_refused(words, part):
    record(TINY)
    Path("out/run/checkpoint-5").mkdir()
    Path("out/run/summary.json").write_text(json.dumps({"finished": True, "steps": 300}))
    assert part in refusal("train", [*TINY, *words])


def test_a_run_that_is_being_cleared_keeps_all_of_it_as_long_as_its_summary_is_there(monkeypatch):
    """Stopped before each file in turn: its configuration goes last, so that what is left is known as a run's."""
    configuration, folder, unlink = record(TINY).read_text(), Path("out/run"), Path.unlink
    replacing = load_settings("train", [*TINY, "overwrite=true"])
    names = {"metrics.jsonl", "checkpoint-5", "completions", "problems.json"}
    moments = []

    def remove(path, missing_ok=False):
        if path.parent.resolve() == folder.resolve() and not path.name.startswith("."):
            if not moments:
                raise KeyboardInterrupt
            moments.pop()
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", remove)
    for number in range(len(names) + 3):
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "config.yaml").write_text(configuration)
        for name in (*names, "manifest.json", "summary.json"):
            (folder / name).touch()
        moments[:] = range(number)
        with pytest.raises(KeyboardInterrupt):
            start_run_folder(replacing)
        left = {path.name for path in folder.iterdir()}
        assert "config.yaml" in left and (names <= left or "summary.json" not in left)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["config=some.yaml"], "line 1"),
        (["config=out/rum/config.yaml"], "out/run/config.yaml?"),
        (["config=out/run", "experiment=quickstart"], "experiment"),
    ],
)
def test_a_file_that_is_no_recorded_run_is_refused(words, part):
    record(TINY)
    Path("some.yaml").write_text("a: [")
    assert part in refusal("train", words)
