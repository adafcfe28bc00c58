"""Problem sets: from files, the hub or a generator to {prompt, solution} rows. Needs no torch."""
