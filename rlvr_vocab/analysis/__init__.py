"""Reading what runs have left: what is wrong with them, what became of the vocabulary, and what sets two apart."""
