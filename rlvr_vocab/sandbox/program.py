"""The process of a program: it confines itself, runs the program, and answers calls to what that has defined.

    python -I -S -c '…; main()' JOB

JOB is JSON: the file numbers of the program's text and of calls and answers (none for a script, which reads its
standard input), its limits, and whether it is confined. A call is a line of JSON, as is its answer.
"""

from __future__ import annotations

import json
import os
import sys

from rlvr_vocab.sandbox.confinement import confine, limit, readable_paths
from rlvr_vocab.sandbox.values import decoded, encoded

TYPE_CHECKING = False  # without an import: it would take longer than the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any


def main() -> None:
    job = json.loads(sys.argv[1])
    with os.fdopen(job["source"], encoding="utf-8") as file:
        source = file.read()
    calls = [os.fdopen(number, mode, buffering=0) for number, mode in zip(job["calls"], ("rb", "wb"), strict=False)]
    sys.set_int_max_str_digits(0)
    sys.argv = ["program.py"]
    limit(**job["limits"])
    if job["confined"]:
        confine(readable_paths())
    namespace: dict[str, Any] = {"__name__": "program" if calls else "__main__"}

    def load() -> None:
        exec(compile(source, "program.py", "exec"), namespace)

    if calls:
        _Served(namespace, _refusal_of(load)).answer_all(*calls)
    else:
        load()


def _refusal_of(run: Callable[[], Any]) -> dict[str, Any] | None:
    """What a call raised, as an answer; None where it returned."""
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a program raises is its answer
        return {"raised": [type(error).__name__, str(error)[:300]]}
    return None


class _Served:
    """What a program has defined, and the objects that it gave out."""

    def __init__(self, namespace: dict[str, Any], refusal: dict[str, Any] | None) -> None:
        self._namespace = namespace
        self._refusal = refusal
        self._objects: list[Any] = []

    def answer_all(self, calls: IO[bytes], answers: IO[bytes]) -> None:
        for line in calls:
            answers.write(json.dumps(self._answer(json.loads(line))).encode("ascii") + b"\n")

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        if self._refusal is not None:
            return {"refused": ": ".join(self._refusal["raised"])}
        answer: dict[str, Any] = {}
        refusal = _refusal_of(lambda: answer.update(self._called(call)))
        return answer if refusal is None else refusal

    def _called(self, call: dict[str, Any]) -> dict[str, Any]:
        target = self._object(call["target"])
        if "attribute" in call:
            return {"value": self._encoded(getattr(target, call["attribute"]))}
        arguments = decoded(call["arguments"], self._object)
        named = decoded(call["named"], self._object)
        value = target(*arguments, **named)
        # What a program changes in place, its caller sees changed.
        return {"value": self._encoded(value), "arguments": self._encoded(arguments)}

    def _object(self, name: str | int) -> Any:
        if isinstance(name, int):
            return self._objects[name]
        if name not in self._namespace:
            raise NameError(f"the program defines no {name}")
        return self._namespace[name]

    def _encoded(self, value: Any) -> Any:
        return encoded(value, self._kept)

    def _kept(self, value: Any) -> int:
        self._objects.append(value)
        return len(self._objects) - 1
