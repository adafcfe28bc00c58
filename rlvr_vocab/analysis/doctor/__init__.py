"""Names what is wrong with a run, from what it has logged."""
