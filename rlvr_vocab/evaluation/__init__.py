"""Sampling a checkpoint on a problem set, and what its answers are worth."""
