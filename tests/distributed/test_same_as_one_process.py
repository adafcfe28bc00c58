"""What is trained in two processes is what one trains on the same batch: losses, metrics and weights."""

import json

import pytest
from safetensors.torch import load_file

from rlvr_vocab.record.metrics import PHASES
from rlvr_vocab.vocab.copied_rows import DIFFERENCES

CASES = (
    *("tied_dapo", "tied_grpo", "untied_dapo", "group_in_two_processes", "reference", "dynamic"),
    *("low_rank_tied", "low_rank_reference"),
    *("lora_low_rank", "lora_tied", "lora_untied"),
)
# TRL's own means over the batches of a step, whatever their number of tokens: they depend on how it is cut.
CUT_BY_BATCH = ("entropy", "kl", "clip_ratio/")
OF_THE_CLOCK = (
    "step_time",
    "time/",
    "memory/",
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
    "total_flos",
)


def history_of(folder):
    return json.loads((folder / "history.json").read_text())


def weights_of(folder):
    [file] = (folder / "model").glob("*.safetensors")
    differences = folder / "model" / DIFFERENCES
    return {**load_file(file), **(load_file(differences) if differences.is_file() else {})}


def comparable(row, *, whole_step_at_once):
    left_out = OF_THE_CLOCK if whole_step_at_once else (*OF_THE_CLOCK, *CUT_BY_BATCH)
    exact = ("entropy/text", "entropy/answering", "entropy/thinking", "entropy/copies")
    return {name: value for name, value in row.items() if name in exact or not name.startswith(left_out)}


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
@pytest.mark.parametrize("name", CASES)
def test_losses_metrics_and_weights_are_those_of_one_process(trained, kind, name):
    at_once = name not in ("tied_grpo", "untied_dapo")
    expected, found = (
        [comparable(row, whole_step_at_once=at_once) for row in history_of(trained(how, name))] for how in ("one", kind)
    )
    assert len(found) == 4  # three steps and the end
    for how in ("one", "ddp"):
        for row in history_of(trained(how, name))[:3]:
            assert ("time/waiting" in row) == (how == "ddp")
            assert sum(row.get(phase, 0) for phase in PHASES) == pytest.approx(row["step_time"])
    assert name != "tied_dapo" or expected[2]["rewards/is_short/weight"] != 1.0
    assert name != "dynamic" or max(row["dynamic/rounds"] for row in expected[:3]) > 1
    assert all(row["grad_norm"] > 0.1 for row in expected[:3])
    assert "entropy/thinking" in found[0] and "thinking/reasoning_share" in found[0]
    for there, here in zip(expected, found, strict=True):
        # A count of values whose bits changed: a sum in another order changes those of a few tiny updates or not.
        assert here.pop("weights/moved", 0) == pytest.approx(there.pop("weights/moved", 0), abs=1e-3)
        assert here == pytest.approx(there, abs=1e-5, rel=1e-5)
    expected, found = weights_of(trained("one", name)), weights_of(trained(kind, name))
    assert found.keys() == expected.keys()
    assert max((found[key] - weight).abs().max().item() for key, weight in expected.items()) < 1e-5
    wrapped = json.loads((trained(kind, name) / "rank_1.json").read_text())["class"]
    assert wrapped.startswith("FSDP") if kind == "fsdp2" else wrapped == "DistributedDataParallel"
