"""The runs of a comparison by arm: their answers, and warnings where they differ besides the key under test."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from statistics import mean
from typing import Any

from rlvr_vocab.analysis.compare.comparison import ArmResults, Comparison, RunResults, adjust_verdicts, compare_arms
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import Row, RunRecord
from rlvr_vocab.record.results import GraderRecord, HeldOutMetric, ProblemResult, grader_text, same_grader
from rlvr_vocab.secrets import without_secrets
from rlvr_vocab.text import listed, pluralize, short_text, visible_text

# Below it, lengths of completions alone make the difference between runs of one configuration.
_SAME_BUDGET = 0.05
# Settings of `rlvr-vocab evaluate` that belong to the checkpoint, the problems or the grading.
_NO_SAMPLING = ("grader", "format", "weights", "base_weights", "files", "checkpoint", "problems", "problems_sha256")


@dataclass(frozen=True)
class ComparedRun:
    """One run of an arm; environment, problems: the JSON files of these names; None without the file.

    answers: to its held-out problems, graded by `grader`.
    sampling_settings: of the answers, as `rlvr-vocab evaluate` recorded them; None for the run's own answers.
    selects_best: whether it kept its best checkpoint instead of the last.
    """

    record: RunRecord
    seed: Hashable
    answers: Sequence[ProblemResult]
    environment: Row | None
    problems: Row | None
    sampling_settings: Row | None
    selects_best: bool
    grader: GraderRecord | None

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
    """

    key: str
    measured: str
    arms: tuple[ComparedArm, ...]
    comparisons: tuple[Comparison, ...]
    differences: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...]

    @property
    def metric(self) -> HeldOutMetric:
        return self.comparisons[0].metric

    def as_json(self) -> dict[str, Any]:
        """The content of comparison.json."""
        arms = [{"name": arm.name, "value": arm.value, "runs": [run.folder for run in arm.runs]} for arm in self.arms]
        comparisons = [
            asdict(found) | {"verdict": found.verdict, "sentence": found.sentence} for found in self.comparisons
        ]
        given = {name: getattr(self, name) for name in ("key", "measured", "differences", "warnings")}
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


# --- warnings ---


def comparison_warnings(
    arms: Sequence[ComparedArm], differences: Mapping[str, tuple[str, ...]], comparisons: Sequence[Comparison]
) -> tuple[str, ...]:
    """A sentence on each thing in which the arms differ besides the key under test."""
    runs = [run for arm in arms for run in arm.runs]
    found = chain(
        (
            f"The configurations differ in {key} ({' and '.join(dict.fromkeys(map(short_text, values)))})."
            for key, values in differences.items()
        ),
        _unfinished(runs),
        _seeds(arms),
        _unequal(arms, "tokens trained on", lambda run: run.tokens, _SAME_BUDGET),
        _unequal(arms, "steps", lambda run: run.record.steps, 0.0),
        (
            f"The answers were sampled with different {name} ({values})."
            for name, values in _differing([run.sampling_settings for run in runs])
            if name not in _NO_SAMPLING
        ),
        chain.from_iterable(_problems(arms[0], arm) for arm in arms[1:]),
        _left_out(runs, comparisons),
        _environments(runs),
    )
    return tuple(dict.fromkeys(visible_text(without_secrets(line)) for line in found))


def _unfinished(runs: Sequence[ComparedRun]) -> Iterator[str]:
    for run in runs:
        if not run.record.is_finished:
            yield f"{run.folder} is not finished."
        if run.selects_best:
            yield f"{run.folder} kept its best checkpoint, which favours the arm that was measured more often."


def _seeds(arms: Sequence[ComparedArm]) -> Iterator[str]:
    seeds = {arm.name: {run.seed for run in arm.runs} for arm in arms}
    for name, own in seeds.items():
        missing = set().union(*seeds.values()) - own
        if missing:
            yield f"{name} has no run with seed {listed(sorted(missing, key=str))}, which another arm has."
    if fewest := [name for name, own in seeds.items() if len(own) == 2]:
        yield (
            f"Fewer than three seeds ({listed(fewest)}) hardly show the variance over seeds: the interval takes it as "
            "they show it; the smallest effect allows for other pairs of seeds, and can be far larger."
        )


def _unequal(
    arms: Sequence[ComparedArm], name: str, figure: Callable[[ComparedRun], float | None], same: float
) -> Iterator[str]:
    known = {arm.name: [value for run in arm.runs if (value := figure(run)) is not None] for arm in arms}
    means = {arm: mean(values) for arm, values in known.items() if values}
    if len(means) > 1 and max(means.values()) > (1 + same) * min(means.values()):
        shown = ", ".join(f"{arm}: {value:,.0f}" for arm, value in means.items())
        yield f"The arms differ in {name} ({shown} on average): one had more to learn from."


def _differing(records: Sequence[Row | None]) -> Iterator[tuple[str, str]]:
    """The keys in which records differ, each with its values; without those of runs that have none."""
    known = [record for record in records if record is not None]
    for name in dict.fromkeys(name for each in known for name in each):
        values = dict.fromkeys(str(each.get(name)) for each in known)
        if len(values) > 1:
            yield name, listed(values)


def _problems(baseline: ComparedArm, arm: ComparedArm) -> Iterator[str]:
    """Other held-out or training problems of two runs with one seed; `problems.json` has fingerprints of the latter."""
    by_seed = {run.seed: run for run in arm.runs}
    for one, two in ((run, by_seed[run.seed]) for run in baseline.runs if run.seed in by_seed):
        runs = f"{one.folder} and {two.folder} (seed {one.seed})"
        held_out = [{problem_of(answer) for answer in run.answers} for run in (one, two)]
        if differing := len(held_out[0] ^ held_out[1]):
            only = pluralize(differing, "is", "are")
            yield f"{runs} were not measured on the same problems: {only} only in one of them, and left out."
        trained = [[each["sha256"] for each in run.problems["training"]] for run in (one, two) if run.problems]
        if len(trained) == 2 and trained[0] != trained[1]:
            yield f"{runs} were trained on other problems, or in another order."


def _left_out(runs: Sequence[ComparedRun], comparisons: Sequence[Comparison]) -> Iterator[str]:
    ungraded = sum(answer.score is None for run in runs for answer in run.answers)
    if ungraded:
        yield f"{pluralize(ungraded, 'answer')} without a grade, since the gold answer cannot be read: not counted."
    for run in runs:
        rows, problems = len({answer.problem for answer in run.answers}), len({*map(problem_of, run.answers)})
        if problems < rows:
            yield f"The {rows:,} held-out rows hold {pluralize(problems, 'different problem')}: each counts once."
    for found in comparisons:
        if not found.paired and found.left_out:
            yield f"{pluralize(found.left_out, 'problem')} not answered by all runs: not counted."


def _environments(runs: Sequence[ComparedRun]) -> Iterator[str]:
    known = [run.environment for run in runs if run.environment is not None]
    versions = [{"the code": str(each.get("commit"))[:10], **each.get("versions", {})} for each in known]
    for name, values in _differing(versions):
        yield f"The runs used different versions of {name} ({values})."
