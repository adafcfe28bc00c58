"""The finding on the seconds of a step: which part is slow, and when none is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlvr_vocab.analysis.doctor.finding import Finding

Row = dict[str, Any]
Found = Callable[..., list[Finding]]
OF_UPDATES = ("step", "loss", "grad_norm", "learning_rate", "step_time", "weights/moved")


def seconds(generation: float, update: float) -> Row:
    return {"step_time": generation + update + 0.01, "time/generation": generation, "time/rewards": 0.01}


@pytest.mark.parametrize("on_cpu", [False, True])
@pytest.mark.parametrize(
    ("late", "on_a_gpu", "on_a_cpu"),
    [
        (seconds(2.5, 0.4), "generation", "generation"),
        (seconds(0.3, 2.4), "update", "update"),
        (seconds(1.0, 1.4), "update", None),
        (seconds(1.8, 2.5), "update", "update"),
        (seconds(0.5, 0.6), None, None),
    ],
)
def test_a_part_that_is_slow_alone_is_found_and_a_machine_that_is_shared_is_not(
    late: Row, on_a_gpu: str | None, on_a_cpu: str | None, on_cpu: bool, findings_of: Found
) -> None:
    found = findings_of(lambda row: late if row["step"] > 30 else seconds(0.3, 0.4), on_cpu=on_cpu)
    part = on_a_cpu if on_cpu else on_a_gpu
    assert [each.title for each in found] == [f"Steps are slow: {part}"] * bool(part)


@pytest.mark.parametrize("count", [24, 30, 39])
def test_a_short_run_that_slows_down_half_way_is_found(
    count: int, rows_with: Callable[..., list[Row]], findings_of: Found
) -> None:
    rows = rows_with(lambda row: seconds(3.3, 0.4) if row["step"] > count // 2 else {}, count)
    assert [each.name for each in findings_of(rows)] == ["steps_slow"]


def test_a_single_long_step_is_no_habit(findings_of: Found) -> None:
    assert findings_of(lambda row: seconds(60.0, 0.4) if row["step"] == 40 else {}) == []


@pytest.mark.parametrize("between", [1, 2, 4])
def test_slow_scoring_is_found_where_some_steps_draw_nothing(
    between: int, healthy_rows: list[Row], findings_of: Found
) -> None:
    rows = [
        {**row, "time/rewards": 6.0, "step_time": 6.7}
        if row["step"] % between == 0
        else {**{name: row[name] for name in OF_UPDATES}, "time/generation": 0.0, "time/rewards": 0.0}
        for row in healthy_rows
    ]
    [finding] = findings_of(rows, num_iterations=between)
    assert finding.title == "Steps are slow: rewards"


def test_seconds_without_their_parts_blame_no_part(rows_with: Callable[..., list[Row]], findings_of: Found) -> None:
    rows = rows_with(lambda row: {"step_time": 1.0 if row["step"] < 30 else 9.0})
    assert [each.name for each in findings_of(rows)] == ["steps_slow"]
    assert findings_of([{key: row[key] for key in row if not key.startswith("time/")} for row in rows]) == []
