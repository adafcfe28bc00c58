"""The region policy inside vLLM."""
