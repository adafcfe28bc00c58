"""Completions from a file or a run as rows for reward functions, and what each function gave for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.values import read
from rlvr_vocab.data.answers import UnusableRow, cell_answer, is_nan, plain_text, unread_marker
from rlvr_vocab.data.files import read_rows
from rlvr_vocab.data.rows import column_names
from rlvr_vocab.data.source import TRL_NAMES
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import OF_EACH_TOKEN
from rlvr_vocab.record.files import is_step_file, run_folder_of, step_files
from rlvr_vocab.rewards.build import Reward, RewardContext
from rlvr_vocab.rewards.dry_run import stand_in_trainer
from rlvr_vocab.rewards.guard import Mistake
from rlvr_vocab.rewards.reward import Score
from rlvr_vocab.text import nearest_word, short_text
from rlvr_vocab.verify.verifier import Verdict
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

OnProgress = Callable[[int, int], None]
# Scored together, but never fewer than all completions of one prompt: some rewards compare those.
_BATCH = 64
_NEARLY = 1e-6


@dataclass(frozen=True)
class ScoredRows:
    """Completions and the columns beside them.

    Attributes:
        places: where each row is from: {"row": 3}, or {"step": 10, "row": 3}.
        completions: an assistant's turn each, as messages.
        prompts: messages; None where they are not known.
        columns: what else is handed to reward functions, a value per row.
    """

    places: Sequence[Mapping[str, int | str]]
    completions: Sequence[Any]
    prompts: Sequence[Any] | None
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.completions)

    def arguments(self, start: int, end: int) -> dict[str, Any]:
        """What a reward function is called with for some of the rows."""
        columns: dict[str, Any] = {name: values[start:end] for name, values in self.columns.items()}
        columns["completions"] = list(self.completions[start:end])
        if self.prompts is not None:
            columns["prompts"] = list(self.prompts[start:end])
        return {**columns, **stand_in_trainer()}

    def batches(self) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of what is scored together; completions of one prompt stand side by side."""
        start = 0
        while start < len(self):
            end = min(start + _BATCH, len(self))
            while self.prompts is not None and end < len(self) and self.prompts[end] == self.prompts[end - 1]:
                end += 1
            yield start, end
            start = end


@dataclass(frozen=True)
class RewardScores:
    """What one reward gave: a score per row, a verdict per row where it verifies answers, and the time it took."""

    reward: Reward
    scores: tuple[Score, ...]
    verdicts: tuple[Verdict, ...] | None
    seconds: float

    @property
    def values(self) -> list[float]:
        """The scores that there are."""
        return [score.value for score in self.scores if score.value is not None]

    @property
    def failed(self) -> list[int]:
        """The rows on which the function raised or returned no score."""
        return [row for row, score in enumerate(self.scores) if isinstance(score, Mistake)]

    def is_full(self, row: int) -> bool:
        """Whether a row leaves nothing to wish for."""
        score = self.scores[row].value
        return score is not None and score >= self.reward.full_mark - _NEARLY


def score_rows(rewards: Sequence[Reward], rows: ScoredRows, on_progress: OnProgress) -> list[RewardScores]:
    """Every reward of every row.

    Args:
        on_progress: called with the number of rows that all rewards have scored, and of all rows.

    Raises:
        UserError: a function of the library says that it is used wrongly.
    """
    scores: list[list[Score]] = [[] for _ in rewards]
    verdicts: list[list[Verdict]] = [[] for _ in rewards]
    seconds = [0.0] * len(rewards)
    for start, end in rows.batches():
        arguments = rows.arguments(start, end)
        for index, reward in enumerate(rewards):
            started = time.perf_counter()
            scores[index] += reward.explain(**arguments)
            seconds[index] += time.perf_counter() - started
            verdicts[index] += reward.verdicts(**arguments) or []  # remembered, not judged again
        on_progress(end, len(rows))
    return [
        RewardScores(reward, tuple(given), tuple(judged) or None, spent)
        for reward, given, judged, spent in zip(rewards, scores, verdicts, seconds, strict=True)
    ]


def total_of(scores: Sequence[RewardScores], row: int) -> float | None:
    """The weighted sum over the rewards that score a row, as in training; None where none does."""
    given = [(each.reward.weight, each.scores[row].value) for each in scores]
    parts = [weight * score for weight, score in given if score is not None]
    return sum(parts) if parts else None


# Columns of a user's that are called like what a trainer passes to every function.
_TAKEN = frozenset(TRL_NAMES) - {"completion_ids"}
_OF_A_TURN = ("assistant", "tool", None)


@dataclass(frozen=True)
class CompletionSource:
    """A file or folder and what its columns mean.

    Attributes:
        path: a CSV, TSV, JSON, JSONL or Parquet file, or the folder of all steps of a run.
        completion: the column of the completions.
        prompt: the column of the prompts; None for `prompt`, where there is one.
        solution: the column of the gold answers; None for `solution`, else `answer`, where there is one.
        answer_format: where in that column the gold answer stands: `bare`, `hash` or `boxed`.
    """

    path: Path
    completion: str = "completion"
    prompt: str | None = None
    solution: str | None = None
    answer_format: str = "bare"


class NumberedRow(NamedTuple):
    """A row as it was read: its file, its number there, from 1, and its cells."""

    file: Path
    number: int
    cells: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file.absolute()}: row {self.number}"


def read_completions(source: CompletionSource, most: int | None) -> tuple[ScoredRows, list[str]]:
    """The rows of a file, or of all steps of a run, and what is to be said about them.

    Args:
        most: no more than the first so many; None for all.

    Raises:
        UserError: it cannot be read, has no rows, lacks a column, or a row holds no assistant's turn.
    """
    rows: list[NumberedRow] = []
    for file in step_files(source.path) if source.path.is_dir() else [source.path]:
        rows += _numbered_rows(
            file, _NOT_HANDED_ON if is_step_file(file) else (), None if most is None else most - len(rows)
        )
        if len(rows) == most:
            break
    if not rows:
        raise UserError(f"{source.path.absolute()} has no rows; it must hold at least one completion")
    return _scored_rows(rows, source)


def _numbered_rows(file: Path, left_out: Sequence[str], most: int | None) -> Iterator[NumberedRow]:
    for number, row in enumerate(read_rows(file)[:most], start=1):
        if not isinstance(row, dict):
            raise UserError(f"{file.absolute()}: row {number} is {short_text(row, 30)}, not an object")
        yield NumberedRow(file, number, {name: value for name, value in row.items() if name not in left_out})


def _scored_rows(rows: Sequence[NumberedRow], source: CompletionSource) -> tuple[ScoredRows, list[str]]:
    """Rows under the names that reward functions know, and notes on what is missing in them."""
    names = column_names(row.cells for row in rows)
    _require_named_columns(source, names)
    columns = {name: [row.cells.get(name) for row in rows] for name in names}
    cells = columns.pop(source.completion)
    notes = [f"rows without a completion, scored as empty ones: {cells.count(None):,}"] if None in cells else []
    completions = [_turn(cell, str(row)) for cell, row in zip(cells, rows, strict=True)]
    prompts = None
    if source.prompt is not None or "prompt" in columns:
        prompts = [_prompt(cell) for cell in columns.pop(source.prompt or "prompt")]
    solution = source.solution or next((name for name in ("solution", "answer") if name in columns), None)
    if solution is not None:
        golds = _gold_answers(columns[solution], source.answer_format)
        own = {} if solution == "answer" or "answer" not in columns else {"raw_answer": columns["answer"]}
        columns |= {"solution": golds, "answer": golds, **own}  # as in training
        notes += _gold_notes(golds, solution, source.answer_format)
    handed_on = {f"raw_{name}" if name in _TAKEN else name: values for name, values in columns.items()}
    return ScoredRows([_place(row) for row in rows], completions, prompts, handed_on), notes


def _require_named_columns(source: CompletionSource, names: Sequence[str]) -> None:
    """Raises UserError where a column is not there, with those that are and the one that may be meant."""
    wanted = {"completion": source.completion, "prompt": source.prompt, "solution": source.solution}
    for meaning, column in wanted.items():
        if column is None or column in names:
            continue
        nearest = nearest_word(column, names) or "…"
        listed = ", ".join(map(short_text, names))
        raise UserError(
            f"{source.path.absolute()} has no column {column}; its columns are {listed}; "
            f"name the one of its {meaning}s, as in {meaning}_column={nearest}"
        )


def _place(row: NumberedRow) -> dict[str, int]:
    """Where a row is from: also the step, in a file of a run."""
    return ({"step": row.cells["step"]} if is_step_file(row.file) else {}) | {"row": row.number}


def _turn(value: Any, where: str) -> list[dict[str, Any]]:
    """A completion as the messages that training hands over.

    Raises:
        UserError: it is no text and no list of an assistant's messages.
    """
    if isinstance(value, list):
        for message in value:
            _require_message(message, where)
        return value
    text = "" if value is None else plain_text(value)
    if text is None:
        raise UserError(f"{where}: its completion is {short_text(value, 40)}, neither text nor messages")
    return [{"role": "assistant", "content": text}]


def _require_message(message: Any, where: str) -> None:
    content = message.get("content") if isinstance(message, dict) else message
    parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    if not isinstance(message, dict) or not (content is None or isinstance(content, str) or parts):
        raise UserError(f"{where}: its completion holds {short_text(message, 40)}, which is no message")
    if message.get("role") not in _OF_A_TURN:
        role = short_text(message["role"], 20)
        raise UserError(f"{where}: its completion holds a message of the {role}; it must be the assistant's turn alone")


def _prompt(value: Any) -> Any:
    """A prompt as messages; None where there is none, and what is no text as it is."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return None if is_nan(value) else value


def _gold_notes(golds: Sequence[Any], column: str, answer_format: str) -> Iterator[str]:
    """What is missing in the gold answers, and what they seem to be instead."""
    there = [gold for gold in golds if gold is not None]
    if len(there) < len(golds):
        yield f"rows without a gold answer in the column {column}: {len(golds) - len(there):,}"
    likelier = unread_marker(there) if answer_format == "bare" else None
    if likelier is not None:
        yield f"the gold answers in the column {column} seem to be worked solutions: try solution_format={likelier}"


def _gold_answers(cells: Iterable[Any], answer_format: str) -> list[Any]:
    """The gold answer in each cell; None where there is none."""
    golds: list[Any] = []
    for cell in cells:
        try:
            golds.append(cell_answer(cell, answer_format))
        except UnusableRow:
            golds.append(None)
    return golds


# What a step's file holds for whoever studies the run; training hands none of it to reward functions.
_NOT_HANDED_ON = ("prompt_ids", *OF_EACH_TOKEN, "advantage", "reward")


def recorded_context(path: Path) -> RewardContext | None:
    """What the run knew whose completions, or evaluation results, lie at the path; None where it is no run's."""
    run, model = _run_and_model(path.absolute())
    if run is None or model is None:
        return None
    config = read_recorded(run, resolve=True)
    layout = VocabLayout.load(model) if (model / LAYOUT_FILE).is_file() else None
    return RewardContext(
        think_tags=read(tuple[str, str], config["model"]["think_tags"], "model.think_tags"),
        standard_size=None if layout is None else layout.standard_size,
        think_open_id=None if layout is None else layout.think_open_id,
        think_close_id=None if layout is None else layout.think_close_id,
        max_completion_length=config["training"].get("max_completion_length"),
    )


def _run_and_model(path: Path) -> tuple[Path | None, Path | None]:
    """The folder of the run, and of the model that sampled."""
    for folder in (path, *path.parents):
        if folder.name in ("completions", "evaluation") and (folder.parent / "config.yaml").is_file():
            return folder.parent, folder.parent / "initial_model"
        if folder.name == "evaluation":
            return run_folder_of(folder.parent), folder.parent
    return None, None
