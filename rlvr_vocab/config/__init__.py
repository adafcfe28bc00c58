"""The configuration: its schema, composing and overrides; no torch."""
