"""GRPO with verifiable rewards, and with an optional vocabulary for thinking."""

__version__ = "0.1.0"
