"""What a run will take before it is run: memory by phase, and time. Arithmetic: no torch, no weights."""
