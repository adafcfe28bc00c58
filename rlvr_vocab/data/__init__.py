"""Problem sets: from files, the hub or a generator to {prompt, solution} rows. Needs no torch."""

from rlvr_vocab.data.arithmetic import ArithmeticTask, addition_problems, worked_sum
from rlvr_vocab.data.load import (
    DividedProblems,
    LoadReport,
    ProblemSets,
    check_source,
    lay_out,
    load_problem_sets,
    read_problems,
)
from rlvr_vocab.data.overlap import OtherSet, check_other_set, read_other_set
from rlvr_vocab.data.source import Columns, ProblemSource
from rlvr_vocab.data.split import Split
from rlvr_vocab.data.table import PromptStyle, build_messages

__all__ = [
    "ArithmeticTask",
    "Columns",
    "DividedProblems",
    "LoadReport",
    "OtherSet",
    "ProblemSets",
    "ProblemSource",
    "PromptStyle",
    "Split",
    "addition_problems",
    "build_messages",
    "check_other_set",
    "check_source",
    "lay_out",
    "load_problem_sets",
    "read_other_set",
    "read_problems",
    "worked_sum",
]
