"""A pool of processes for work on untrusted text: an item may hang, crash or eat memory, the caller goes on.

    caller ──starts──▶ template ──forks──▶ worker, worker, …
       └──────────── items and answers ───────┘

The template is one fresh, single-threaded interpreter that has imported the task. It forks a ready worker in
milliseconds, so a worker that is late or dead is cheap to replace. `multiprocessing` is no substitute: forking the
caller is unsafe once it runs threads or CUDA, and its other start methods run the caller's script again.
"""

from rlvr_vocab.verify.pool.outcome import Failure, Outcome
from rlvr_vocab.verify.pool.worker_pool import WorkerPool, shared_pool

__all__ = ["Failure", "Outcome", "WorkerPool", "shared_pool"]
