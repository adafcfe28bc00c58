"""What caller, template and workers send each other: settings, numbers between the first two, JSON to the workers."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

# An order to the template is FORK or the id of a worker to end; its reply is the id or the wait status.
NUMBER = struct.Struct("!i")
FORK = 0
MEMORY_LIMITED, MEMORY_UNLIMITED = b"L", b"U"  # the template's first word

LONGEST_ANSWER = 64 * 2**20
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class Settings:
    """What a template is told when it starts.

    Attributes:
        task: the function that workers call, as "module:function".
        preload: modules to import ("module") and functions to call ("module:function") before any worker is forked.
        deadline: seconds for an item.
        memory_limit: bytes of address space for a worker.
    """

    task: str
    preload: tuple[str, ...]
    deadline: float
    memory_limit: int

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Settings:
        return Settings(**json.loads(text))


def frame(message: list[Any]) -> bytes:
    """A message with its length in front. JSON in ASCII also carries null bytes and lone surrogates."""
    body = json.dumps(message).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def read_message(stream: BinaryIO) -> list[Any] | None:
    """The next message; None once the other side has closed."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = stream.read(*_LENGTH.unpack(head))
    return json.loads(body)


def whole_message(received: bytes | bytearray) -> Any | None:
    """The one message in `received`, or None while some of it is still to come.

    Raises:
        ValueError: what was received is not the beginning of one message and nothing else.
    """
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    surplus = len(received) - _LENGTH.size - length
    if surplus > 0 or length > LONGEST_ANSWER:
        raise ValueError(f"{len(received)} bytes that begin {bytes(received[:16])!r} are not one message")
    return json.loads(received[_LENGTH.size :].decode("ascii")) if surplus == 0 else None
