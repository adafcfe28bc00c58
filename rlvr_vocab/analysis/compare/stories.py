"""What is known of the runs of a comparison besides their scores: what they logged, and where and how they ran."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_vocab.analysis.compare.arms import ArmResults, RunResults
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.metrics import Row
from rlvr_vocab.secret_words import without_secrets
from rlvr_vocab.visible_text import visible_character


@dataclass(frozen=True)
class RunStory:
    """One run of an arm.

    Attributes:
        answers: the lines of its results: `prompt`, `solution`, `score`, and what else was written down.
        rows, evaluations: of its metrics.jsonl.
        summary, environment: None where there is no such file.
        completions: what it has kept of them.
        asked: how the answers were sampled, as `rlvr-vocab evaluate` wrote it down; None where it did not.
        from_evaluate: whether the answers are those of that command.
        selects_best: whether it kept its best checkpoint instead of the last.
        damage: a sentence on each file of it that is lost or changed.
    """

    folder: str
    seed: Hashable
    answers: Sequence[Row]
    rows: Sequence[Row] = ()
    evaluations: Sequence[Row] = ()
    summary: Row | None = None
    environment: Row | None = None
    completions: CompletionFiles | None = None
    asked: Row | None = None
    from_evaluate: bool = False
    selects_best: bool = False
    damage: Sequence[str] = ()

    @property
    def results(self) -> RunResults:
        """Right or wrong for each answer; those whose gold answer nobody could read are left out."""
        graded = [answer for answer in self.answers if answer["score"] is not None]
        return RunResults(self.seed, [problem_of(each) for each in graded], [each["score"] == 1.0 for each in graded])

    @property
    def steps(self) -> int | None:
        """Optimisation steps that it took."""
        if self.summary is not None and self.summary.get("steps") is not None:
            return int(self.summary["steps"])
        return int(self.rows[-1]["step"]) if self.rows else None

    @property
    def logged_steps(self) -> list[int]:
        """Those of which it kept completions."""
        return [] if self.completions is None else self.completions.steps

    def prompts_at(self, step: int) -> list[str]:
        """In their order; raises UserError where the file of that step cannot be read."""
        assert self.completions is not None
        table = self.completions.table(step, ["prompt"])
        return [prompt for column in table.columns for prompt in column.to_pylist()]

    def last(self, metric: str) -> float | None:
        """The last logged value."""
        return next((row[metric] for row in reversed(self.rows) if row.get(metric) is not None), None)


@dataclass(frozen=True)
class ArmStory:
    """The runs of one arm; `value` is that of the key under test."""

    name: str
    value: Any
    runs: tuple[RunStory, ...]

    @property
    def results(self) -> ArmResults:
        return ArmResults(self.name, [run.results for run in self.runs])


@dataclass(frozen=True)
class KeyDifference:
    """A configuration key in which runs differ; `values` are those of each run, in the order of the arms."""

    key: str
    values: tuple[str, ...]


def problem_of(answer: Row) -> tuple[str, str]:
    """What makes two answers answers to the same problem: its words and its gold answer, not its place in a file."""
    return str(answer["prompt"]), str(answer["solution"])


def one_line(text: str) -> str:
    """What a run has written down, as it may be shown: no secrets, what a terminal would hide or obey made visible."""
    return "".join(map(visible_character, without_secrets(text)))


def pairs_of(one: ArmStory, two: ArmStory) -> Iterator[tuple[RunStory, RunStory]]:
    """Runs of two arms that have the same seed."""
    by_seed = {run.seed: run for run in two.runs}
    yield from ((run, by_seed[run.seed]) for run in one.runs if run.seed in by_seed)
