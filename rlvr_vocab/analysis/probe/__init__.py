"""What the answers of a probe say: whether copies carry meaning, and a page of it."""
