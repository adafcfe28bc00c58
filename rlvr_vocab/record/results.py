"""Results of an evaluation and of a probe, one JSON object a line for each sampled answer; their metric; no torch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rlvr_vocab.bounds import reaches
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, read_json_if_there
from rlvr_vocab.record.files import PROBE, PROBE_FOLDER, PROBLEMS, SUMMARY, THOUGHT_READING

# Columns of a problem set that results and completions keep.
KINDS = ("task", "difficulty")
# Cells of results that have a value with tools alone.
_OF_TOOLS = {"messages", "segments"}
# A grader as `GraderSpec.record` writes it.
GraderRecord = Mapping[str, Any]


@dataclass(frozen=True)
class HeldOutMetric:
    """The share of right answers (`is_share`), or, where nothing is right or wrong, the mean score.

    grader: the name of what grades the answers; by: ` by <grader>`, empty for the library's `accuracy`.
    """

    is_share: bool = True
    grader: str = "accuracy"
    by: str = ""

    @classmethod
    def of(cls, grader: GraderRecord | None) -> HeldOutMetric:
        """The metric of a grader; accuracy for None, as in a run without held-out problems."""
        if grader is None:
            return cls()
        is_accuracy = [each["name"] for each in grader["functions"] if "file" not in each] == ["accuracy"]
        by = "" if is_accuracy and len(grader["functions"]) == 1 else f" by {grader['name']}"
        return cls(grader["threshold"] is not None, str(grader["name"]), by)

    @property
    def name(self) -> str:
        return "accuracy" if self.is_share else "reward"

    def value(self, value: float, space: str = "") -> str:
        """A value, `71.2%` or `0.712`; `space` stands before the percent sign."""
        return f"{100 * value:.1f}{space}%" if self.is_share else f"{value:.3f}".replace("-", "−")

    def difference(self, value: float, sign: bool = True) -> str:
        """A difference, `+2.0 points` or `+0.020`, with a true minus."""
        plus = "+" if sign else ""
        text = f"{100 * value:{plus}.1f} points" if self.is_share else f"{value:{plus}.3f}"
        return text.replace("-", "−")

    def interval(self, low: float, high: float) -> str:
        """The ends of an interval of differences, `+1.2 to +3.4`."""
        return " to ".join(self.difference(end).removesuffix(" points") for end in (low, high))


ACCURACY = HeldOutMetric()


def recorded_grader(run: Path) -> GraderRecord | None:
    """The grader of a run's held-out answers: of its summary, before its end of `problems.json`; None in neither."""
    found = ((read_json_if_there(run / name) or {}).get("grader") for name in (SUMMARY, PROBLEMS))
    return next(filter(None, found), None)


def same_grader(one: GraderRecord | None, other: GraderRecord | None) -> bool:
    """Whether two graders give the same figures; their names may differ."""
    first, second = ({**each, "name": None} if each is not None else None for each in (one, other))
    return first == second


def grader_text(grader: GraderRecord | None) -> str:
    """`numeric with {"absolute_tolerance": 0.1}`: the name, and what sets it apart from others of that name."""
    if grader is None:
        return "nothing"
    functions = grader["functions"]
    parts = [f"{each['name']} {json.dumps(each['params'], ensure_ascii=False)}" for each in functions if each["params"]]
    parts += [f"{each['file']} ({each['sha256'][:8]})" for each in functions if "file" in each]
    if grader["threshold"] is None:
        parts.append("nothing right or wrong")
    elif grader["threshold"] != 1.0:
        parts.append(f"threshold {grader['threshold']:g}")
    return f"{grader['name']}{' with ' * bool(parts)}{', '.join(parts)}"


def is_right(score: float | None, threshold: float | None) -> bool | None:
    """Whether a score is that of a right answer; None where there is none, or nothing is right or wrong."""
    return None if score is None or threshold is None else reaches(score, threshold)


@dataclass(frozen=True)
class ProblemResult:
    """One sampled answer to one problem.

    `solution` is the gold answer, text or any JSON value, None where the problem has none. `completion` is the
    assistant's whole turn, prefilled text included; `completion_ids` were sampled. `score` is None where the grader
    gives none. `answer` is the final answer that the verifier reads; `answer_read` is False where it was not asked.
    `threshold` is the score from which it is right, None where nothing is right or wrong. `in_format` is by the run's
    format reward, None without one. `rewards` are the parts of a `score` that is a sum, by name. With tools
    `completion` is the last turn, `completion_ids` are those of tools too, and `messages` and `segments` as in
    `record.completions.SampledCompletion`.
    """

    problem: int
    sample: int
    prompt: str
    solution: Any
    completion: str
    score: float | None
    tokens: int
    thinking_tokens: int
    reasoning_tokens: int
    closed: bool
    finished: bool
    answer: str | None = None
    answer_read: bool = False
    completion_ids: list[int] = field(default_factory=list)
    threshold: float | None = 1.0
    in_format: bool | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    task: str = ""
    difficulty: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)

    @property
    def right(self) -> bool | None:
        """Whether it is right; None where it has no score, or nothing is right or wrong."""
        return is_right(self.score, self.threshold)

    @property
    def value(self) -> float | None:
        """1 where it is right, 0 where it is wrong; its score where nothing is right or wrong."""
        return self.score if self.right is None else float(self.right)


# A figure of an answer; None where the answer has none.
ValueOf = Callable[[ProblemResult], float | None]


def problem_means(results: Sequence[ProblemResult], value_of: ValueOf) -> dict[int, float]:
    """By its number the mean of each problem, over those of its answers that have the value."""
    values: dict[int, list[float]] = defaultdict(list)
    for result in results:
        value = value_of(result)
        if value is not None:
            values[result.problem].append(float(value))
    return {problem: sum(each) / len(each) for problem, each in values.items()}


def mean_over_problems(results: Sequence[ProblemResult], value_of: ValueOf) -> float | None:
    """The mean of the problems' means; None where no answer has the value."""
    means = problem_means(results, value_of).values()
    return sum(means) / len(means) if means else None


# --- of a probe ---

# Interventions on the ids of a thought, after which its answer is sampled again.
ARMS = {
    "own": "as sampled",
    "redrawn": "each drawn anew from the model's own p(copy | text so far): the harness, which should do no harm",
    "permuted": "those of each text dealt out anew over all thoughts: each keeps its rate, and loses its place",
    "transplanted": "those of another problem's thought, the nth of a text for the nth",
}


@dataclass(frozen=True)
class SampledThought:
    """A completion that a probe begins with; `answer`: what the grader reads as its final answer, None where none."""

    problem: int
    sample: int
    prompt_ids: list[int]
    completion_ids: list[int]
    answer: str | None
    segments: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeAnswer:
    """One answer after one version of a thought.

    `draw` is the version of the arm; answers with the same draw are sampled by the same random numbers. `gold_logp` is
    the log-probability of the gold answer, worded as the model's own answer; None if unknown. `donor_logp` and
    `permuted_donor_logp` are that of the gold answer to the problem of the `donor`, which gave the choices, after the
    transplanted and after the permuted thought. `copies_logp` is that of the choice of ids, given the text and the ids
    before. `exchanged` is the share of the places with a choice at which the id is another one.
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


def read_probe(run: Path) -> dict[str, Any] | None:
    """The `probe.json` of a run, with its `verdict` and `sentence`; None for a run that was not probed."""
    return read_json_if_there(run / PROBE_FOLDER / PROBE, {"verdict": str, "sentence": str})


def read_thought_reading(run: Path) -> dict[str, Any] | None:
    """The `thought_reading.json` of a run (docs/files.md); None for a run that did not measure it."""
    return read_json_if_there(run / THOUGHT_READING, {"completions": int, "rewards": list[dict[str, Any]]})


# --- on disk ---

Row = TypeVar("Row", ProblemResult, SampledThought, ProbeAnswer, PermutedThought)


def write_results(results: Sequence[Row], path: Path) -> None:
    """One JSON object a line; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(map(result_line, results)))


def read_lines(path: Path, kind: type[Row]) -> list[Row]:
    """Read what `write_results` wrote; UserError for a line that is cut short or holds something else."""
    lines = path.read_bytes().split(b"\n")  # text of a model may hold what else Python takes for the end of a line
    numbered = enumerate(lines, start=1)
    return [result_in(line, kind, path, number) for number, line in numbered if number < len(lines) or line]


def result_in(line: bytes, kind: type[Row], path: Path, number: int) -> Row:
    """The result in a line of a file; raises UserError, which names both, where it is none."""
    try:
        return kind(**json.loads(line.decode("utf-8", errors="surrogatepass")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}, line {number}: no result of an evaluation, or of a probe ({error})") from error


def result_line(result: Row) -> str:
    cells = asdict(result)
    for name in _OF_TOOLS & cells.keys():
        if not cells[name]:
            del cells[name]
    return json.dumps(cells, ensure_ascii=False, default=str) + "\n"
