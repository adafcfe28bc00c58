"""What the usual cards can do, by their makers' data sheets, and what is in this machine."""

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
# Of one core, in float32 and without AMX: what products of a trainer's size reach on current x86 servers, measured.
_CORE_FLOPS, _CORE_BANDWIDTH = 60e9, 8e9


@dataclass(frozen=True)
class Device:
    """One card, or the processor.

    Attributes:
        memory: bytes that programs can have.
        flops: peak of dense products in 16 bits, a second; `flops_float32`: in float32, without TF32.
            Of a processor both are what products reach.
        bandwidth: of its memory, bytes a second.
        has_bf16: whether it multiplies in bfloat16.
    """

    name: str
    memory: float
    flops: float
    flops_float32: float
    bandwidth: float
    has_bf16: bool

    @property
    def is_cpu(self) -> bool:
        return self.name == CPU


def _card(name: str, gib: float, flops: tuple[float, float], bandwidth: float, *, has_bf16: bool = True) -> Device:
    """`flops` in units of 10^12, `bandwidth` in GB a second."""
    return Device(name, gib * GIB, flops[0] * 1e12, flops[1] * 1e12, bandwidth * 1e9, has_bf16)


# By NVIDIA's data sheets (SXM but where the name says otherwise) and, for the RTX cards, architecture white papers.
# Memory is what the driver leaves of the nominal size. TFLOP/s are those without sparsity, in 16 bits with sums in
# float32, and in float32; the 16 bits of a T4 are float16.
CARDS = {
    card.name: card
    for card in (
        _card("b200", 178, (2250, 75), 8000),
        _card("h200", 139, (989, 67), 4800),
        _card("h100", 79, (989, 67), 3350),
        _card("h100_pcie", 79, (756, 51), 2000),
        _card("a100_80", 79, (312, 19.5), 2039),
        _card("a100_40", 39.4, (312, 19.5), 1555),
        _card("l40s", 44.4, (362, 91.6), 864),
        _card("l4", 22.2, (121, 30.3), 300),
        _card("a10", 22.2, (125, 31.2), 600),
        _card("rtx4090", 23.5, (165, 82.6), 1008),
        _card("rtx3090", 23.5, (71, 35.6), 936),
        _card("t4", 14.6, (65, 8.1), 320, has_bf16=False),
    )
}


def device_named(name: str | None, threads: int | None = None) -> Device:
    """A card by its name in the table, the processor as `cpu`, None for the device of this machine.

    Raises:
        UserError: no such card is known.
    """
    if name is None:
        found = _card_here()
        return this_processor(threads) if found is None else found
    if name == CPU:
        return this_processor(threads)
    if name not in CARDS:
        raise UserError(f"gpu={name}: no such card{nearest_and_all(name, [*CARDS, CPU])}")
    return CARDS[name]


def device_with(gib: float) -> Device:
    """A card of so much memory, as fast as the one of the table whose memory is nearest."""
    like = min(CARDS.values(), key=lambda card: (abs(card.memory / GIB - gib), card.name))
    return replace(like, memory=gib * GIB)


def card_called(driver_name: str) -> Device | None:
    """The card by what its driver calls it, "NVIDIA H100 80GB HBM3"; None for one that is not in the table."""
    words = driver_name.lower().replace("-", " ").split()
    pairs = ("".join(pair) for pair in itertools.pairwise(words))
    models = {*words, *(word.removesuffix("g") for word in words), *pairs}  # "A10G" is a10, "RTX 4090" rtx4090
    for name in sorted(CARDS, key=len, reverse=True):
        model, _, variant = name.partition("_")
        if model in models and (not variant or any(word.startswith(variant) for word in words)):
            return CARDS[name]
    return None


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
    if answer.returncode or not answer.stdout.strip():
        return None
    name, _, mib = answer.stdout.splitlines()[0].rpartition(",")
    known = card_called(name)
    if known is None:
        raise UserError(f"gpu: {name.strip()} is not in the table of cards; name a like one, gpu={'|'.join(CARDS)}")
    return replace(known, memory=float(mib) * 2**20)
