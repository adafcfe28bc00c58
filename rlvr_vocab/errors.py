"""The one error that a user is meant to read: what was given, where, and what would be right."""


class UserError(ValueError):
    """Bad input. The message is one clear line; commands print it alone and exit with code 2."""
