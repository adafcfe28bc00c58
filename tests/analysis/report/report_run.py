"""The folder of a run, written without training one: what its report is made of, with whatever is to be shown in it."""

from __future__ import annotations

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rlvr_vocab.config.command_settings import ReportSettings
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.results import ProblemResult
from rlvr_vocab.runs.report import write_report

Row = dict[str, Any]
# Lone halves of a surrogate pair cannot stand in a Parquet file; they do in results.
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)> $x_{1}$ \x00\x1b[31m\u202e & \u2028"


def write_run(folder: Path, steps: int = 6, *, reward: str = "accuracy") -> Path:
    """A finished run of so many steps whose reward rises; 40 held-out problems, 10 right before and 30 after."""
    settings = read_settings("train", ["experiment=quickstart", "seed=3", f"output_dir={folder}"])
    (folder / "completions").mkdir(parents=True)
    (folder / "evaluation").mkdir()
    resolved = dict(settings.resolved)
    resolved["rewards"] = {"functions": [{**resolved["rewards"]["functions"][0], "name": reward}]}
    (folder / "config.yaml").write_text(config_yaml(resolved), encoding="utf-8")
    write_rows(folder / "metrics.jsonl", [metrics(step, steps, reward) for step in range(1, steps + 1)])
    for step in range(1, steps + 1):
        write_completions(folder, step, [completion(step, row, reward) for row in range(8)])
    write_rows(folder / "evaluation" / "before.jsonl", [answer(problem, right=problem < 10) for problem in range(40)])
    write_rows(folder / "evaluation" / "after.jsonl", [answer(problem, right=problem >= 10) for problem in range(40)])
    summary = {"accuracy_before": 0.25, "accuracy_after": 0.75, "held_out_problems": 40, "train_problems": 360}
    summary |= {"finished": True, "steps": steps, "grpo_seconds": 4.0, "seconds": 66.0, "warmup_steps": 400}
    write_json(folder / "summary.json", summary)
    write_json(folder / "environment.json", {"command": ["rlvr-vocab", "quickstart"], "versions": {"torch": "2.13.0"}})
    return folder


def metrics(step: int, steps: int, reward: str = "accuracy") -> Row:
    value = 0.3 + 0.4 * step / steps
    return {
        "step": step,
        "loss": 0.01,
        "reward": value,
        "reward_std": 0.45,
        "groups/reward_std": 0.3,
        f"rewards/{reward}/mean": value,
        "frac_reward_zero_std": 0.1,
        "grad_norm": 1.0,
        "learning_rate": 2e-4 * (1 - step / steps),
        "completions/mean_length": 20,
        "completions/clipped_ratio": 0.0,
        "entropy/thinking": 0.9 - 0.01 * step,
        "step_time": 0.7,
    }


def completion(step: int, row: int, reward: str = "accuracy") -> Row:
    text = f"<think>{step}+{row}</think>\\boxed{{{row}}}"
    return {
        "step": step,
        "prompt": f"system\nBox it.\nuser\n{step}0+{row // 4}=\nassistant\n",
        "completion": text,
        "solution": str(row),
        "advantage": row - 3.5,
        "reward": row / 7,
        f"reward/{reward}": row / 7,
    }


def answer(problem: int, *, right: bool, text: str = "\\boxed{1}") -> Row:
    score = 1.0 if right else 0.0
    return asdict(ProblemResult(problem, 0, f"{problem}+1=", "1", text, score, 9, 5, 2, True, True))


def write_completions(folder: Path, step: int, rows: list[Row]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), folder / "completions" / f"step_{step:05}.parquet")


def write_rows(path: Path, rows: list[Row]) -> None:
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")


def write_json(path: Path, content: Row) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


class Tags(HTMLParser):
    """The elements and attributes of a page, and its words outside of the style sheet."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes.update((name, value or "") for name, value in attrs)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def report(run: Path, max_samples: int = 24) -> str:
    write_report(ReportSettings(run, run / "report.html", None, max_samples))
    return (run / "report.html").read_text(encoding="utf-8")


def words(page: str) -> str:
    return " ".join(" ".join(Tags(page).words).split())


def rewrite(run: Path, name: str, **changed: Any) -> None:
    path = run / name
    write_json(path, {**json.loads(path.read_text()), **changed})
