"""The speed and memory of the usual cards, by their data sheets, and the devices of this machine."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr_vocab.errors import UserError
from rlvr_vocab.text import nearest_and_all

GIB = 2**30
CPU = "cpu"
# One core, float32, without AMX: measured for products of a trainer's size on current x86 servers.
_CORE_FLOPS, _CORE_BANDWIDTH = 60e9, 8e9


@dataclass(frozen=True)
class Device:
    """One card, or the processor. memory: bytes that programs can use; bandwidth: bytes a second.

    flops, flops_float32: peak FLOP/s of dense products in 16 bits, and in float32 without TF32; for a processor both
    are the measured rate.
    """

    name: str
    memory: float
    flops: float
    flops_float32: float
    bandwidth: float
    has_bf16: bool = True

    @property
    def is_cpu(self) -> bool:
        return self.name == CPU


# From NVIDIA's data sheets (SXM unless the name has PCIe) and, for RTX cards, architecture white papers: GiB that the
# driver leaves of the nominal memory; TFLOP/s without sparsity in 16 bits with sums in float32 (float16 on a T4), and
# in float32; GB/s.
_DATA_SHEETS = {
    "b200": (178, 2250, 75, 8000),
    "h200": (139, 989, 67, 4800),
    "h100": (79, 989, 67, 3350),
    "h100_pcie": (79, 756, 51, 2000),
    "a100_80": (79, 312, 19.5, 2039),
    "a100_40": (39.4, 312, 19.5, 1555),
    "l40s": (44.4, 362, 91.6, 864),
    "l4": (22.2, 121, 30.3, 300),
    "a10": (22.2, 125, 31.2, 600),
    "rtx4090": (23.5, 165, 82.6, 1008),
    "rtx3090": (23.5, 71, 35.6, 936),
    "t4": (14.6, 65, 8.1, 320),
}
CARDS = {
    name: Device(name, gib * GIB, half * 1e12, single * 1e12, bandwidth * 1e9, has_bf16=name != "t4")
    for name, (gib, half, single, bandwidth) in _DATA_SHEETS.items()
}


def device_named(name: str | None) -> Device:
    """The card of that name, the processor for `cpu`, this machine's device for None; UserError for other names."""
    if name is None:
        return _card_here() or this_processor()
    if name == CPU:
        return this_processor()
    if name not in CARDS:
        raise UserError(f"gpu={name}: no such card{nearest_and_all(name, [*CARDS, CPU])}")
    return CARDS[name]


def device_with(gib: float) -> Device:
    """A card of that memory, as fast as the card of the table with the nearest memory."""
    like = min(CARDS.values(), key=lambda card: (abs(card.memory / GIB - gib), card.name))
    return replace(like, memory=gib * GIB)


def card_called(driver_name: str) -> Device | None:
    """The card by its driver's name for it, "NVIDIA H100 80GB HBM3"; None for one that is not in the table."""
    words = driver_name.lower().replace("-", " ").split()
    pairs = ("".join(pair) for pair in itertools.pairwise(words))
    models = {*words, *(word.removesuffix("g") for word in words), *pairs}  # "A10G" is a10, "RTX 4090" rtx4090
    for name in sorted(CARDS, key=len, reverse=True):
        model, _, variant = name.partition("_")
        if model in models and (not variant or any(word.startswith(variant) for word in words)):
            return CARDS[name]
    return None


def card_of_driver(driver_name: str, memory: float) -> Device:
    """A card with the memory that its driver reports; an unknown card is as fast as one of similar memory."""
    known = card_called(driver_name)
    return device_with(memory / GIB) if known is None else replace(known, memory=memory)


def this_processor(threads: int | None = None) -> Device:
    cores = threads or int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.is_file() else []
    has_bf16 = not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)
    return Device(CPU, memory, cores * _CORE_FLOPS, cores * _CORE_FLOPS, cores * _CORE_BANDWIDTH, has_bf16)


def _card_here() -> Device | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    name, _, mib = answer.stdout.partition("\n")[0].rpartition(",")
    return card_of_driver(name, float(mib) * 2**20) if name and not answer.returncode else None
