"""The life of a run on disk."""
