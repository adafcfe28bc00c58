"""What a checkpoint inside a run's folder was trained with; defaults for one that stands alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.config.problem_source import problem_source, problem_split
from rlvr_vocab.config.recorded import read_recorded, required_value
from rlvr_vocab.config.sections import DatasetSettings, RewardSettings
from rlvr_vocab.config.values import read
from rlvr_vocab.counted import counted
from rlvr_vocab.data import DividedProblems, read_problems
from rlvr_vocab.data.load import build_report
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.files import PROBLEMS, parents_of, run_folder_of
from rlvr_vocab.record.json_files import read_record
from rlvr_vocab.runs.problem_account import StageAccount, changed_division, fingerprint_of, problem_account

DEFAULT_MAX_NEW_TOKENS, DEFAULT_TEMPERATURE = 1024, 1.0


@dataclass(frozen=True)
class RecordedRun:
    """All that is None is so without a run.

    Attributes:
        dataset: what decides, with `seed`, which problems were held out.
        training_sets: what each stage trained on, the name of the stage first, and so for a run in one piece.
        warmed_up: whether the run began with supervised steps on problems of `dataset`.
    """

    folder: Path | None = None
    seed: int | None = None
    dataset: Mapping[str, Any] | None = None
    training_sets: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    warmed_up: bool = False
    rewards: RewardSettings | None = None
    system_prompt: str | None = None
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    temperature: float = DEFAULT_TEMPERATURE


def recorded_run(checkpoint: Path) -> RecordedRun:
    """Read `config.yaml` beside the checkpoint's folder.

    Raises:
        UserError: If it is not the configuration of a run.
    """
    folder = run_folder_of(checkpoint)
    if folder is None:
        return RecordedRun()
    config = read_recorded(folder, resolve=True)
    stage = stage_of(checkpoint, config.get("stages") or [])
    generation = {
        name: stage.get("generation", {}).get(name, required_value(config, f"model.generation_kwargs.{name}", folder))
        for name in ("max_new_tokens", "temperature")
    }
    return RecordedRun(
        folder=folder,
        seed=required_value(config, "seed", folder),
        dataset=config["dataset"],
        training_sets=tuple(
            (each["name"], {**config["dataset"], **each.get("dataset", {})})
            for each in config.get("stages") or [{"name": ""}]
        ),
        warmed_up=(config.get("warmup") or {}).get("max_steps", 0) > 0,
        rewards=read(RewardSettings, stage.get("rewards") or config.get("rewards") or {"functions": []}, "rewards"),
        system_prompt=required_value(config, "dataset.system_prompt", folder),
        **generation,
    )


def stage_of(checkpoint: Path, stages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What the stage of a checkpoint sets over the run: its own stage's folder tells, else it is past the last one."""
    for folder in map(Path.absolute, parents_of(checkpoint)):
        if folder.parent.name == "stages":
            name = folder.name.partition("_")[2]
            return next((stage for stage in stages if stage["name"] == name), {})
    return stages[-1] if stages else {}


def problems_line(dataset: str, keys: Collection[str], run: RecordedRun) -> str:
    """Which problems an evaluation measures on, seen from the run; a warning where it may have trained on them.

    Args:
        dataset: its name.
        keys: of the problems that are measured on (`problem_key`).
    """
    if run.folder is None:
        return f"problems of {dataset}; the checkpoint is in no run's folder"
    try:
        held_out, trained, changes = _division_of(run)
    except UserError as error:
        return f"warning: whether the run in {run.folder} trained on these problems cannot be told: {error}"
    if changes:
        return (
            f"warning: the problems of the run in {run.folder} are divided otherwise now than when it was trained "
            f"({'; '.join(changes)}): it may have trained on these problems"
        )
    known = sum(key in trained for key in keys)
    if known:
        return f"warning: the run in {run.folder} trained on {known:,} of these {counted(len(keys), 'problem')}"
    if held_out.issuperset(keys):
        return f"problems held out by the run in {run.folder}"
    return f"problems of {dataset}; the run in {run.folder} trained on none of them"


def _division_of(run: RecordedRun) -> tuple[frozenset[str], set[str], list[str]]:
    """Keys of the problems that a run held out and of those it trained on; what of that is not as it was recorded."""
    own = _divided(run.dataset, run)
    reserved_keys = frozenset(problem.key for problem in own.reserved)
    trained = {problem.key for problem in own.trained} if run.warmed_up else set()
    stages = []
    for name, dataset in run.training_sets:
        divided = own if dataset == run.dataset else _divided(dataset, run)
        allowed = [problem for problem in divided.trained if problem.key not in reserved_keys]
        trained.update(problem.key for problem in allowed)
        account = StageAccount(
            build_report(divided, ()),
            len(divided.parts.train) - len(allowed),
            fingerprint_of((problem.text, problem.solution) for problem in allowed),
        )
        stages.append((name, account, 0, 0))
    assert run.folder is not None
    recorded = read_record(run.folder, PROBLEMS)
    if recorded is None:
        return reserved_keys, trained, []
    now = {**problem_account(0, "", 0, stages), "held_out": recorded["held_out"]}
    return reserved_keys, trained, changed_division(recorded, now)


def _divided(dataset: Any, run: RecordedRun) -> DividedProblems:
    assert run.seed is not None
    settings = read(DatasetSettings, dataset, f"dataset in {run.folder}")
    return read_problems(problem_source(settings), problem_split(settings, run.seed))
