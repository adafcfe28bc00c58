"""python rlvr_vocab/exp/grpo_train.py key=value … is the same thing as rlvr-vocab train key=value …"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, Python puts exp/ first on the import path; the package may not be installed.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    sys.path.insert(0, str(here.parents[1]))

from rlvr_vocab.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["train", *sys.argv[1:]]))
