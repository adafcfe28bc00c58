"""Two arms of a comparison: is the difference between them more than luck."""

from rlvr_vocab.analysis.compare.comparison import Comparison, compare_arms, compare_with_baseline
from rlvr_vocab.analysis.compare.runs import ArmResults, RunResults

__all__ = ["ArmResults", "Comparison", "RunResults", "compare_arms", "compare_with_baseline"]
