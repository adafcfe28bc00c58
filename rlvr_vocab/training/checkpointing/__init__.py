"""Writing, finding and going on from checkpoints."""
