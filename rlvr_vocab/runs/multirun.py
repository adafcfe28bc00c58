"""`train --multirun`: the runs of a sweep one after another, each in a process of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlvr_vocab.config.sweep import Job
from rlvr_vocab.counted import counted
from rlvr_vocab.errors import UserError
from rlvr_vocab.exit_codes import OUT_OF_ROOM, RESUME_ME
from rlvr_vocab.stop_signals import STARTED_BY_MULTIRUN, stop_signals

_PACKAGE = str(Path(__file__).parents[2])
_ENDED = {0: "finished", RESUME_ME: "interrupted", OUT_OF_ROOM: "failed (disk or memory full)"}
_LOOKS_EVERY = 0.5  # seconds


def require_one_process() -> None:
    """Raises UserError under a launcher, each of whose processes would start all the runs."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "--multirun starts its runs itself, each in one process: slurm/sweep.sh runs a sweep on several GPUs, and "
            "--job N is one run of it"
        )


def run_jobs(command: str, jobs: Sequence[Job]) -> int:
    """Run all; a run that fails does not keep the next from starting, a signal does.

    Returns:
        0 where all have finished; 75 where the sweep was told to stop, or a run stopped by itself; else the exit code
        of the first that failed.
    """
    codes: list[int] = []
    stop_signals.finishes_first = True
    for number, job in enumerate(jobs, start=1):
        if stop_signals.reason is not None:
            break
        print(f"job {number} of {len(jobs)}: {job} -> {job.folder}", flush=True)
        codes.append(_run(command, job))
    print("\n".join(_outcome(jobs, codes)), flush=True)
    failed = [code for code in codes if code not in (0, RESUME_ME)]
    if stop_signals.reason is not None and (len(codes) < len(jobs) or codes[-1] != 0):
        return RESUME_ME
    return failed[0] if failed else max(codes)


def _run(command: str, job: Job) -> int:
    """The exit code of a run; a signal that this process receives is passed on to it, once."""
    path = os.pathsep.join([_PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, STARTED_BY_MULTIRUN: "1"}
    run = subprocess.Popen([sys.executable, "-P", "-m", "rlvr_vocab.cli", command, *job.words], env=environment)
    stop_signals.at_once = run.kill
    passed_on = False
    while True:
        try:
            code = run.wait(timeout=_LOOKS_EVERY)
        except subprocess.TimeoutExpired:
            if stop_signals.reason is not None and not passed_on:
                run.send_signal(signal.Signals[stop_signals.reason])
                passed_on = True
        else:
            return code if code >= 0 else 128 - code


def _outcome(jobs: Sequence[Job], codes: Sequence[int]) -> Iterator[str]:
    """Where each run is and how it ended, and how to go on from there."""
    finished = [job for job, code in zip(jobs, codes, strict=False) if code == 0]
    yield f"{len(finished)} of {counted(len(jobs), 'job')} finished:"
    ended = [_ENDED.get(code, f"failed (exit code {code})") for code in codes]
    ended += ["not started"] * (len(jobs) - len(codes))
    widest = max(len(str(job.folder)) for job in jobs)
    for number, (job, end) in enumerate(zip(jobs, ended, strict=True), start=1):
        yield f"  {number:>{len(str(len(jobs)))}}  {job.folder!s:<{widest}}  {end}  {job}".rstrip()
    if len(finished) < len(jobs):
        yield "The same command shows what has finished and goes on with the others."
    elif any(not word.startswith("seed=") for job in jobs for word in job.swept):  # else there is one arm only
        yield shlex.join(["rlvr-vocab", "compare", f"runs=[{','.join(str(job.folder) for job in jobs)}]"])
