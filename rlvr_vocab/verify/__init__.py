"""Distinguishes right answers from wrong ones; no model output can make it hang, crash or run code.

completion ──boxed_answer──▶ answer ──reader──────▶ a reading ─┐
gold answer ──────────reader.read_gold────────────▶ a reading ─┴─readings.same──▶ verdict
                                                        └ algebra, in a worker process, where formulas differ
"""

from rlvr_vocab.verify.boxed_answer import final_answer
from rlvr_vocab.verify.verifier import GoldReport, Verdict, check_golds, verify

__all__ = ["GoldReport", "Verdict", "check_golds", "final_answer", "verify"]
