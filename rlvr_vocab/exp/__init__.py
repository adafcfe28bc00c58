"""The entry point and the shipped configurations (conf/)."""
