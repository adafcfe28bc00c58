"""Runs programs written by a model in separate processes that the kernel confines."""
