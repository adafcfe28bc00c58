"""What is printed at the end of a run: its accuracy, a sampled answer, and commands to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from rlvr_vocab.record.results import HeldOutMetric
from rlvr_vocab.terminal import shows_colours
from rlvr_vocab.text import pluralize, printable
from rlvr_vocab.vocab.marking import CLOSE_MARK, OPEN_MARK

_WHITESPACE = "\n\t\v\f\r"  # Rich leaves out the last three


def print_summary(summary: dict[str, Any], folder: Path, console: Console) -> None:
    console.print()
    console.print(_outcome(summary))
    form = [summary.get(f"format_{when}") for when in ("before", "after")]
    if None not in form:
        console.print(f"in format: {form[0]:.1%} before, {form[1]:.1%} after", markup=False)
    if summary["steps_without_signal"] == summary["steps"]:
        console.print(
            "[yellow]no step had a group whose rewards differed, so there was nothing to learn from:[/] "
            "see 'Before a run' in docs/guide.md"
        )
    # An older run's summary has no such key.
    for name, failures in summary.get("reward_failures", {}).items():
        console.print(
            f"reward {name} failed on {pluralize(failures, 'completion')}, without a score from it: "
            f"rewards/{name}/failures in metrics.jsonl",
            style="yellow",
            markup=False,
        )
    for finding in summary.get("findings", ()):
        line = finding_line(finding["title"], finding["step"])
        console.print(
            f"finding: {line}: {_command()} doctor run={shlex.quote(str(folder))}", style="yellow", markup=False
        )
    if summary["sample"] is not None:
        _show_sample(summary["sample"], console)
    command, sample = _command(), summary["sample"]
    models = "final_adapter/, final_model" if (folder / "final_adapter").is_dir() else "final_model"
    prompt = "…" if sample is None else sample["problem"]
    console.print(
        f"\nthe run is in {folder}: metrics.jsonl, completions/, summary.json, {models}/\nnext:\n"
        f"  {command} samples run={folder}\n"
        f"  {command} generate checkpoint={folder}/final_model prompt={shlex.quote(prompt)}\n"
        f"  {command} train experiment=gsm8k_reasoning      # Qwen3-0.6B, on a GPU\n"
        f"  {command} train --help                          # every key",
        markup=False,
    )


def _outcome(summary: dict[str, Any]) -> str:
    """What was measured on the held-out problems before and after, in a line."""
    steps, problems = pluralize(summary["steps"], "step"), pluralize(summary["held_out_problems"], "problem")
    measure = HeldOutMetric.of(summary.get("grader"))
    before, after = measure.of_run(summary)
    if before is None or after is None:
        nothing = "none of the held-out answers has a score" if summary["held_out_problems"] else "nothing was held out"
        return f"{steps} in {summary['seconds']:.0f} s; {nothing} to measure on."
    return (
        f"held-out {measure.name} on {problems}{escape(measure.by)}: [bold]{measure.value(before)}[/] before GRPO, "
        f"[bold]{measure.value(after)}[/] after ({measure.difference(after - before)}, {steps}, "
        f"{summary['grpo_seconds']:.0f} s)"
    )


def _command() -> str:
    """`rlvr-vocab` as the reader can type it: by its path where its environment is not active."""
    if shutil.which("rlvr-vocab"):
        return "rlvr-vocab"
    path = Path(sys.executable).parent / "rlvr-vocab"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _show_sample(sample: dict[str, Any], console: Console) -> None:
    gold = "" if sample["solution"] is None else f" (gold: {sample['solution']})"
    console.print(f"\na sampled answer to {sample['problem']!r}{gold},", end=" ", markup=False)
    colour = shows_colours(console)
    console.print("reasoning tokens", "in colour:" if colour else "marked:")
    console.print(Text("  ") + marked_text(sample["stretches"], colour=colour))


def finding_line(title: str, step: int) -> str:
    """What the doctor has found, without the evidence."""
    return f"{title} (step {step})"


def marked_text(spans: Iterable[Sequence[Any]], *, colour: bool) -> Text:
    """Surface text in which reasoning tokens can be told from standard ones; nothing in it moves a cursor."""
    text = Text()
    for written, copy_index, *_ in spans:
        surface = "".join(each if each in _WHITESPACE else printable(each, 1) for each in written)
        if not copy_index:
            text.append(surface)
        elif colour:
            text.append(surface, style="bold magenta")
        else:
            text.append(f"{OPEN_MARK}{surface}{CLOSE_MARK}")
    return text
