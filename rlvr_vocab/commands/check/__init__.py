"""`rlvr-vocab check`."""
