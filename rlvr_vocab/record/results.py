"""The results of an evaluation, one JSON object a line for each sampled answer; no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_origin, get_type_hints

from rlvr_vocab.atomic_file import write_whole
from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class ProblemResult:
    """One sampled answer to one problem; `score` is None where the grader cannot read the gold answer.

    Attributes:
        completion: the assistant's whole turn, with what the template prefilled of it; `completion_ids` were sampled.
        answer: what the verifier takes for the turn's final answer; None where there is none, or, with `answer_read`
            False, where nobody looked.
    """

    problem: int
    sample: int
    prompt: str
    solution: str
    completion: str
    score: float | None
    tokens: int
    thinking_tokens: int
    reasoning_tokens: int
    closed: bool
    finished: bool
    answer: str | None = None
    answer_read: bool = False
    completion_ids: list[int] = field(default_factory=list)  # older files have none

    @property
    def right(self) -> bool:
        return self.score == 1.0


# `isinstance` takes unions, and no `list[int]`.
_KINDS = {name: list if get_origin(kind) is list else kind for name, kind in get_type_hints(ProblemResult).items()}


def write_results(results: Sequence[ProblemResult], path: Path) -> None:
    """One JSON object a line, one line a problem and sample; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(map(result_line, results)), errors="surrogatepass")


def read_results(path: Path) -> list[ProblemResult]:
    """What `write_results` wrote.

    Raises:
        UserError: a line holds something else, or is cut short.
    """
    lines = path.read_bytes().split(b"\n")
    return [result_in(line, path, number) for number, line in enumerate(lines, start=1) if number < len(lines) or line]


def result_in(line: bytes, path: Path, number: int) -> ProblemResult:
    """The result in a line of a file; raises UserError, which names both, where it is none."""
    try:
        result = ProblemResult(**json.loads(line.decode("utf-8", errors="surrogatepass")))
        wrong = [name for name, kind in _KINDS.items() if not isinstance(getattr(result, name), kind)]
        if wrong:
            raise TypeError(f"{wrong[0]} is {getattr(result, wrong[0])!r:.40}")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}, line {number}: no result of an evaluation ({error})") from error
    return result


def result_line(result: ProblemResult) -> str:
    return json.dumps(asdict(result), ensure_ascii=False) + "\n"
