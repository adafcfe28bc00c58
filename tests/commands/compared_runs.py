"""Folders of runs for `compare`, made up: nothing was trained."""

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rlvr_vocab.cli import main
from rlvr_vocab.record.results import ProblemResult, write_results

CONFIG: dict[str, Any] = {
    "exp_name": "made_up",
    "seed": 0,
    "output_dir": "./out/made_up",
    "model": {"name": "tiny", "reasoning_vocab_size": 0},
    "dataset": {"name": "arithmetic"},
    "training": {"learning_rate": 1e-5, "max_steps": 4, "save_steps": 100},
}
SUMMARY = {"finished": True, "accuracy_before": 0.3, "held_out_problems": 200, "steps": 4, "seconds": 10.0}
ENVIRONMENT = {"commit": "abc", "versions": {"trl": "1.16.0"}, "gpus": [], "processor_cores": 2}

ASKED = {"problems": 200, "samples": 1, "temperature": 1.0, "weights": "one", "checkpoint": "x"}

Maker = Callable[..., str]


def maker(parent: Path) -> Maker:
    """Makes the folder of a run: what is given replaces parts of its files, None leaves a file out."""

    def make(
        name: str,
        n: Any = 0,
        seed: int = 0,
        chance: float = 0.5,
        own: bool = False,
        problems: int = 200,
        results: str | None = "evaluation/after.jsonl",
        summary: dict[str, Any] | None = SUMMARY,
        environment: dict[str, Any] | None = ENVIRONMENT,
        tokens: int = 1000,
        **settings: Any,
    ) -> str:
        folder = parent / name
        config = copy.deepcopy(CONFIG) | {"seed": seed, "exp_name": name, "output_dir": str(folder)}
        config["model"]["reasoning_vocab_size"] = n
        for key, value in settings.items():
            section, _, field = key.partition("__")
            config[section][field] = value
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        if results is not None:
            generator = random.Random(f"{name}{seed}")
            of_set = seed if own else -1
            answers = [answer(each, of_set, generator.random() < chance, name) for each in range(problems)]
            write_results(answers, folder / results)
        for file, content in (("summary.json", summary), ("environment.json", environment)):
            if content is not None:
                (folder / file).write_text(json.dumps(content))
        rows = [{"step": step, "loss": 0.0, "reward": step / 10, "num_tokens": tokens * step} for step in range(1, 5)]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(folder)

    return make


def answer(problem: int, of_set: int, right: bool, completion: str) -> ProblemResult:
    prompt, solution = f"{of_set}: {problem}+1=", str(problem + 1)
    return ProblemResult(problem, 0, prompt, solution, completion, float(right), 9, 5, 2, True, True)


def compare(runs: list[str], *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what is in comparison.json."""
    code = main(["compare", f"runs=[{','.join(runs)}]", "out=compared", *words])
    return code, json.loads(Path("compared/comparison.json").read_text()) if code == 0 else {}


def three(made: Maker, name: str, **given: Any) -> list[str]:
    return [made(f"{name}{seed}", seed=seed, **given) for seed in range(3)]


def warnings(found: dict[str, Any], words: str) -> int:
    return sum(words in each for each in found["warnings"])


def evaluated(made: Maker, *asked: dict[str, Any]) -> list[str]:
    runs = []
    for number, each in enumerate(asked):
        runs.append(made(f"e{number}", n=100 * number, results="final_model/evaluation/test/results.jsonl"))
        (Path(runs[-1]) / "final_model/evaluation/test/settings.json").write_text(json.dumps(each))
    return runs
