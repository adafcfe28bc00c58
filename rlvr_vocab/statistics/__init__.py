"""Figures of samples with their uncertainty; numbers in, numbers out."""
