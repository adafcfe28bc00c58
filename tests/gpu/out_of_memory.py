"""`rlvr-vocab train` in a process that may take little more memory than it has once its model is loaded.

    python tests/gpu/out_of_memory.py FOLDER

On a GPU torch's own limit stands for the card's size; on a CPU the process's address space does.
"""

import resource
import sys
from pathlib import Path

import torch

from rlvr_vocab.cli import main
from rlvr_vocab.training.trainer import RegionGRPOTrainer

ROOM = 256 * 2**20


def limit_memory():
    if torch.cuda.is_available():
        share = (torch.cuda.memory_reserved() + ROOM) / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM, resource.RLIM_INFINITY))


def compute_limited_loss(self, *args, **kwargs):
    limit_memory()
    return own_loss(self, *args, **kwargs)


if __name__ == "__main__":
    [folder] = sys.argv[1:]
    own_loss, RegionGRPOTrainer._compute_loss = RegionGRPOTrainer._compute_loss, compute_limited_loss
    words = (
        *("experiment=quickstart", f"output_dir={folder}/run", "warmup.max_steps=0", "report=false"),
        *("dataset.max_eval_samples=4", "training.eval_steps=null", "training.max_steps=1"),
        *("training.max_completion_length=128", "training.kl_log_steps=0", "training.warmup_ratio=0"),
        *("training.per_device_train_batch_size=256", "training.num_generations=256"),
        f"training.use_cpu={str(not torch.cuda.is_available()).lower()}",
    )
    raise SystemExit(main(["train", *words]))
