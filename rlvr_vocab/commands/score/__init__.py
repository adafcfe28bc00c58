"""`rlvr-vocab score`."""
