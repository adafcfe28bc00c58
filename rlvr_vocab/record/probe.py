"""The thoughts and answers of a probe, one JSON object a line; no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.files import PROBE, PROBE_FOLDER, read_record

# What becomes of the ids of a thought before its answer is sampled again, and what that tells.
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
        draw: which of the versions of this arm; answers with the same draw are sampled by the same random numbers.
        score: what the grader gives; None where it has none.
        right: whether that is right; None where nothing is right or wrong.
        gold_logp: log-probability of the gold answer, in the words of the model's own; None where it is not known.
        donor_logp: that of the gold answer to the donor's problem; `permuted_donor_logp`: of the same after the thought
            as the permuted arm has it, with no choice of the donor's but by chance.
        donor: the problem that a transplanted thought has its choices from.
        copies_logp: of the choice of ids, given the text and what stands before.
        exchanged: share of the places with a choice at which the id is not the own one.
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


@dataclass(frozen=True)
class ToldByProbe:
    """What stands in the `probe.json` of a run for whoever shows the run."""

    verdict: str
    sentence: str


def told_by_probe(run: Path) -> ToldByProbe | None:
    """What the probe of one run says of it; None where nobody has asked.

    Raises:
        UserError: its file is damaged.
    """
    probe = read_record(run / PROBE_FOLDER, PROBE)
    if probe is None:
        return None
    try:
        return ToldByProbe(probe["verdict"], probe["sentence"])
    except KeyError as error:
        raise UserError(f"{run / PROBE_FOLDER / PROBE} is damaged: {error}") from error


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """The file appears whole or not at all."""
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(lines), errors="surrogatepass")


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """What `write_rows` wrote; raises UserError where a line holds something else."""
    found = []
    lines = path.read_bytes().split(b"\n")  # text of a model may hold what else Python takes for the end of a line
    for number, line in enumerate(filter(None, lines), start=1):
        try:
            found.append(kind(**json.loads(line.decode("utf-8", errors="surrogatepass"))))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}, line {number}: not of a probe of this version ({error})") from error
    return found
