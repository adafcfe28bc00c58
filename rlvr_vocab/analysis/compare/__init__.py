"""Two arms of a comparison: is the difference between them more than chance."""

from rlvr_vocab.analysis.compare.comparison import (
    ArmResults,
    Comparison,
    RunResults,
    compare_arms,
    compare_with_baseline,
)

__all__ = ["ArmResults", "Comparison", "RunResults", "compare_arms", "compare_with_baseline"]
