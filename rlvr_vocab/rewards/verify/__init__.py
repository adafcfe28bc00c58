"""Tells right answers from wrong ones, without believing, hanging on or crashing from what a model wrote.

completion ──extraction──▶ answer ──reader──▶ reading ─┐
gold answer ───────────────────────▶ reading ──────────┴─equality──▶ verdict
                                                          └ algebra, in a worker process, where formulas differ
"""

from rlvr_vocab.rewards.verify.extraction import final_answer
from rlvr_vocab.rewards.verify.golds import GoldFindings, check_golds
from rlvr_vocab.rewards.verify.verdict import Verdict
from rlvr_vocab.rewards.verify.verifier import verify

__all__ = ["GoldFindings", "Verdict", "check_golds", "final_answer", "verify"]
