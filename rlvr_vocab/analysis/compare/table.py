"""The arms of a comparison as a table: on the screen, or as a CSV, LaTeX or Markdown file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any

from rlvr_vocab.analysis.compare.comparison import Comparison, p_text
from rlvr_vocab.analysis.compare.runs import ComparedArm, ComparisonResult
from rlvr_vocab.terminal import clock

# One LaTeX sign each; others are written as they are, in UTF-8.
_TEX = str.maketrans({each: f"\\{each}" for each in "&%$#_{}"} | {each: f"${each}$" for each in "<>|"})
_TEX |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"})
_TEX |= str.maketrans({"−": "$-$", "…": r"\ldots{}"})


def arm_table(compared: ComparisonResult) -> tuple[list[str], list[list[str]]]:
    """Column names, and a row of text for each arm, the baseline first; `std` is over the seeds."""
    metric, rows = compared.metric, []
    for arm, scores, found in _arms(compared):
        spread = "one run" if len(scores) < 2 else metric.difference(stdev(scores), sign=False)
        row = [arm.name, f"{len(scores)}", metric.value(mean(scores)), spread]
        if found is None:
            row += [""] * 4
        else:
            effect = found.effect if found.variance.seeds else ""
            row += [metric.difference(found.difference), found.interval, p_text(found.adjusted_p).lstrip("p ="), effect]
        rows.append([*row, "" if arm.grpo_seconds is None else clock(arm.grpo_seconds)])
    columns = ["arm", "runs", metric.name, "std", "difference", "interval", "p", "smallest effect"]
    return [*columns, "GRPO time"], rows


def table_text(compared: ComparisonResult, ending: str) -> str:
    """The table in the format of a file name's ending: `.csv` (plain numbers), `.tex` (booktabs) or `.md`."""
    if ending == ".csv":
        written = io.StringIO()
        rows = [*_plain_rows(compared)]
        writer = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return written.getvalue()
    columns, rows_of_text = arm_table(compared)
    if ending == ".md":
        bar = r"\|"
        lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows_of_text]
        return "".join("".join(f"| {cell.replace('|', bar)} " for cell in line) + "|\n" for line in lines)
    head, *body = (" & ".join(cell.translate(_TEX) for cell in line) + r" \\" for line in [columns, *rows_of_text])
    begin = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"]
    return "\n".join([*begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", ""])


def _arms(compared: ComparisonResult) -> Iterator[tuple[ComparedArm, Sequence[float], Comparison | None]]:
    """Each arm with the scores of its runs, and its comparison with the baseline, which has none."""
    baseline, *others = compared.arms
    yield baseline, compared.comparisons[0].baseline_scores, None
    for arm, found in zip(others, compared.comparisons, strict=True):
        yield arm, found.other_scores, found


def _plain_rows(compared: ComparisonResult) -> Iterator[dict[str, Any]]:
    names = ("difference", "low", "high", "p", "adjusted_p", "smallest_effect", "verdict", "problems")
    for arm, scores, found in _arms(compared):
        row = {"arm": arm.name, "value": arm.value, "runs": len(scores), "metric": compared.metric.name}
        row |= {"mean": mean(scores), "std": stdev(scores) if len(scores) > 1 else None}
        row |= {name: None if found is None else getattr(found, name) for name in names}
        yield row | {"grpo_seconds": arm.grpo_seconds}
