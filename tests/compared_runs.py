"""Folders of runs made by hand, for which nothing was trained, and the comparison of such runs."""

import copy
import json
import random
from pathlib import Path

import yaml

from rlvr_vocab.cli import main
from rlvr_vocab.data.problem_key import hashes, problem_key
from rlvr_vocab.record.results import ProblemResult, write_results

CONFIG = {
    "exp_name": "made_up",
    "seed": 0,
    "output_dir": "./out/made_up",
    "model": {"name": "made/up", "reasoning_vocab_size": 0},
    "dataset": {"name": "made/problems"},
    "training": {"learning_rate": 1e-5, "max_steps": 4, "save_steps": 100},
}
GRADER = {"name": "accuracy", "functions": [{"name": "accuracy", "params": {}, "weight": 1.0}], "threshold": 1.0}
SUMMARY = {"finished": True, "accuracy_before": 0.3, "steps": 4, "grpo_seconds": 61.0, "grader": GRADER}
ENVIRONMENT = {
    "command": ["/x/cli.py", "train", "experiment=quickstart"],
    "commit": "abc",
    "versions": {"trl": "1.16.0"},
}


def write_run(
    folder,
    n=0,
    seed=0,
    chance=0.5,
    own=False,
    problems=200,
    results="evaluation/after.jsonl",
    summary=SUMMARY,
    environment=ENVIRONMENT,
    trained=(),
    tokens=1000,
    **settings,
):
    """The folder of a run; an argument replaces a part of its files, and None leaves a file out."""
    name = folder.name
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
    of_problems = {
        "grader": GRADER,
        "training": [{"sha256": "x"}],
        "keys": {"trained": hashes(map(problem_key, trained))},
    }
    for file, content in (("summary.json", summary), ("environment.json", environment), ("problems.json", of_problems)):
        if content is not None:
            (folder / file).write_text(json.dumps(content))
    rows = [{"step": step, "loss": 0.0, "reward": step / 10, "num_tokens": tokens * step} for step in range(1, 5)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder)


def answer(problem, of_set, right, completion):
    prompt, solution = f"{of_set}: {problem}+1=", str(problem + 1)
    return ProblemResult(problem, 0, prompt, solution, completion, float(right), 9, 5, 2, True, True)


def compare(runs, *words):
    """The exit code, and what is in comparison.json."""
    code = main(["compare", f"runs=[{','.join(runs)}]", "out=compared", *words])
    return code, json.loads(Path("compared/comparison.json").read_text()) if code == 0 else {}


def three(made, name, **given):
    return [made(f"{name}{seed}", seed=seed, **given) for seed in range(3)]


def flags(found, words):
    """How many flags of the claims have these words."""
    return sum(words in flag for claim in found["claims"] for flag in claim["flags"])


def flagged(found):
    """The names of the claims with flags."""
    return [claim["name"] for claim in found["claims"] if claim["status"] == "flag"]
