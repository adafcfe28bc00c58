"""Draws a captured terminal screen as an SVG.

The pictures in the README are real runs, captured with their colours:

    tmux new-session -d -x 110 -y 48 -s run 'make quickstart; sleep 600'
    tmux capture-pane -e -p -t run | python docs/render_terminal.py docs/img/quickstart.svg "make quickstart"
    FORCE_COLOR=1 rlvr-vocab samples run=out/quickstart_reasoning_full_seed42 step=60 max_samples=2 |
        python docs/render_terminal.py docs/img/samples.svg "rlvr-vocab samples"
    chromium --headless --hide-scrollbars --window-size=1400,1500 --screenshot=docs/img/report.png \\
        out/quickstart_reasoning_full_seed42/report.html
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def main(out: str, title: str) -> None:
    screen = Text.from_ansi(sys.stdin.read().rstrip())
    width = max(line.cell_len for line in screen.split("\n"))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(screen, soft_wrap=True)
    svg = console.export_svg(title=title)
    Path(out).write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # no fonts from elsewhere


if __name__ == "__main__":
    main(*sys.argv[1:])
