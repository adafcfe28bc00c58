"""The rules that hold the repository together: who may import whom, and what no file may hold.

A package imports only packages below it, and there are no import cycles. Imports are read with `ast`, so those inside
functions and under `TYPE_CHECKING` count too.
"""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rlvr_vocab"

# From the top down; packages of one line do not import each other. `__init__` is rlvr_vocab/__init__.py.
LAYERS = (
    ("__main__",),
    ("exp",),
    ("cli",),
    ("commands",),
    ("config.checks",),
    ("runs",),
    ("plan",),
    ("config",),
    ("__init__",),
    ("analysis", "evaluation", "training"),
    ("vocab",),
    ("rewards", "record"),
    ("data",),
    ("sandbox", "verify"),
    ("bounds", "device", "files", "secrets", "statistics"),
    ("terminal", "text"),
    ("errors",),
)
LEVELS = {name: -level for level, packages in enumerate(LAYERS) for name in packages}
PACKAGES_WITHOUT_TORCH = ("config", "data", "plan", "rewards", "verify")
LONGEST_FILE = 500
SOURCE_FOLDERS = ("rlvr_vocab", "tests", "slurm", "benchmarks", "examples", "docs", ".ci")
SOURCE_SUFFIXES = {
    "",
    ".cfg",
    ".css",
    ".html",
    ".ini",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sh",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}
MACHINE_PATH = re.compile(r"(?<![\w.~})/-])/(?:root|work|home)/")


def package_of(path: Path) -> str:
    """The package that a file of the package belongs to."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "__init__" if parts == ("__init__",) else package_of_module(parts)


def package_of_module(parts: Sequence[str]) -> str:
    """The part of the package that a module belongs to: its longest beginning that LAYERS names."""
    two = ".".join(parts[:2])
    return two if two in LEVELS else parts[0] if parts and parts[0] in LEVELS else "__init__"


def imported_modules(source: str, package: str) -> Iterator[str]:
    """Every module that `source`, which lies in `package`, imports, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


def violations(name: str, source: str, package: str) -> list[str]:
    """What `source`, a file of `name`, imports against the rules."""
    found = []
    for module in imported_modules(source, package):
        top, *below = module.split(".")
        if name in PACKAGES_WITHOUT_TORCH and top == "torch":
            found.append(f"{name} imports torch")
        if top != "rlvr_vocab" or below == ["__version__"]:
            continue
        target = package_of_module(below)
        if target != name and LEVELS[target] >= LEVELS[name]:
            found.append(f"{name} imports {module}")
    return found


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def source_files() -> list[Path]:
    inside = (path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(
        path
        for path in [*ROOT.iterdir(), *inside]
        if path.is_file() and path.suffix in SOURCE_SUFFIXES and path.name != "uv.lock"
        if path.suffix != ".json" or path.stat().st_size < 1_000_000
        if "__pycache__" not in path.parts
    )


CODE = [path for path in source_files() if path.suffix in {".py", ".sh"}]


def test_rooms_import_only_lower_layers() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {violation}"
        for path in python_files("rlvr_vocab")
        for violation in violations(
            package_of(path), path.read_text(encoding="utf-8"), ".".join(path.parent.relative_to(ROOT).parts)
        )
    ]
    assert found == []


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Modules that reach themselves through their imports, grouped by circle."""

    def reach(start: str) -> set[str]:
        reached: set[str] = set()
        waiting = [start]
        while waiting:
            for module in imports.get(waiting.pop(), set()) - reached:
                reached.add(module)
                waiting.append(module)
        return reached

    reachable = {module: reach(module) for module in imports}
    found = [
        {other for other in reachable[module] if module in reachable.get(other, set())}
        for module in imports
        if module in reachable[module]
    ]
    return [circle for number, circle in enumerate(found) if circle not in found[:number]]


def file_imports() -> dict[str, set[str]]:
    """Every file of the package, by its dotted name, and those that it imports; a package's face does not count."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in python_files("rlvr_vocab")}
    files = {name: path for name, path in paths.items() if path.name != "__init__.py"}

    def imported(path: Path) -> set[str]:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        names = imported_modules(path.read_text(encoding="utf-8"), package)
        return {name for full in names for name in (full, full.rpartition(".")[0]) if name in files}

    return {name: imported(path) for name, path in files.items()}


def test_no_two_files_import_each_other() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [{"b", "c"}]
    assert circles(file_imports()) == []


def test_every_package_has_a_layer() -> None:
    assert {package_of(path) for path in python_files("rlvr_vocab")} <= LEVELS.keys()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("data", "from rlvr_vocab.vocab import layout"),
        ("vocab", "from ..training.trainer import Trainer"),
        ("vocab", "from rlvr_vocab import expand"),
        ("training", "import rlvr_vocab.evaluation.evaluate as evaluate"),
        ("training", "def late():\n    from rlvr_vocab.exp import cli"),
        ("training", "import importlib\nimportlib.import_module('rlvr_vocab.cli')"),
        ("rewards", "def late():\n    from torch import Tensor"),
    ],
)
def test_forbidden_imports_are_found(name: str, source: str) -> None:
    assert len(violations(name, source, f"rlvr_vocab.{name}")) == 1


def test_rooms_without_torch_load_without_it() -> None:
    packages = [f"rlvr_vocab.{name}" for name in PACKAGES_WITHOUT_TORCH if (PACKAGE / name / "__init__.py").exists()]
    code = f"import {', '.join(['sys', *packages])}; print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"


def test_no_file_of_exp_hides_a_package() -> None:
    # `python rlvr_vocab/exp/grpo_train.py` puts exp/ first on the import path.
    importable = sys.stdlib_module_names | importlib.metadata.packages_distributions().keys()
    here = {path.stem for path in (PACKAGE / "exp").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert here & (importable | {"bitsandbytes", "reasoning_gym", "vllm"}) == set()


def test_no_source_file_is_longer_than_a_topic() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_no_source_file_names_a_path_of_somebodys_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in source_files()
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, version in pins}


def test_constraints_are_plain_versions() -> None:
    for name, version in constraints().items():
        assert re.fullmatch(r"[a-z0-9.-]+", name), name
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), f"{name}=={version}"
    assert not {"pip", "setuptools", "rlvr-vocab"} & constraints().keys()


def test_uv_takes_the_versions_of_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    direct = {re.split(r"[^\w-]", line)[0].lower() for line in project["project"]["dependencies"]}
    expected = sorted(f"{name}=={constraints()[name]}" for name in direct)
    assert sorted(project["tool"]["uv"]["constraint-dependencies"] + project["dependency-groups"]["dev"]) == expected
