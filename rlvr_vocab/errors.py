"""How a command ends otherwise than well, where that is no defect of ours: with one clear line, and a code for it."""


class UserError(ValueError):
    """Bad input. The message is one clear line; commands print it alone and exit with code 2."""


class OutOfRoom(Exception):
    """The disk or the memory is full. The message is one clear line; commands print it alone and exit with code 74."""


class Interrupted(BaseException):
    """A run was told to stop before its end, and the same command goes on with it: exit code 75.

    Like `KeyboardInterrupt` no `Exception`: a library that goes on after any of these must not go on after this.
    """
