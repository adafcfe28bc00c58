"""From the folders of runs to the arms of a comparison; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_vocab.analysis.compare.stories import ArmStory, KeyDifference, RunStory
from rlvr_vocab.analysis.completions import CompletionFiles
from rlvr_vocab.analysis.record import divided, read_rows
from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.arm_division import Division, divide
from rlvr_vocab.exp.from_config import read
from rlvr_vocab.exp.json_file import read_json
from rlvr_vocab.exp.look_sections import CompareSettings
from rlvr_vocab.exp.recorded_config import read_recorded
from rlvr_vocab.vocab.run_places import COMPLETIONS, FINAL_MODEL, METRICS, SUMMARY

_OF_A_RUN, _OF_EVALUATE = "evaluation", f"{FINAL_MODEL}/evaluation"
_AT_ITS_END = "after"
_NEEDED = ("prompt", "solution", "score")


@dataclass(frozen=True)
class ComparedArms:
    """The arms, the baseline first; the key under test, and what else differs."""

    key: str
    arms: tuple[ArmStory, ...]
    differences: tuple[KeyDifference, ...]


def compared_arms(settings: CompareSettings) -> ComparedArms:
    """Read the runs and divide them into arms.

    Raises:
        UserError: a run has no results, two are the same, or they do not divide into arms.
    """
    _check_told_apart(settings.runs)
    configs = [read_recorded(folder, resolve=True) for folder in settings.runs]
    stories = [
        _story(folder, config, settings.evaluation) for folder, config in zip(settings.runs, configs, strict=True)
    ]
    division = divide(configs, settings.key, settings.baseline)
    arms = tuple(
        ArmStory(f"{_short(division.key)}={value}", value, tuple(stories[number] for number in members))
        for value, members in division.arms
    )
    return ComparedArms(division.key, arms, _differences(division))


def _differences(division: Division) -> tuple[KeyDifference, ...]:
    order = [number for _, members in division.arms for number in members]
    return tuple(
        KeyDifference(key, tuple(values[number] for number in order)) for key, values in division.others.items()
    )


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _check_told_apart(folders: Sequence[Path]) -> None:
    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in seen:
            raise UserError(f"runs: {folder} is given twice")
        seen[folder.resolve()] = folder


def _story(folder: Path, config: Mapping[str, Any], evaluation: str | None) -> RunStory:
    rows, evaluations = divided(read_rows(folder / METRICS))
    training = config["training"]
    return RunStory(
        folder=str(folder),
        seed=_seed(folder, config),
        answers=_answers(_results_file(folder, evaluation)),
        rows=rows,
        evaluations=evaluations,
        summary=_json_if_there(folder / SUMMARY),
        environment=_json_if_there(folder / "environment.json"),
        first_prompts=_first_prompts(folder / COMPLETIONS),
        selects_best=bool(training.get("load_best_model_at_end")) or training.get("save_strategy") == "best",
    )


def _seed(folder: Path, config: Mapping[str, Any]) -> int | str:
    """The seed of the run, with those that were set apart from it."""
    if config.get("seed") is None:
        raise UserError(f"runs: {folder}/config.yaml names no seed, by which the runs of an arm are told apart")
    apart = [f"{name} {config['training'][name]}" for name in ("seed", "data_seed") if config["training"].get(name)]
    seed: int = read(int, config["seed"], "seed")
    return ", ".join([str(seed), *apart]) if apart else seed


def measured(evaluation: str | None) -> str:
    """What the compared results are, in words."""
    return "what each run measured at its end" if evaluation is None else f"results named {evaluation}"


def _results_file(folder: Path, evaluation: str | None) -> Path:
    name = evaluation or _AT_ITS_END
    places = [folder / _OF_A_RUN / f"{name}.jsonl"]
    if evaluation is not None:
        places.insert(0, folder / _OF_EVALUATE / evaluation / "results.jsonl")
    found = next((path for path in places if path.is_file()), None)
    if found is not None:
        return found
    if evaluation is not None:
        raise UserError(
            f"evaluation={evaluation}: {folder} has no such results (no {' and no '.join(map(str, places))}); "
            f"rlvr-vocab evaluate checkpoint={folder}/{FINAL_MODEL} makes them{_there_is(folder)}"
        )
    raise UserError(
        f"runs: {folder} has no results of its held-out problems (no {_OF_A_RUN}/{_AT_ITS_END}.jsonl), which a run "
        f"measures at its end: rlvr-vocab train config={folder}/config.yaml goes on with it; or measure each "
        f"with rlvr-vocab evaluate checkpoint={folder}/{FINAL_MODEL} and name the results by evaluation=<name>"
        f"{_there_is(folder)}"
    )


def _there_is(folder: Path) -> str:
    names = [path.parent.name for path in sorted((folder / _OF_EVALUATE).glob("*/results.jsonl"))]
    names += [path.stem for path in sorted((folder / _OF_A_RUN).glob("*.jsonl"))]
    return f"; there is: {', '.join(names)}" if names else ""


def _answers(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a file of results: each is needed, so none may be broken."""
    answers: list[Mapping[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogatepass").splitlines(), 1):
        try:
            answer = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not readable JSON ({error})") from error
        if not isinstance(answer, dict) or not all(name in answer for name in _NEEDED):
            raise UserError(f"{path}, line {number}: no result ({', '.join(_NEEDED)} are needed)")
        answers.append(answer)
    if not any(answer["score"] is not None for answer in answers):
        raise UserError(f"{path} holds no graded answer")
    return answers


def _json_if_there(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None


def _first_prompts(folder: Path) -> tuple[int, tuple[str, ...]] | None:
    """The first logged step and its prompts in their order, where completions were kept."""
    files = CompletionFiles(folder)
    if not files.steps:
        return None
    table = files.table(files.steps[0], ["prompt"])
    return files.steps[0], tuple(prompt for column in table.columns for prompt in column.to_pylist())
