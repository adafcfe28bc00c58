"""The reasoning vocabulary: what it is, the region policy, and how models carry it."""
