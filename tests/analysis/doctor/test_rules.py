"""The tables in the documentation are made of the rules, and no finding explains itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr_vocab.analysis.doctor import history, slowest_phase
from rlvr_vocab.analysis.doctor.diagnose import RULES, TOPICS
from rlvr_vocab.analysis.doctor.finding import Threshold

DOCUMENT = Path(__file__).parents[3] / "docs" / "doctor.md"


def rows_of_findings() -> list[str]:
    return [f"| `{each.name}` | {each.description} | {each.metrics} |" for each in RULES.values()]


def rows_of_thresholds() -> list[str]:
    thresholds = {
        name.lower(): value
        for module in (history, *TOPICS, slowest_phase)
        for name, value in vars(module).items()
        if isinstance(value, Threshold)
    }
    return [f"| {name} | {each:g} {each.unit} | {each.reason} | {each.source} |" for name, each in thresholds.items()]


@pytest.mark.parametrize(("table", "rows"), [("findings", rows_of_findings()), ("thresholds", rows_of_thresholds())])
def test_the_documentation_has_every_finding_and_every_threshold(table: str, rows: list[str]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    written = re.search(rf"<!-- {table} -->\n(.*?)<!-- /{table} -->", text, re.DOTALL)
    assert written is not None
    assert written[1].strip().splitlines()[2:] == rows


def test_findings_explain_others_and_never_themselves() -> None:
    explains = {name: set(each.explains) for name, each in RULES.items()}
    assert set().union(*explains.values()) <= set(RULES)
    for name, reached in explains.items():
        while more := set().union(*(explains[other] for other in reached)) - reached:
            reached = reached | more
        assert name not in reached
