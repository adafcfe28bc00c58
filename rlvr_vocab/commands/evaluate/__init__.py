"""`rlvr-vocab evaluate`."""
