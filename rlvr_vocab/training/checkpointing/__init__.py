"""Checkpoints: `save_and_resume` says what goes into one, `write` in which order, `find` which ones are valid."""
