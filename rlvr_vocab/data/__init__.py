"""Problem sets: from files, the hub or a generator to {prompt, solution} rows. Needs no torch."""

from rlvr_vocab.data.arithmetic import ArithmeticTask, addition_problems, worked_sum
from rlvr_vocab.data.load import LoadReport, ProblemSets, Split, check_source, load_problem_sets
from rlvr_vocab.data.prompts import PromptStyle, build_messages
from rlvr_vocab.data.source import Columns, ProblemSource

__all__ = [
    "ArithmeticTask",
    "Columns",
    "LoadReport",
    "ProblemSets",
    "ProblemSource",
    "PromptStyle",
    "Split",
    "addition_problems",
    "build_messages",
    "check_source",
    "load_problem_sets",
    "worked_sum",
]
