"""The completions of a run: which of them, in which order, in the terminal or written out."""
