"""Adapters over a base with reasoning tokens: training them, and merging them back."""
