"""Compares formulas; for worker processes only."""
