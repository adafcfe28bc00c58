"""Where problems come from and what their columns mean."""

from dataclasses import dataclass
from typing import Literal

from rlvr_vocab.data.arithmetic import ArithmeticTask
from rlvr_vocab.errors import UserError

GENERATED = "arithmetic"
AnswerFormat = Literal["bare", "hash", "boxed"]


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


@dataclass(frozen=True)
class ProblemSource:
    r"""One problem set, as a user names it.

    Args:
        name: A hub name or a folder (both read by `datasets.load_dataset`), a .csv, .tsv, .json, .jsonl or
            .parquet file, or `arithmetic` for the generated task.
        columns: What the columns mean.
        subset: Configuration of a hub set.
        split: Split of a hub set or folder to train on. A file has no splits and ignores it.
        eval_split: Where held-out problems come from: another split, or a second file when `name` is a file.
        answer_format: `bare` (the cell is the answer), `hash` (the text after its last `####`) or `boxed`
            (what is inside its last `\boxed{...}`).
        generator: The generated task; `ArithmeticTask()` when None. Only for `arithmetic`.

    Raises:
        UserError: If a field has a value that no problem set could have.
    """

    name: str
    columns: Columns
    subset: str | None = None
    split: str = "train"
    eval_split: str | None = None
    answer_format: AnswerFormat = "bare"
    generator: ArithmeticTask | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise UserError("dataset.name is empty: give a hub name, a file, or arithmetic")
        if self.generator is not None and not self.is_generated:
            raise UserError(
                f'dataset.generator is set but dataset.name is "{self.name}": only "{GENERATED}" is generated'
            )
        if self.is_generated and self.eval_split is not None:
            raise UserError(
                f'dataset.eval_split is "{self.eval_split}", but "{GENERATED}" has no splits:'
                " hold problems out with dataset.eval_fraction"
            )

    @property
    def is_generated(self) -> bool:
        """Whether the problems are made here rather than read."""
        return self.name == GENERATED
