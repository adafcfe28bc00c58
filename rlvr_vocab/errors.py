"""How a command ends otherwise than well, where that is no defect of ours: with one clear line, and a code for it."""


class UserError(ValueError):
    """Bad input. The message is one clear line; commands print it alone and exit with code 2.

    Attributes:
        about: which of a function's arguments is meant, for a caller under whose own names the user gave it.
    """

    def __init__(self, message: str, about: str = "") -> None:
        super().__init__(message)
        self.about = about


class OutOfRoom(Exception):
    """The disk or the memory is full. The message is one clear line; commands print it alone and exit with code 74."""


# What torch says, on a GPU and without, and what CUDA and its libraries say where torch's own allocator is not asked.
_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch says that the memory, a GPU's or the machine's, is full."""
    return any(words in str(error) for words in _OUT_OF_MEMORY)


class Interrupted(BaseException):
    """A run was told to stop before its end, and the same command goes on with it: exit code 75.

    Like `KeyboardInterrupt` no `Exception`: a library that goes on after any of these must not go on after this.
    """
