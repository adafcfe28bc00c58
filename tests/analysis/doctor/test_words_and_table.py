"""The tables in the documentation are those of the code, every rule is applied, and no cause explains itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rlvr_vocab.analysis.doctor import watch
from rlvr_vocab.analysis.doctor.causes import EXPLAINS, explained_by
from rlvr_vocab.analysis.doctor.thresholds import table

ROOT = Path(__file__).parents[3]
RULES = ROOT / "rlvr_vocab" / "analysis" / "doctor"


def names_in_code() -> set[str]:
    """The first argument of every `Finding(…)`, and that of `_skipped` and `_slow`, which make one."""
    found = set()
    for path in RULES.glob("*_rules.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
                assert isinstance(node.args[0], ast.Constant)
                found.add(node.args[0].value)
    return found


def test_the_documentation_has_every_threshold_as_it_applies() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = re.search(r"<!-- thresholds -->\n(.*?)<!-- /thresholds -->", text, re.DOTALL)
    assert rows is not None
    expected = [f"| {name} | {value:g} {unit} | {reason} | {source} |" for name, value, unit, reason, source in table()]
    assert rows[1].strip().splitlines()[2:] == expected


def test_the_documentation_names_every_finding_and_no_other() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    rows = re.search(r"<!-- findings -->\n(.*?)<!-- /findings -->", text, re.DOTALL)
    assert rows is not None
    assert set(re.findall(r"^\| `(\w+)` \|", rows[1], re.MULTILINE)) == names_in_code()


def test_causes_know_only_findings_and_form_no_ring() -> None:
    assert {name for pair in EXPLAINS.items() for name in (pair[0], *pair[1])} <= names_in_code()
    for name in EXPLAINS:
        reached = {name}
        while more := explained_by(reached) - reached:
            reached |= more
        assert all(name not in EXPLAINS.get(other, ()) for other in reached), name


def test_every_rule_is_applied() -> None:
    applied = {rule.__name__ for rule in watch.RULES} | {"held_out_falls", "before_and_after"}
    written = {
        node.name
        for path in RULES.glob("*_rules.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or ast.Constant("")) == "list[Finding]"
        if not node.name.startswith("_")
    }
    assert written == applied
