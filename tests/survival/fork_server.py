"""Runs commands of rlvr-vocab in forks of one process that has imported everything, and troubles them as it is told.

Reads a JSON object a line from standard input and answers each with the exit code of the command, on a line:

    words         the command's words
    log, events   files for what it says, and for each change to files under `watched`, before it happens
    kill_at       number of the change before which the process kills itself, counted from 1
    signals_at    [change, its how manieth occurrence, number of a signal] triples, which it sends to itself
    fill          {"at": change, "file": where, "leave": bytes}: take the room on a disk
"""

import atexit
import gc
import json
import os
import shutil
import signal
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "shutil.rmtree", "os.truncate")


def main():
    for command in ("train", "evaluate", "report", "compare", "samples", "doctor"):
        import_module(f"rlvr_vocab.commands.{command}")  # seconds, which no run has to wait for again
    gc.freeze()  # nor look through for garbage

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(request):
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    Watch(request).begin()
    from rlvr_vocab.cli import main as command

    code = 1
    try:
        code = command(request["words"])
    finally:
        atexit._run_exitfuncs()  # what an ordinary end of Python would do; W&B writes its last rows there
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Watch:
    """Counts the changes to the files of a folder, and does what is to be done at one of them."""

    def __init__(self, request):
        self._folder = os.path.realpath(request["watched"])
        self._events = os.open(request["events"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self._kill_at = request.get("kill_at")
        self._fill = request.get("fill", {})
        self._signals_at = request.get("signals_at", [])
        self._changes = Counter()

    def begin(self):
        sys.addaudithook(self._hook)
        tell_of_what_no_hook_sees(self._reached)

    def _hook(self, event, arguments):
        if event in CHANGES or (event == "open" and is_for_writing(*arguments[1:])):
            path, place = arguments[0], arguments[-1]  # of a deletion the open folder that the path starts in
            if isinstance(path, str):
                relative = event in ("os.remove", "os.rmdir") and place >= 0
                folder = Path(f"/proc/self/fd/{place}").readlink() if relative else Path.cwd()
                self._reached(event, str(folder / path))

    def _reached(self, event, path):
        if not path.startswith(self._folder):
            return
        change = f"{event} {os.path.relpath(path, self._folder)}"
        os.write(self._events, f"{change}\n".encode())
        self._changes[change] += 1
        if self._changes.total() == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        for at, occurrence, number in self._signals_at:
            if change == at and self._changes[change] == occurrence:
                os.kill(os.getpid(), number)
        if change == self._fill.get("at"):
            fill(self._fill["file"], self._fill["leave"])


def is_for_writing(mode, flags):
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if mode is None else any(letter in mode for letter in "wax+")


def tell_of_what_no_hook_sees(reached):
    """torch writes its files from C++, and a sync changes none."""
    import torch

    library = torch
    system = os
    save, sync = library.save, system.fsync

    def save_and_tell(content, file, *rest, **options):
        reached("before torch.save", str(Path(file).absolute()))
        save(content, file, *rest, **options)
        reached("after torch.save", str(Path(file).absolute()))

    def tell_and_sync(descriptor):
        reached("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    library.save, system.fsync = save_and_tell, tell_and_sync


def fill(file, leave):
    """Take all the room of a disk but for so many bytes."""
    free = shutil.disk_usage(Path(file).parent).free
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
    os.posix_fallocate(descriptor, 0, free - leave)
    os.close(descriptor)


if __name__ == "__main__":
    main()
