"""Where problems come from and what their columns mean."""

from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.data.arithmetic import ArithmeticTask
from rlvr_vocab.data.reasoning_gym.tasks import SPLITS, GymProblems
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_and_all

ARITHMETIC = "arithmetic"
AnswerFormat = Literal["bare", "hash", "boxed"]
DecimalMark = Literal["point", "comma"]


@dataclass(frozen=True)
class Columns:
    """Which column of a problem set holds what.

    Args:
        problem: Column with the problem, as text or as the messages of a chat.
        answer: Column with the answer, in the form that `ProblemSource.answer_format` names; None for a set without
            gold answers.
        reasoning: Column with a worked solution; handed on under the name `reasoning`.
    """

    problem: str
    answer: str | None
    reasoning: str | None = None

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.problem, self.answer, self.reasoning


@dataclass(frozen=True)
class ProblemSource:
    r"""One problem set, as a user names it.

    Args:
        name: A hub name or a folder (both read by `datasets.load_dataset`), a .csv, .tsv, .json, .jsonl or
            .parquet file, or what is made here: `arithmetic` or `reasoning_gym`.
        columns: What the columns mean.
        subset: Configuration of a hub set.
        split: Split of a hub set or folder, or of `reasoning_gym`, to train on. A file has no splits and ignores it.
        eval_split: Where held-out problems come from: another split, or a second file when `name` is a file.
        answer_format: `bare` (the cell is the answer), `hash` (the text after its last `####`) or `boxed`
            (what is inside its last `\boxed{...}`).
        decimal: What stands before the decimals of numbers in text: `point`, or `comma`, with dots between thousands.
        generator: What is made: `ArithmeticTask()` when None, for `arithmetic`; the tasks of `reasoning_gym`.

    Raises:
        UserError: If a field has a value that no problem set could have.
    """

    name: str
    columns: Columns
    subset: str | None = None
    split: str = "train"
    eval_split: str | None = None
    answer_format: AnswerFormat = "bare"
    decimal: DecimalMark = "point"
    generator: ArithmeticTask | GymProblems | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise UserError("dataset.name is empty: give a hub name, a file, or arithmetic")
        if isinstance(self.generator, GymProblems):
            self._check_splits()
        elif self.generator is not None and self.name != ARITHMETIC:
            raise UserError(
                f'dataset.generator is set but dataset.name is "{self.name}": only "{ARITHMETIC}" is generated'
            )
        if self.name == ARITHMETIC and self.eval_split is not None:
            raise UserError(
                f'dataset.eval_split is "{self.eval_split}", but "{ARITHMETIC}" has no splits:'
                " hold problems out with dataset.eval_fraction"
            )

    def _check_splits(self) -> None:
        for key, split in (("split", self.split), ("eval_split", self.eval_split)):
            if split is not None and split not in SPLITS:
                raise UserError(f"dataset.{key}={split}: no such split{nearest_and_all(split, SPLITS)}")
        if self.split == self.eval_split:
            raise UserError(f"dataset.eval_split={self.split}: the same problems as dataset.split")
