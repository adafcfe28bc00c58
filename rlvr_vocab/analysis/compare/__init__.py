"""Two arms of a comparison: is the difference between them more than chance."""

from rlvr_vocab.analysis.compare.comparison import ArmResults, RunResults, compare_arms

__all__ = ["ArmResults", "RunResults", "compare_arms"]
