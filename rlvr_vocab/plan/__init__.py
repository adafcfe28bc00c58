"""What a run will take before it is run: memory by phase, time, disk and cost. Arithmetic: no torch, no weights."""
