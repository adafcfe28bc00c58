"""A run that is resumed is one run in Weights & Biases, and each step is there once."""

import json
import signal
import struct

from wandb.proto import wandb_internal_pb2

BLOCK, HEADER = 2**15, struct.Struct("<IHB")
FULL, LAST = 1, 4


def records_in(path):
    """The records of a .wandb file, which has the form of a LevelDB log: blocks of pieces with checksum, size, kind."""
    content, place, record = path.read_bytes(), 7, b""
    while place + HEADER.size <= len(content):
        if BLOCK - place % BLOCK < HEADER.size:  # the rest of a block has no room for a piece
            place += BLOCK - place % BLOCK
            continue
        _, size, kind = HEADER.unpack_from(content, place)
        place += HEADER.size
        record += content[place : place + size]
        place += size
        if kind in (FULL, LAST):
            yield record
            record = b""


def rows_sent(folder):
    """(id of the run, step) of every row in the files that `wandb sync` would send, in their order."""
    sent = []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime):
        for content in records_in(path):
            history = wandb_internal_pb2.Record.FromString(content).history.item
            keys = {item.nested_key[0] if item.nested_key else item.key: item.value_json for item in history}
            if "train/reward" in keys:
                sent.append((path.stem.removeprefix("run-"), int(json.loads(keys["train/global_step"]))))
    return sent


def test_a_resumed_run_goes_on_in_the_same_run(forks, tmp_path):
    folder = tmp_path / "run"
    words = ("logging=offline", "training.save_steps=100")
    in_step_4 = [["open metrics.jsonl", 3, signal.SIGTERM]]
    assert forks.run(folder, *words, signals_at=in_step_4) == 75, forks.said(folder)
    known = json.loads((folder / "wandb.json").read_text())
    assert known["last_step"] == 4
    assert forks.run(folder, *words) == 0, forks.said(folder)
    sent = rows_sent(folder)
    assert {run for run, _ in sent} == {known["id"]}
    assert [step for _, step in sent] == [1, 2, 3, 4, 5, 6]
