"""The trainer, the warm-up, and what a run leaves on disk."""
