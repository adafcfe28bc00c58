"""Runs programs that a model wrote in processes of their own, which the kernel confines."""
