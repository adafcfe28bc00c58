"""A problem that is given as the messages of a chat rather than as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_vocab.data.answers import UnusableRow

Messages = list[dict[str, str]]

ROLES = ("system", "user", "assistant")
NO_MESSAGE = "a message is no object with role and content"
UNKNOWN_ROLE = f"a message's role is none of {', '.join(ROLES)}"
LATE_SYSTEM = "a system message stands behind another message"
NO_TEXT = "a message holds something else than text"
NOT_THE_USERS_TURN = "the last message is not the user's"


def read_conversation(cell: Sequence[Any]) -> Messages:
    """The messages in a cell, with role and content alone, contents of several parts joined.

    Raises:
        UnusableRow: It is no conversation that an assistant could answer.

    Example:
        >>> read_conversation([{"role": "user", "content": [{"type": "text", "text": "1+1="}], "name": "Ada"}])
        [{'role': 'user', 'content': '1+1='}]
    """
    messages = [_message(message, first=index == 0) for index, message in enumerate(cell)]
    if messages and messages[-1]["role"] != "user":
        raise UnusableRow(NOT_THE_USERS_TURN, cell[-1])
    return messages


def conversation_text(messages: Sequence[Mapping[str, str]], roles: Sequence[str] = ROLES[1:]) -> str:
    """The problem that a conversation asks: what its messages say, those of the system left out unless asked for."""
    return "\n\n".join(message["content"] for message in messages if message["role"] in roles)


def _message(message: Any, *, first: bool) -> dict[str, str]:
    if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
        raise UnusableRow(NO_MESSAGE, message)
    role = message["role"]
    if role not in ROLES:
        raise UnusableRow(UNKNOWN_ROLE, message)
    if role == "system" and not first:
        raise UnusableRow(LATE_SYSTEM, message)
    content = message["content"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableRow(NO_TEXT, message)
    return {"role": role, "content": "".join(map(str, texts))}
