"""The thoughts and answers of a probe, one JSON object a line; no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, read_json_if_there
from rlvr_vocab.record.files import PROBE, PROBE_FOLDER

# Interventions on the ids of a thought, after which its answer is sampled again.
ARMS = {
    "own": "as sampled",
    "redrawn": "each drawn anew from the model's own p(copy | text so far): the harness, which should do no harm",
    "permuted": "those of each text dealt out anew over all thoughts: each keeps its rate, and loses its place",
    "transplanted": "those of another problem's thought, the nth of a text for the nth",
    "sources": "all standard tokens: includes the shock of an unusual input",
    "copies": "all copies: includes the shock of an unusual input",
    "coin": "by chance: includes the shock of an unusual input",
    **{f"dose_{share}": f"{share} % of them exchanged" for share in (10, 30, 50, 70, 90)},
    **{f"cut_{share}": f"the thought closed after {share} % of its tokens" for share in (0, 25, 50, 75)},
}


@dataclass(frozen=True)
class SampledThought:
    """A completion that a probe begins with; `answer`: what the grader reads as its final answer, None where none."""

    problem: int
    sample: int
    prompt_ids: list[int]
    completion_ids: list[int]
    answer: str | None


@dataclass(frozen=True)
class ProbeAnswer:
    """One answer after one version of a thought.

    Attributes:
        draw: version of the arm; answers with the same draw are sampled by the same random numbers.
        gold_logp: log-probability of the gold answer, worded as the model's own answer; None if unknown.
        donor_logp, permuted_donor_logp: that of the gold answer to the donor's problem, after the transplanted and
            after the permuted thought; `donor` is the problem that gave the choices.
        copies_logp: of the choice of ids, given the text and the ids before.
        exchanged: share of the places with a choice at which the id is another one.
    """

    problem: int
    sample: int
    draw: int
    score: float | None
    right: bool | None
    gold_logp: float | None
    donor_logp: float | None
    permuted_donor_logp: float | None
    donor: int | None
    copies_logp: float
    exchanged: float
    answer: str

    @property
    def value(self) -> float | None:
        return self.score if self.right is None else float(self.right)


@dataclass(frozen=True)
class PermutedThought:
    """Log-probabilities of the gold answer after a thought whose choices were dealt out anew, time after time."""

    problem: int
    sample: int
    gold_logps: list[float]


Row = TypeVar("Row", SampledThought, ProbeAnswer, PermutedThought)


def read_probe(run: Path) -> dict[str, Any] | None:
    """The `probe.json` of a run, with its `verdict` and `sentence`; None for a run that was not probed."""
    return read_json_if_there(run / PROBE_FOLDER / PROBE, {"verdict": str, "sentence": str})


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """The file appears whole or not at all."""
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(lines), errors="surrogatepass")


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read what `write_rows` wrote; raises UserError where a line holds something else."""
    found = []
    lines = path.read_bytes().split(b"\n")  # text of a model may hold what else Python takes for the end of a line
    for number, line in enumerate(filter(None, lines), start=1):
        try:
            found.append(kind(**json.loads(line.decode("utf-8", errors="surrogatepass"))))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not of a probe of this version ({error})") from error
    return found
