"""Forecasts of a run: memory by phase, and time. Arithmetic alone: no torch, no weights."""
