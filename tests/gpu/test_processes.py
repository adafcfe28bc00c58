"""One process for each card over NCCL, two over gloo without a card: what they train is what one process trains."""

import json
import math
import sys

import pytest

from tests.distributed.conftest import HERE as DISTRIBUTED
from tests.distributed.conftest import SAME, launch, run
from tests.distributed.test_same_as_one_process import comparable, history_of, weights_of

from .conftest import ALL_CARDS, CARDS

CASE = "low_rank_tied"


@pytest.fixture(scope="module")
def trained(expand_shape, tmp_path_factory):
    """The folder of the case, trained in `one` process or as a file of accelerate's says, and how many those are."""
    root, made = tmp_path_factory.mktemp("processes"), {}
    script = DISTRIBUTED / "trained_cases.py"

    def train(kind):
        if kind in made:
            return made[kind]
        processes, batch = (1 if kind == "one" else CARDS or 2), math.lcm(4, CARDS or 2)
        args = {**SAME[CASE]["args"], "per_device_train_batch_size": batch // processes, "use_cpu": not CARDS}
        folder = str(expand_shape(SAME[CASE]["shape"], size=100, reasoning_rank=SAME[CASE]["rank"]))
        file = root / f"{kind}.json"
        file.write_text(json.dumps([{**SAME[CASE], "out": str(root / kind), "folder": folder, "args": args}]))
        command = [sys.executable, str(script), str(file)]
        with pytest.MonkeyPatch.context() as patch:
            if processes > 1:
                patch.setenv("CUDA_VISIBLE_DEVICES", ALL_CARDS)
            done = run(command) if kind == "one" else launch(kind, script, str(file), processes=processes)
        assert done.returncode == 0, done.stderr[-6000:]
        made[kind] = root / kind, processes
        return made[kind]

    return train


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_what_all_cards_train_is_what_one_process_trains(kind, trained, device, report):
    alone, _ = trained("one")
    together, processes = trained(kind)
    expected, found = weights_of(alone), weights_of(together)
    farthest = max((found[name] - weight).abs().max().item() for name, weight in expected.items())
    seen = json.loads((together / "rank_0.json").read_text())
    report(f"{kind}, {processes} processes over {seen['backend']}: weights {farthest:.1e} from those of one process")
    assert ("nccl" if device.type == "cuda" else "gloo") in seen["backend"]  # FSDP2 has "cuda:nccl,cpu:gloo"
    rounding = 1e-4 if device.type == "cuda" else 1e-5
    assert found.keys() == expected.keys() and farthest < rounding
    for there, here in zip(*(map(of_a_step, history_of(folder)) for folder in (alone, together)), strict=True):
        assert here == pytest.approx(there, abs=rounding, rel=rounding)


def of_a_step(row):
    """Without a count of values whose bits changed, which a sum in another order changes."""
    return {name: value for name, value in comparable(row, whole_step_at_once=True).items() if name != "weights/moved"}
