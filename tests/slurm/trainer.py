"""Stands in for rlvr_vocab/exp/grpo_train.py: counts steps, and keeps to the same promises about signals and codes.

It writes what it was called with and every signal that it receives into `events.jsonl` of the run's folder.
"""

import itertools
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

RANK = int(os.environ.get("RANK", "0"))
INTERRUPTED = 75


def main(words):
    if "--multirun" in words:
        runs = list(itertools.product(*(spread(word) for word in words if "=" in word)))
        if "--job" not in words:  # it is asked for the names
            print("\n".join(name(run) for run in runs))
            return 0
        run = runs[int(words[words.index("--job") + 1])]
        words = [f"exp_name={name(run)}", *run, *(["--show"] if "--show" in words else [])]
    given = dict(word.split("=", 1) for word in words if not word.startswith("--") and "=" in word)
    folder = Path(given.get("output_dir") or f"out/{given.get('exp_name', 'run')}")
    if "--show" in words:
        print(folder)
        return 0
    time.sleep(float(given.get("imports", 0)))  # before this a signal kills
    return count(folder, given, words)


def spread(word):
    key, value = word.split("=", 1)
    return [f"{key}={each}" for each in value.split(",")]


def name(run):
    size, seed = (word.split("=")[1] for word in run[:2])
    return f"grpo_{'baseline' if size == '0' else f'reasoning_{size}'}_seed{seed}"


def count(folder, given, words):
    received = []

    def receive(number, frame):
        tell(folder, signal=signal.Signals(number).name)
        if received:
            os._exit(128 + number)
        received.append(number)

    if RANK == 0 and given.get("overwrite") == "true":
        for path in folder.glob("checkpoint-*"):
            shutil.rmtree(path)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, receive)
    step = max((int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*")), default=0)
    tell(folder, start=step, words=words, master=os.environ.get("MASTER_ADDR"))
    while step < int(given.get("max_steps", 10)):
        time.sleep(0.2)
        step += 1
        if received:
            time.sleep(float(given.get("saving", 0.5)))
            save(folder, step)
            return INTERRUPTED
    save(folder, step)
    return 0


def tell(folder, **facts):
    folder.mkdir(parents=True, exist_ok=True)
    rank = {"rank": RANK, "world": int(os.environ.get("WORLD_SIZE", "1"))}
    with (folder / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({**facts, **rank}) + "\n")


def save(folder, step):
    if RANK == 0:
        (folder / f"checkpoint-{step}").mkdir(exist_ok=True)
        (folder / f"checkpoint-{step}" / "manifest.json").touch()


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if RANK == 0 and "RLVR_VOCAB_EXIT_CODE_FILE" in os.environ:
        Path(os.environ["RLVR_VOCAB_EXIT_CODE_FILE"]).write_text(f"{code}\n", encoding="utf-8")
    raise SystemExit(code)
