"""Lets accelerate shard on a CPU what it shards on GPUs alone: over gloo it would train in plain data parallel.

`fsdp_on_cpu.py key=value …` is `rlvr-vocab train key=value …` under it.
"""

import sys

from accelerate import PartialState
from accelerate.utils import DistributedType


def shard_on_cpu():
    """Call it before anything makes a `PartialState`.

    `AcceleratorState` looks at `ACCELERATE_USE_FSDP` where the processes have GPUs, and does not where they have
    none. Everything else of FSDP2 is the same: `fully_shard` takes any device mesh.
    """
    own_init = PartialState.__init__

    def init(self, *args, **kwargs):
        own_init(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    PartialState.__init__ = init


if __name__ == "__main__":
    from rlvr_vocab.cli import main

    shard_on_cpu()
    raise SystemExit(main(["train", *sys.argv[1:]]))
