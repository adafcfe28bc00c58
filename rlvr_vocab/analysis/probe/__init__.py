"""Findings of a probe: whether copies carry meaning, and the page that shows it."""
