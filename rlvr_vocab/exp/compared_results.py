"""The results of a run that a comparison takes: which file, whether it is whole, and how the answers were sampled."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.from_config import as_typed
from rlvr_vocab.exp.json_file import read_json_if_there
from rlvr_vocab.vocab.run_places import EVALUATION_RESULTS, EVALUATION_SETTINGS, FINAL_MODEL

_OF_A_RUN, _OF_EVALUATE = "evaluation", f"{FINAL_MODEL}/evaluation"
_AT_ITS_END = "after"
_NEEDED = ("prompt", "solution", "score")
_TYPED = ("samples", "temperature", "max_new_tokens", "seed", "batch_size", "backend")


def measured(evaluation: str | None) -> str:
    """What the compared results are, in words."""
    return "what each run measured at its end" if evaluation is None else f"results named {evaluation}"


def results_file(folder: Path, evaluation: str | None) -> Path:
    """Where the results lie; raises UserError where the run has none of that name."""
    name = evaluation or _AT_ITS_END
    places = [folder / _OF_A_RUN / f"{name}.jsonl"]
    if evaluation is not None:
        places.insert(0, folder / _OF_EVALUATE / evaluation / EVALUATION_RESULTS)
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
    names = [path.parent.name for path in sorted((folder / _OF_EVALUATE).glob(f"*/{EVALUATION_RESULTS}"))]
    names += [path.stem for path in sorted((folder / _OF_A_RUN).glob("*.jsonl"))]
    return f"; there is: {', '.join(names)}" if names else ""


def asked_of_results(path: Path) -> dict[str, Any] | None:
    """How `rlvr-vocab evaluate` was asked for these results; None where they are not its, or it has not said.

    Raises:
        UserError: it has not come to its end.
    """
    asked = read_json_if_there(path.parent / EVALUATION_SETTINGS) if path.name == EVALUATION_RESULTS else None
    if asked is None or not all(isinstance(asked.get(name), int) for name in ("problems", "samples")):
        return asked
    there, expected = path.read_bytes().count(b"\n"), asked["problems"] * asked["samples"]
    if there < expected:
        raise UserError(
            f"{path} holds {there:,} of {counted(expected, 'answer')}: {_command(path.parent, asked)} "
            "goes on with it, given the problems that it began with"
        )
    return asked


def _command(folder: Path, asked: Mapping[str, Any]) -> str:
    words = [f"checkpoint={folder.parent.parent}", f"out={folder}"]
    words += [f"{name}={as_typed(asked[name])}" for name in _TYPED if name in asked]
    return shlex.join(["rlvr-vocab", "evaluate", *words])


def answers_in(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a file of results: each is needed, so none may be broken."""
    answers: list[Mapping[str, Any]] = []
    # A completion may hold any other sign that breaks lines.
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), 1):
        try:
            answer = json.loads(line.decode("utf-8", errors="surrogatepass"))
        except ValueError as error:  # UnicodeDecodeError among them
            raise UserError(f"{path}, line {number}: not readable JSON ({error})") from error
        if not isinstance(answer, dict) or not all(name in answer for name in _NEEDED):
            raise UserError(f"{path}, line {number}: no result ({', '.join(_NEEDED)} are needed)")
        answers.append(answer)
    if not any(answer["score"] is not None for answer in answers):
        raise UserError(f"{path} holds no graded answer")
    return answers
