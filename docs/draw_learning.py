"""Draws the mean reward of runs over their steps, in one panel or several.

    python docs/draw_learning.py docs/img/learning.png \
        "quickstart: TRL=theirs.jsonl rlvr_vocab=out/quickstart_baseline_seed0/metrics.jsonl" \
        "make demo: baseline=out/a/metrics.jsonl baseline=out/b/metrics.jsonl full=out/c/metrics.jsonl"

Curves of one name have one colour; each point is drawn light, and the mean of five strong above.
"""

import json
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

COLOURS = ("#9e9e9e", "#1b66c9", "#d1541f")


def main(out: str, *panels: str) -> None:
    figure = Figure(figsize=(4.2 * len(panels), 2.8), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        title, _, words = panel.partition(": ")
        colours: dict[str, str] = {}
        for name, file in (word.split("=", 1) for word in words.split()):
            rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
            rewards = np.array([row["reward"] for row in rows if "reward" in row])
            label = name if name not in colours else None
            colour = colours.setdefault(name, COLOURS[len(colours)])
            first = len(colours) == 1  # wide, as another may lie over it
            axes.plot(range(1, len(rewards) + 1), rewards, color=colour, linewidth=0.8, alpha=0.35)
            smooth = np.convolve(rewards, np.ones(5) / 5, "valid")
            axes.plot(range(3, len(smooth) + 3), smooth, color=colour, linewidth=3 if first else 1.4, label=label)
        axes.set(title=title, xlabel="step", ylim=(0, 1))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
    figure.axes[0].set_ylabel("mean reward")
    figure.savefig(out, dpi=160)


if __name__ == "__main__":
    main(*sys.argv[1:])
