"""The runs of a comparison by arm: their answers and records, and what was tried beside them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import ArmResults, Comparison, RunResults, adjust_verdicts, compare_arms
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import Row, RunRecord
from rlvr_vocab.record.results import GraderRecord, HeldOutMetric, ProblemResult, grader_text, same_grader


@dataclass(frozen=True)
class ComparedRun:
    """One run of an arm; environment, problems, probe: the JSON files of these names; None without the file.

    answers: to its held-out problems, graded by `grader`.
    sampling_settings: of the answers, as `rlvr-vocab evaluate` recorded them; None for the run's own answers.
    selects_best: whether it kept its best checkpoint instead of the last.
    commands: by a name, what would measure a thing of the run; typed: those that made the run and its answers.
    """

    record: RunRecord
    seed: Hashable
    answers: Sequence[ProblemResult]
    environment: Row | None
    problems: Row | None
    probe: Row | None
    sampling_settings: Row | None
    selects_best: bool
    grader: GraderRecord | None
    has_copies: bool
    commands: Mapping[str, str]
    typed: tuple[str, ...]

    @property
    def folder(self) -> str:
        return str(self.record.folder)

    @property
    def results(self) -> RunResults:
        """The value of each answer; those without a score are left out."""
        known = [(problem_of(answer), answer.value) for answer in self.answers if answer.value is not None]
        return RunResults(self.seed, [problem for problem, _ in known], [value for _, value in known])

    @property
    def grpo_seconds(self) -> float | None:
        """Seconds of training alone: a warm-up that was cached takes none."""
        return (self.record.summary or {}).get("grpo_seconds")

    @property
    def tokens(self) -> float | None:
        """Sampled tokens and prompts; each stage counts its own."""
        stages = {row.get("stage"): row["num_tokens"] for row in self.record.rows if row.get("num_tokens")}
        return sum(stages.values()) if stages else None

    @property
    def tokens_trained(self) -> float | None:
        """Without the tokens that dynamic sampling threw away, of which a row has the mean over its steps."""
        rows = pairwise([{"step": 0}, *self.record.rows])
        thrown_away = ((row["step"] - last["step"]) * row.get("dynamic/tokens_thrown_away", 0.0) for last, row in rows)
        return None if self.tokens is None else self.tokens - sum(thrown_away)


@dataclass(frozen=True)
class TriedRun:
    """A run on the problems and the model of compared ones; `value` is its metric after training.

    arm: the name of the arm that has its configuration, but for learning rate and seed; None without one.
    """

    folder: str
    arm: str | None
    learning_rate: float
    is_finished: bool
    value: float | None


@dataclass(frozen=True)
class ComparedArm:
    """The runs of one arm; `value` is that of the key under test."""

    name: str
    value: str
    runs: tuple[ComparedRun, ...]

    @property
    def grpo_seconds(self) -> float | None:
        """The mean over its runs; None where one is not finished."""
        known = [run.grpo_seconds for run in self.runs if run.grpo_seconds is not None]
        return mean(known) if len(known) == len(self.runs) else None


@dataclass(frozen=True)
class ComparisonResult:
    """The arms, the baseline first, and how they differ; `measured` describes the results that were compared.

    key: the configuration key under test; `arms` where arms that have names differ in several, or in none.
    differences: the other keys in which the runs differ, with the value of each run in the order of the arms.
    tried: the runs in `looked_in` that are not compared; command: what made the comparison, typed in `directory`.
    grader_errors: as `runs.rewards.gold_errors` counts them, or the reason why they are not measured.
    """

    key: str
    measured: str
    arms: tuple[ComparedArm, ...]
    comparisons: tuple[Comparison, ...]
    differences: Mapping[str, tuple[str, ...]]
    tried: tuple[TriedRun, ...]
    looked_in: str
    grader_errors: Row | str
    command: str
    directory: str

    @property
    def metric(self) -> HeldOutMetric:
        return self.comparisons[0].metric

    @property
    def runs(self) -> list[ComparedRun]:
        return [run for arm in self.arms for run in arm.runs]

    def as_json(self) -> dict[str, Any]:
        """The content of comparison.json."""
        arms = [{"name": arm.name, "value": arm.value, "runs": [run.folder for run in arm.runs]} for arm in self.arms]
        comparisons = [
            asdict(found) | {"verdict": found.verdict, "sentence": found.sentence} for found in self.comparisons
        ]
        given = {name: getattr(self, name) for name in ("key", "measured", "differences", "command", "directory")}
        return {**given, "arms": arms, "comparisons": comparisons}


def problem_of(answer: ProblemResult) -> tuple[str, str | None]:
    """Identity of the problem of an answer: its text and gold answer, not its place in a file."""
    return answer.prompt, cell_text(answer.solution)


def compare_all(
    arms: Sequence[ComparedArm], confidence: float, power: float, paired: bool | None
) -> tuple[Comparison, ...]:
    """Compare each arm with the first; UserError where they have nothing in common, or were graded differently."""
    first, *others = (run for arm in arms for run in arm.runs)
    for run in others:
        if not same_grader(first.grader, run.grader):
            raise UserError(
                f"runs: the answers of {first.folder} were graded by {grader_text(first.grader)}, those of {run.folder}"
                f" by {grader_text(run.grader)}, so that their figures cannot be compared; grade both alike with "
                "rlvr-vocab evaluate checkpoint=… grader=…, and give evaluation=<name>"
            )
    baseline, *rest = (ArmResults(arm.name, [run.results for run in arm.runs]) for arm in arms)
    settings = confidence, power, paired, HeldOutMetric.of(first.grader), len(arms) - 1
    return adjust_verdicts([compare_arms(baseline, other, *settings) for other in rest])
