"""What only a GPU can show. On a CPU the same tests run at toy size, or are skipped with a word."""

import gc
import os
import platform
from pathlib import Path

import pytest
import torch

from tests.training.conftest import farthest_from_its_score, make_trainer

__all__ = ["farthest_from_its_score", "make_trainer"]  # fixtures that the tests here ask for

HERE = Path(__file__).parent
# In one process Transformers trains on all cards that it sees, by DataParallel, unless there is one. Counting them asks
# NVML; CUDA looks at the variable when it is first used.
CARDS = torch.cuda.device_count()
ALL_CARDS = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(CARDS)))
if CARDS > 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ALL_CARDS.split(",")[0]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE:
            item.add_marker("gpu")


def pytest_terminal_summary(terminalreporter):
    """The figures that tests report, with what they were measured on."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.stats.get(kind, [])]
    figures = [value for each in reports for name, value in each.user_properties if name == "figure"]
    if figures:
        where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU ({platform.machine()}), toy size"
        terminalreporter.section(f"measured on {where}, torch {torch.__version__}")
        for line in figures:
            terminalreporter.write_line(line)


@pytest.fixture
def report(record_property):
    """Prints a line at the end of the tests."""
    return lambda line: record_property("figure", line)


@pytest.fixture(scope="session")
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def room_for_the_next(device):
    yield
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@pytest.fixture(scope="session")
def expanded(device, tmp_path_factory):
    """The folder of a Qwen3 with copies by `Expansion` fields: on a GPU as wide as Qwen3-0.6B with all of its rows.

    Weights are random, and wide enough that no two tokens are equally likely.
    """
    from transformers import AutoModelForCausalLM

    from rlvr_vocab.training.models.tiny import write_tiny_model
    from rlvr_vocab.training.settings import TinyShape
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    wide = device.type == "cuda"
    shape = TinyShape(1024, 3072, 4, 16, 8, 128) if wide else TinyShape(64, 192, 2, 2, 1, 64)
    root, made = tmp_path_factory.mktemp("gpu"), {}
    write_tiny_model(root / "base", shape, ["What is 3 + 4? It is 7."], ("<think>", "</think>"), seed=0)
    model = AutoModelForCausalLM.from_pretrained(root / "base")
    model.resize_token_embeddings(151_936 if wide else 640, mean_resizing=False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=2 / parameter.size(1) ** 0.5, generator=generator)
    model.save_pretrained(root / "base")

    def expand(**fields):
        key = tuple(sorted(fields.items()))
        if key not in made:
            made[key] = root / str(len(made))
            plan = plan_expansion(str(root / "base"), Expansion(**{"size": None, "open_thinking": "prefill", **fields}))
            write_expansion(plan, made[key])
        return made[key]

    return expand


@pytest.fixture
def train_on(make_trainer, device, monkeypatch):
    """`make_trainer` on the device, under bfloat16 autocast, which a CPU computes too, slowly."""
    from rlvr_vocab import device as device_module
    from rlvr_vocab.training import arguments

    for module in (arguments, device_module):
        monkeypatch.setattr(module, "has_bf16", lambda use_cpu: True)

    def make(folder, out, **given):
        return make_trainer(folder, out, **{"use_cpu": device.type == "cpu", "bf16": True, **given})

    return make
