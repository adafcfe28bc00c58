"""Browser a run's completions: which of them, in which order, in the terminal or written out."""
