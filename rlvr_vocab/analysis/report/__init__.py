"""The HTML pages of runs, comparisons and probes: one file each, which opens without a network."""
