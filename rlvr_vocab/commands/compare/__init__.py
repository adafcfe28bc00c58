"""`rlvr-vocab compare`."""
