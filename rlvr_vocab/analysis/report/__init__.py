"""Pages that tell a run, or several against each other: one file each, which opens without a network."""
