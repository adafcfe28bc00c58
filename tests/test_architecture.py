"""Who may import whom, also inside functions and under `TYPE_CHECKING`, and how long a file may be."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rlvr_vocab"

# From the top down; packages of one line do not import each other. `__init__` is rlvr_vocab/__init__.py.
LAYERS = (
    ("__main__",),
    ("exp",),
    ("cli",),
    ("commands",),
    ("config.checks",),
    ("__init__",),
    ("runs",),
    ("plan",),
    ("config",),
    ("analysis", "evaluation", "training"),
    ("tools",),
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


def package_of(parts):
    """The part of the package that a module belongs to: its longest beginning that LAYERS names."""
    two = ".".join(parts[:2])
    return two if two in LEVELS else parts[0] if parts and parts[0] in LEVELS else "__init__"


def imported_modules(source):
    """Every module that `source` imports, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant))


def violations(name, source):
    """The imports of `source`, a file of `name`, that break the rules."""
    found = []
    for module in imported_modules(source):
        top, *below = module.split(".")
        if name in PACKAGES_WITHOUT_TORCH and top == "torch":
            found.append(f"{name} imports torch")
        if top != "rlvr_vocab" or below == ["__version__"]:
            continue
        target = package_of(below)
        if target != name and LEVELS[target] >= LEVELS[name]:
            found.append(f"{name} imports {module}")
    return found


def package_files():
    """Every file of the package, by its dotted name below rlvr_vocab."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def test_packages_import_only_lower_layers():
    found = [
        f"{name}: {violation}"
        for name, path in package_files().items()
        for violation in violations(package_of(name.split(".")), path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert len(violations("rewards", "def late():\n    from torch import Tensor")) == 1
    assert len(violations("vocab", "from rlvr_vocab.training.trainer import Trainer")) == 1


def test_no_two_files_import_each_other():
    files = {f"rlvr_vocab.{name}": path for name, path in package_files().items() if path.name != "__init__.py"}
    imports = {}
    for name, path in files.items():
        full = imported_modules(path.read_text(encoding="utf-8"))
        imports[name] = {part for each in full for part in (each, each.rpartition(".")[0]) if part in files}

    def reach(start):
        reached = set()
        waiting = [start]
        while waiting:
            new = imports[waiting.pop()] - reached
            reached |= new
            waiting += new
        return reached

    assert [name for name in files if name in reach(name)] == []


def test_no_file_of_exp_hides_a_package():
    # `python rlvr_vocab/exp/grpo_train.py` puts exp/ first on the import path.
    importable = sys.stdlib_module_names | importlib.metadata.packages_distributions().keys()
    here = {path.stem for path in (PACKAGE / "exp").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert here & (importable | {"bitsandbytes", "reasoning_gym", "vllm"}) == set()


def test_no_source_file_is_longer_than_a_topic():
    folders = ("rlvr_vocab", "tests", "slurm", "benchmarks", "examples")
    files = [path for folder in folders for pattern in ("*.py", "*.sh") for path in (ROOT / folder).rglob(pattern)]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_constraints_are_plain_versions_and_uv_takes_them():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if line and not line.startswith("#"))
    for name, version in pins.items():
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9][0-9a-z.]*", f"{name}=={version}"), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    direct = {re.split(r"[^\w-]", line)[0].lower() for line in project["project"]["dependencies"]}
    expected = sorted(f"{name}=={pins[name]}" for name in direct)
    assert sorted(project["tool"]["uv"]["constraint-dependencies"] + project["dependency-groups"]["dev"]) == expected
