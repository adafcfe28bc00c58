"""The settings of a problem set: its source, its columns, its division, and the prompt around each problem."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlvr_vocab.data.generators import SPLITS, ArithmeticTask, GymProblems
from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_and_all

# Begins the names of problems and rewards that the script of a run from Python holds.
FROM_PYTHON = "python:"
AnswerFormat = Literal["bare", "hash", "boxed", "letter", "text", "index_from_0", "index_from_1"]
DecimalMark = Literal["point", "comma"]
# What an answer to a question with choices may be, as `dataset.answer_format` names it.
READINGS = ("letter", "text", "index_from_0", "index_from_1")
# Of the files that are read, each also with `.gz` after it.
EXTENSIONS = (".csv", ".tsv", ".json", ".jsonl", ".parquet", ".txt")
FIELD = re.compile(r"\{([^{}]+)\}")


def names_file(name: str) -> bool:
    """Whether a name is a path by its extension or a prefix like `./`, whether or not the file exists."""
    return name.startswith((".", "/", "~")) or extension_of(Path(name)) in EXTENSIONS


def extension_of(path: Path) -> str:
    """The extension in lower case, `.gz` aside."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def fields_of(column: str) -> list[str]:
    """The columns that a problem is joined from, as in `{Body} {Question}`; none for the name of one column."""
    return FIELD.findall(column)


@dataclass(frozen=True)
class Columns:
    """Names of the columns, or paths in them (`question.stem`), that hold the parts of a problem."""

    problem: str  # may join columns: `{Body} {Question}`
    answer: str | None
    reasoning: str | None = None
    choices: str | tuple[str, ...] | None = None
    tests: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """Each named column with its key."""
        found: dict[str, str] = {}
        for key in ("problem", "answer", "reasoning", "choices", "tests"):
            value = getattr(self, key) or ()
            for name in fields_of(value) or [value] if isinstance(value, str) else value:
                found.setdefault(name, f"dataset.columns.{key}")
        return found


@dataclass(frozen=True)
class ProblemSource:
    """One problem set, by the name of a hub set, a folder or a file, or `arithmetic` or `reasoning_gym`.

    A file has no `subset` and no `split`; its `eval_split`, the source of held-out problems, is a second file. `header`
    names the columns of a table whose first line is a row; error messages name the column of problems by `problem_key`.
    """

    name: str
    columns: Columns
    subset: str | None = None
    split: str = "train"
    eval_split: str | None = None
    answer_format: AnswerFormat = "bare"
    decimal: DecimalMark = "point"
    generator: ArithmeticTask | GymProblems | None = None
    header: tuple[str, ...] | None = None
    problem_key: str = "dataset.columns.problem"

    def __post_init__(self) -> None:
        if self.answer_format in READINGS and self.columns.choices is None:
            key = f"dataset.answer_format={self.answer_format}"
            raise UserError(f"{key} is for answers to choices: add dataset.columns.choices=…")
        if isinstance(self.generator, GymProblems):
            for key, split in (("split", self.split), ("eval_split", self.eval_split)):
                if split is not None and split not in SPLITS:
                    raise UserError(f"dataset.{key}={split}: no such split{nearest_and_all(split, SPLITS)}")


@dataclass(frozen=True)
class Split:
    """How problems are divided; a maximum of None is no limit, and training uses no held-out problem."""

    eval_fraction: float = 0.0  # of the different problems; at least one if it is above 0
    max_train_samples: int | None = None
    max_eval_samples: int | None = None
    seed: int = 42  # of the shuffle and of generated problems


@dataclass(frozen=True)
class PromptStyle:
    """The system message (None or empty: none) and the solved turns before every problem, as (problem, answer)."""

    system_prompt: str | None
    examples: tuple[tuple[str, str], ...] = ()
