"""Files of a run, but for its checkpoints, cut, emptied, deleted or changed by a bit: each is named or made anew.

With RLVR_VOCAB_SURVIVAL every file of a finished, an interrupted and a staged run is damaged in each of the four ways,
and each command looks at it.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

WORDS = ("report=true", "training.eval_steps=2", "training.max_steps=4", "training.save_steps=2")
STAGES = "stages=[{name:one,training:{max_steps:2}},{name:two,training:{max_steps:2}}]"
# What nobody needs again, people edit, or `report` writes again.
DERIVED = re.compile(r"(.*/)?(README\.md|vocabulary\.csv|report\.html|events\..*)")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {"cut": cut, "empty": lambda path: path.write_bytes(b""), "delete": lambda path: path.unlink(), "flip": flip}


@pytest.fixture(scope="module")
def runs(forks, tmp_path_factory):
    """(words, folder) of a finished, an interrupted and a staged run."""
    root = tmp_path_factory.mktemp("runs")
    made = {"finished": WORDS, "interrupted": WORDS, "staged": (*WORDS, STAGES)}
    for name, words in made.items():
        told = {"signals_at": [["open metrics.jsonl", 3, signal.SIGTERM]]} if name == "interrupted" else {}
        assert forks.run(root / name, *words, **told) == (75 if told else 0), forks.said(root / name)
    return {name: (words, root / name) for name, words in made.items()}


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def copied(folder, to):
    """Weights are linked: whoever changes them writes new files."""
    to.parent.mkdir(exist_ok=True)
    shutil.copytree(folder, to, copy_function=lambda here, there: link(Path(here), Path(there)))


def link(here, there):
    if here.stat().st_size > 2**20:
        os.link(here, there)
    else:
        shutil.copy2(here, there)


class Damaged:
    """A copy of a run in which one file is damaged, and what the commands then say."""

    def __init__(self, forks, words, original, name, damage, tmp_path):
        self.forks, self.words, self.original, self.name = forks, words, original, name
        self.folder = tmp_path / "damaged"
        copied(original, self.folder)
        target = self.folder / name
        content = target.read_bytes()
        target.unlink()  # it may be linked
        target.write_bytes(content)
        DAMAGES[damage](target)
        self.said = ""

    def look(self, command, *words):
        code = self.forks.command(self.folder, command, *words)
        return self._new(command, code)

    def train(self):
        return self._new("train", self.forks.run(self.folder, *self.words))

    def _new(self, command, code):
        everything = self.forks.said(self.folder)
        new, self.said = everything[len(self.said) :], everything
        assert "Traceback" not in new and code in (0, 1, 2), (self.name, command, code, new)
        assert code != 1 or command == "doctor", (command, code, new)
        return code, new

    def is_named_in(self, said):
        place = Path(self.name)
        return any(word in said for word in (self.name, f"{place.parent.name}/{place.name}", f" {place.name}"))

    def is_whole(self):
        """Whether the file is there as it was, but for times."""
        here, there = self.folder / self.name, self.original / self.name
        return here.is_file() and (abs(here.stat().st_size - there.stat().st_size) < 64 or self.name == "metrics.jsonl")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["finished", "interrupted", "staged"])
def test_no_damage_is_silent(request, forks, moments, tmp_path, kind, damage):
    if moments is None:
        pytest.skip("an hour: with RLVR_VOCAB_SURVIVAL only")
    runs, faults = request.getfixturevalue("runs"), []
    words, original = runs[kind]
    for name in files_of(original):
        if DERIVED.fullmatch(name) or is_of_a_checkpoint_that_nobody_needs(kind, name, original):
            continue
        if kind == "interrupted" and name.startswith("completions/"):  # no list tells what an unfinished run sampled
            continue
        damaged = Damaged(forks, words, original, name, damage, tmp_path / "one")
        try:
            said = commands_after(damaged, runs)
            if said["train"][0] == "SILENT":
                faults.append((name, "silent", said["train"][1]))
        except AssertionError as error:
            faults.append((name, str(error)))
        shutil.rmtree(tmp_path / "one")
    assert faults == []


def is_of_a_checkpoint_that_nobody_needs(kind, name, folder):
    """A finished run needs none, an interrupted one its newest."""
    newest = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]), default=folder).name
    return "checkpoint-" in name and (kind != "interrupted" or not name.startswith(newest))


def commands_after(damaged, runs):
    folder, out = damaged.folder, damaged.folder.parent
    other = runs["staged" if "finished" in str(damaged.original) else "finished"][1]
    place = folder / damaged.name.partition("/")[0]
    model = place if (place / "config.json").is_file() else folder / "final_model"
    said = {
        "report": damaged.look("report", f"run={folder}", f"out={out}/report.html"),
        "doctor": damaged.look("doctor", f"run={folder}"),
        "samples": damaged.look("samples", f"run={folder}", "max_samples=2"),
        "compare": damaged.look("compare", f"runs=[{folder},{other}]", f"out={out}/compared", "key=stages"),
        "evaluate": damaged.look("evaluate", f"checkpoint={model}", f"out={out}/evaluated"),
    }
    code, words = damaged.train()
    refused = code == 2 and words.startswith("error: ")  # config.yaml, which people edit, is read as it stands
    silent = not refused and not damaged.is_named_in(words) and not (code == 0 and damaged.is_whole())
    return {**said, "train": ("SILENT" if silent else code, words)}


def test_an_interrupted_run_has_its_rows_from_the_checkpoint_and_names_what_it_measures_again(
    forks, unfinished, undisturbed, outcome_of
):
    cut(unfinished / "metrics.jsonl")
    before = unfinished / "evaluation" / "before.jsonl"
    cut(before)
    assert forks.run(unfinished) == 0, forks.said(unfinished)
    assert "before.jsonl, line" in forks.said(unfinished) and (before.parent / "broken-before.jsonl").is_file()
    assert outcome_of(unfinished) == outcome_of(undisturbed())
    assert before.read_bytes() == (undisturbed() / "evaluation" / "before.jsonl").read_bytes()


DAMAGED = {
    "final_model/model.safetensors": "flip",
    "summary.json": "cut",
    "evaluation/after.jsonl": "flip",
    "environment.json": "delete",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_finished_run_with_a_damaged_file_is_refused_by_its_name_and_made_anew_once_that_is_gone(
    name, forks, undisturbed, outcome_of, tmp_path
):
    folder, before = tmp_path / "run", json.loads((undisturbed() / "summary.json").read_text())
    copied(undisturbed(), folder)
    content = (folder / name).read_bytes()
    (folder / name).unlink()  # it may be linked
    (folder / name).write_bytes(content)
    DAMAGES[DAMAGED[name]](folder / name)
    assert forks.run(folder) == 2
    [line] = [line for line in forks.said(folder).splitlines() if line.startswith("error: ")]
    assert f"this run is finished, and {name} " in line
    for path in (folder / name, folder / "summary.json"):
        path.unlink(missing_ok=True)
    assert forks.run(folder) == 0, forks.said(folder)
    assert outcome_of(folder) == outcome_of(undisturbed())
    after = json.loads((folder / "summary.json").read_text())
    measured = {"grpo_seconds", "seconds", "peak_memory", "forecast"}  # of each start
    assert {**after, **dict.fromkeys(measured)} == {**before, **dict.fromkeys(measured)}
    assert after["seconds"] >= after["grpo_seconds"] > 0.5 * before["grpo_seconds"]  # though this start trained nothing


def test_samples_that_a_finished_run_has_lost_are_named_and_end_nothing(forks, undisturbed, tmp_path):
    folder = tmp_path / "run"
    copied(undisturbed(), folder)
    (folder / "completions" / "step_00002.parquet").unlink()
    assert forks.run(folder) == 0
    assert f"warning: {folder}: completions/step_00002.parquet is missing" in forks.said(folder)
