"""Problem sets: read from files, the hub or a generator into {prompt, solution} rows. Needs no torch."""
