"""config=FILE, and what an output folder may already hold."""

import json
import shutil
from pathlib import Path

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.folder import start_run_folder

TINY = ["experiment=quickstart", "exp_name=run"]


def record(words: list[str]) -> Path:
    settings = load_settings("train", words)
    settings.output_dir.mkdir(parents=True)
    path = settings.output_dir / "config.yaml"
    path.write_text(config_yaml(settings.resolved))
    return path


def refusal(words: list[str]) -> str:
    with pytest.raises(UserError) as caught:
        load_settings("train", words)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recorded_run_starts_again_in_its_own_folder_or_in_another_one() -> None:
    path = record([*TINY, "seed=5"])
    again = load_settings("train", [f"config={path}"])
    assert (again.seed, again.output_dir) == (5, Path("out/run"))
    elsewhere = load_settings("train", [f"config={path.parent}", "output_dir=other"])
    assert (elsewhere.seed, elsewhere.output_dir) == (5, Path("other"))
    assert elsewhere.training == again.training and elsewhere.model == again.model


def test_a_group_chosen_over_a_recorded_run_replaces_its_whole_section() -> None:
    path = record([*TINY, "dataset.max_train_samples=7"])
    settings = read_settings("train", [f"config={path}", "dataset=gsm8k"])
    assert settings.dataset == read_settings("train", ["dataset=gsm8k"]).dataset
    assert settings.model.name == "tiny"


def test_text_with_an_interpolation_sign_survives_recording() -> None:
    path = record([*TINY, r"dataset.system_prompt=pay \${amount} or ${amount}"])
    prompt = load_settings("train", [f"config={path}"]).dataset.system_prompt
    assert prompt == r"pay \${amount} or ${amount}"


def test_another_configuration_in_the_folder_is_refused_with_the_first_differences() -> None:
    record([*TINY, "overwrite=true"])
    message = refusal([*TINY, "seed=7", "training.learning_rate=1e-3", "training.temperature=0.9"])
    assert "seed: 42 there, 7 here" in message
    assert "overwrite=true" in message
    assert load_settings("train", [*TINY, "seed=7", "overwrite=true"]).overwrite
    load_settings("train", [*TINY, "logging=offline", "logging.project=other"])  # logging may differ


def test_foreign_files_are_never_written_over() -> None:
    Path("out/run").mkdir(parents=True)
    Path("out/run/thesis.tex").touch()
    assert "out/run" in refusal([*TINY, "overwrite=true"])
    Path("out/run/config.yaml").write_text("services: [web]\n")
    assert "not a run of ours" in refusal([*TINY, "overwrite=true"])


def test_a_working_folder_or_a_repository_is_never_overwritten() -> None:
    content = record(TINY).read_text()
    for folder in (Path(), Path("repository")):
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text(content)
        (Path("repository") / ".git").mkdir(parents=True, exist_ok=True)
        assert "more than a run" in refusal([*TINY, f"output_dir=./{folder}", "overwrite=true"])


def test_an_empty_folder_is_fine_and_a_file_in_the_way_is_not() -> None:
    Path("out/run").mkdir(parents=True)
    load_settings("train", TINY)
    Path("file").touch()
    assert "file is a file" in refusal([*TINY, "output_dir=file/run"])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["training.learning_rate=0.5", "allow_changes=[training.learning_rate]"], "nothing more is trained"),
        (["training.optim=sgd", "allow_changes=[training.optim]"], "cannot go on from the state of another"),
        (["overwrite=true", "resume=out/run/checkpoint-5"], "give one of them"),
    ],
)
def test_what_would_come_to_nothing_is_refused(words: list[str], part: str) -> None:
    record(TINY)
    Path("out/run/checkpoint-5").mkdir()
    Path("out/run/summary.json").write_text(json.dumps({"finished": True, "steps": 10_000}))
    assert part in refusal([*TINY, *words])


def test_a_run_that_is_being_cleared_keeps_all_of_it_as_long_as_its_summary_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped before each file in turn: its configuration goes last, so that what is left is known as a run's."""
    configuration, folder, rename = record(TINY).read_text(), Path("out/run"), Path.rename
    replacing = load_settings("train", [*TINY, "overwrite=true"])
    names = {"metrics.jsonl", "checkpoint-5", "checkpoint-10", "completions", "problems.json"}
    moments: list[int] = []

    def move(path: Path, target: Path) -> Path:
        if not moments:
            raise KeyboardInterrupt
        moments.pop()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", move)
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
        assert "config.yaml" in left
        assert names <= left or "summary.json" not in left
    monkeypatch.setattr(Path, "rename", rename)
    start_run_folder(load_settings("train", TINY))
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "environment.json"}


def test_only_the_main_process_looks_into_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out/run/initial_model").mkdir(parents=True)
    monkeypatch.setenv("RANK", "1")
    load_settings("train", TINY)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "line 1"),
        ("- 1", "expected keys and values"),
        ("defaults: [config]\nmodel: {}\ndataset: {}\ntraining: {}", "--config-name"),
        ("model: {name: m}\ndataset: {name: d}\ntraining: {}\nsed: 3", "seed?"),
    ],
)
def test_a_file_that_is_no_recorded_run_is_refused(text: str, part: str) -> None:
    Path("some.yaml").write_text(text)
    message = refusal(["config=some.yaml"])
    assert part in message and ("some.yaml" in message or "seed" in part)


def test_a_missing_file_gets_the_nearest_and_a_recipe_over_a_recorded_run_is_refused() -> None:
    path = record(TINY)
    assert "out/run/config.yaml?" in refusal(["config=out/rum/config.yaml"])
    assert "experiment" in refusal([f"config={path}", "experiment=quickstart"])
    assert "give one" in refusal([f"config={path}", "--config-name", "config"])
