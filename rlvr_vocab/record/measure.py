"""What a run measures on its held-out problems, accuracy or reward, and how its figures are written; no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A grader as `GraderSpec.record` writes it; None for one that nobody has written down.
GraderRecord = Mapping[str, Any]
# What graded every run before graders were written down.
_OLDER: GraderRecord = {
    "name": "accuracy",
    "functions": [{"name": "accuracy", "params": {}, "weight": 1.0}],
    "threshold": 1.0,
}


@dataclass(frozen=True)
class Measure:
    """The share of right answers, or, where nothing is right or wrong, the mean score.

    Attributes:
        is_share: whether it is the former.
        grader: the name of what grades the answers.
        by: ` by <grader>`; nothing for the library's `accuracy`.
    """

    is_share: bool = True
    grader: str = "accuracy"
    by: str = ""

    @classmethod
    def of(cls, grader: GraderRecord | None) -> Measure:
        """What a grader measures."""
        found = _with_functions(grader)
        names = [each["name"] for each in found["functions"] if "file" not in each]
        by = "" if names == ["accuracy"] == [each["name"] for each in found["functions"]] else f" by {found['name']}"
        return cls(found.get("threshold") is not None, str(found["name"]), by)

    @property
    def name(self) -> str:
        return "accuracy" if self.is_share else "reward"

    def of_run(self, summary: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Its value before a run and after it, by the `summary.json` of that."""
        return summary.get(f"{self.name}_before"), summary.get(f"{self.name}_after")

    def value(self, value: float, space: str = "") -> str:
        """A value, `71.2%` or `0.712`.

        Args:
            space: what stands before the percent sign.
        """
        return f"{100 * value:.1f}{space}%" if self.is_share else f"{value:.3f}".replace("-", "−")

    def difference(self, value: float, sign: bool = True) -> str:
        """A difference, `+2.0 points` or `+0.020`, with a true minus."""
        number = 100 * value if self.is_share else value
        digits = 1 if self.is_share else 3
        text = f"{number:{'+' if sign else ''}.{digits}f}".replace("-", "−")
        return f"{text} points" if self.is_share else text


ACCURACY = Measure()


def same_grader(one: GraderRecord | None, other: GraderRecord | None) -> bool:
    """Whether two graders give the same figures; where nobody has written down how `accuracy` was set, it may."""
    first, second = (_identity(_with_functions(each)) for each in (one, other))
    if one is not None and other is not None:
        return first == second
    return [each["name"] for each in first["functions"]] == [each["name"] for each in second["functions"]] and (
        first["threshold"] == second["threshold"]
    )


def grader_in_words(grader: GraderRecord | None) -> str:
    """`numeric with {"absolute_tolerance": 0.1}`: the name, and what else tells it from another one."""
    found = _with_functions(grader)
    words = [
        f"{each['name']} {json.dumps(each['params'], ensure_ascii=False)}"
        for each in found["functions"]
        if each.get("params")
    ]
    words += [f"{each['file']} ({each['sha256'][:8]})" for each in found["functions"] if "file" in each]
    if found["threshold"] is None:
        words.append("nothing right or wrong")
    elif found["threshold"] != 1.0:
        words.append(f"threshold {found['threshold']:g}")
    return f"{found['name']}{' with ' * bool(words)}{', '.join(words)}"


def _with_functions(grader: GraderRecord | None) -> GraderRecord:
    """A record of the present form; those of the first evaluations are of `accuracy` alone."""
    if grader is None:
        return _OLDER
    if "functions" in grader:
        return grader
    return {**_OLDER, "functions": [{"name": grader["name"], "params": grader.get("params") or {}, "weight": 1.0}]}


def _identity(grader: GraderRecord) -> dict[str, Any]:
    return {key: value for key, value in grader.items() if key != "name"}
