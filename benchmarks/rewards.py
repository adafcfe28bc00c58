"""Answers per second: our `accuracy` against TRL's `accuracy_reward` on the same turns.

    python benchmarks/rewards.py FILE ... [--answers 2000] [--hostile 0.05] [--batch 64]

FILE is a problem set as JSON or JSON lines with gold answers under "answer" (of GSM8K what follows `####`). They are
taken from the files in turn; each turn boxes its gold answer as it is, in another form, or with a digit changed. In the
second run a share of the turns is replaced by hostile completions of the tests. Each side runs in a process of its own,
so that no cache is warm; what counts is the time in the reward, the start of its workers included.

TRL gets each gold answer as `$...$`, in which it reads most. Where it raises on a batch, which would have ended a
training run, the errors are counted and the batch is scored again one by one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SIDES = ("ours", "trl")
WORDS = "<think>work</think>So the answer is $\\boxed{%s}$."


def main() -> None:
    arguments = parse()
    if arguments.side:
        print(json.dumps(measure(arguments)))
        return
    print(f"{'':<16}{'side':<6}{'answers/s':>10}{'as expected':>13}{'errors':>8}{'ratio':>8}", flush=True)
    for share in (0.0, arguments.hostile):
        name = f"{share:.0%} hostile" if share else "ordinary"
        figures = {side: in_own_process(arguments, side, share) for side in SIDES}
        for side, figure in figures.items():
            ratio = figures["trl"]["seconds"] / figure["seconds"]
            speed = arguments.answers / figure["seconds"]
            print(
                f"{name:<16}{side:<6}{speed:>10.0f}{figure['as_expected']:>13.1%}{figure['errors']:>8.0f}{ratio:>8.1f}",
                flush=True,
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--answers", type=int, default=2_000)
    parser.add_argument("--hostile", type=float, default=0.05, help="share of hostile turns in the second run")
    parser.add_argument("--batch", type=int, default=64, help="turns in one call of the reward")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_own_process(arguments: argparse.Namespace, side: str, share: float) -> dict[str, float]:
    options = [f"--answers={arguments.answers}", f"--batch={arguments.batch}", f"--hostile={share}", f"--side={side}"]
    command = [sys.executable, __file__, *arguments.files, *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Seconds, the share of scores that are as the turns were made, and how often the reward raised."""
    turns, golds, expected = problems(arguments)
    if arguments.side == "ours":
        from rlvr_vocab.rewards import accuracy as reward
    else:
        from trl.rewards import accuracy_reward as reward

        logging.disable(logging.WARNING)  # it warns of each time limit
        golds = [f"${gold}$" for gold in golds]
    scores: list[float | None] = []
    errors, started = 0, time.perf_counter()
    for start in range(0, len(turns), arguments.batch):
        batch = slice(start, start + arguments.batch)
        found, raised = scored(reward, turns[batch], golds[batch])
        scores, errors = scores + found, errors + raised
    seconds = time.perf_counter() - started
    agreeing = sum(score == right for score, right in zip(scores, expected, strict=True))
    return {"seconds": seconds, "as_expected": agreeing / len(turns), "errors": errors}


def scored(reward: Any, turns: list[Any], golds: list[str]) -> tuple[list[float | None], int]:
    """The scores of a batch; where the reward raises, one by one with None for the turns to blame."""
    completions = [turn if isinstance(turn, list) else [{"role": "assistant", "content": turn}] for turn in turns]
    try:
        return reward(completions=completions, solution=golds), 0
    except Exception:  # noqa: BLE001 - every error of a reward is counted
        if len(turns) == 1:
            return [None], 1
    found = [scored(reward, [turn], [gold]) for turn, gold in zip(turns, golds, strict=True)]
    return [score for scores, _ in found for score in scores], sum(errors for _, errors in found)


def problems(arguments: argparse.Namespace) -> tuple[list[Any], list[str], list[float]]:
    """Turns, their gold answers and the scores that they should get, the same ones every time."""
    source = random.Random(0)
    per_file = [source.sample(golds, len(golds)) for golds in map(golds_of, arguments.files)]
    golds = [gold for row in itertools.zip_longest(*per_file) for gold in row if gold][: arguments.answers]
    if len(golds) < arguments.answers:
        sys.exit(f"--answers={arguments.answers}: the files hold only {len(golds)}")
    made = [(as_it_is, in_another_form, with_a_digit_changed)[index % 3](gold) for index, gold in enumerate(golds)]
    turns: list[Any] = [WORDS % answer for answer, _ in made]
    expected = [score for _, score in made]
    hostile = hostile_turns()
    for place in source.sample(range(len(golds)), round(arguments.hostile * len(golds))):
        turns[place], expected[place] = source.choice(hostile), 0.0
    return turns, golds, expected


def golds_of(file: str) -> list[str]:
    path = Path(file)
    with path.open(encoding="utf-8") as lines:
        rows = json.load(lines) if path.suffix == ".json" else [json.loads(line) for line in lines]
    answers = (str(row.get("answer") or "").rpartition("####")[2].strip() for row in rows)
    return [answer for answer in answers if 0 < len(answer) < 200 and "$" not in answer]


def hostile_turns() -> list[Any]:
    sys.path.insert(0, str(ROOT))
    from tests.verify.hostile import hostile_completions

    # TRL takes one message with text per completion.
    return [turn for _, turn in hostile_completions() if isinstance(turn, str)]


def as_it_is(gold: str) -> tuple[str, float]:
    return gold, 1.0


def in_another_form(gold: str) -> tuple[str, float]:
    if "\\frac" in gold:
        return gold.replace("\\frac", "\\dfrac"), 1.0
    if re.fullmatch("[0-9]{4,}", gold):
        return f"{int(gold):,}", 1.0
    return (gold if "=" in gold else f"x = {gold}"), 1.0


def with_a_digit_changed(gold: str) -> tuple[str, float]:
    digit = re.search("[0-9]", gold)
    if digit is None:
        return f"{gold} + 1", 0.0
    return f"{gold[: digit.start()]}{(int(digit[0]) + 1) % 10}{gold[digit.end() :]}", 0.0


if __name__ == "__main__":
    main()
