"""Draws what `rlvr-vocab samples` shows as an SVG.

The picture in docs/reading_runs.md is a quickstart run, after a few keys:

    python docs/render_samples.py docs/img/samples.svg run=out/quickstart_reasoning_full_seed42 s 190 enter n n n n n n
"""

import asyncio
import re
import sys
from pathlib import Path

from rlvr_vocab.cli import load_settings
from rlvr_vocab.commands.samples import samples_app


async def screen_after(run: str, keys: list[str]) -> str:
    app = samples_app(load_settings("samples", [run]))
    async with app.run_test(size=(100, 32)) as pilot:
        while app.reader.marker is None or app.reading.search.pending:
            await pilot.pause(0.05)
        for key in keys:
            await pilot.press(*(key if key.isdecimal() else [key]))
            await pilot.pause(0.5)
        return app.export_screenshot(title=f"rlvr-vocab samples {run}")


def main(out: str, run: str, *keys: str) -> None:
    svg = asyncio.run(screen_after(run, list(keys)))
    Path(out).write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # no fonts from elsewhere


if __name__ == "__main__":
    main(*sys.argv[1:])
