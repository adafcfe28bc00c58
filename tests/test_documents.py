"""The documents say what is true: commands compose, links lead somewhere, tables name every key, snippets run."""

import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlvr_vocab.config.checks.run import check_rewards, check_training, check_warmup
from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.config.command_settings import COMMANDS
from rlvr_vocab.config.help import overview, printed
from rlvr_vocab.config.load import as_mapping, compose, read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.config.sections import RunSettings
from rlvr_vocab.config.values import leaves
from rlvr_vocab.runs.multirun import jobs_of
from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINKED_DOCUMENTS = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

FENCE = re.compile(
    r"(?:<!-- (?P<note>[^\n]*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
TABLE = re.compile(r"<!-- (?P<table>\w+) -->\n(?P<rows>.*?)<!-- /(?P=table) -->", re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
ROW = re.compile(r"^\| `(?P<key>[^`]+)` \| `(?P<default>[^`]+)` \| (?P<meaning>.*) \|$", re.MULTILINE)

# Numbers of snippets as the test that runs them has them, for tiny models.
SHORT = {"max_steps": 1, "max_completion_length": 16, "max_new_tokens": 8, "reasoning_vocab_size": 100}

# Sections that only one choice fills, shown with the values of that choice.
FILLED_BY = {"model.tiny": "model=tiny", "dataset.generator": "dataset=arithmetic"}


needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed: pip install -e '.[gym]'"
)


def blocks(document, *languages):
    """The fenced blocks of a document in these languages, as matches of FENCE."""
    found = FENCE.finditer(document.read_text(encoding="utf-8"))
    return [block for block in found if block["language"] in languages]


def table_rows(document, table):
    """The lines of the one table of a document that stands between comments with its name."""
    found = TABLE.finditer(document.read_text(encoding="utf-8"))
    [rows] = [match["rows"] for match in found if match["table"] == table]
    return rows


def name(document):
    return document.relative_to(ROOT).as_posix()


# --- commands -----------------------------------------------------------------------------------


def shell_lines(document):
    """One command each: continuation lines joined, loops and chains taken apart, comments left out."""
    for block in blocks(document, "sh", "bash"):
        for line in block["text"].replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|;", line):
                words = part.strip().removeprefix("do ").strip()
                if words and not words.startswith("#"):
                    yield words


def our_command(line):
    """The command of ours that a shell line starts and its words, or None for any other line."""
    line = re.sub(r"\$\{?\w+\}?", "1", line)  # shell variables: seeds
    line = re.sub(r" > \S+$", "", line)  # where its output goes
    words = [re.sub(r"<[\w-]+>", "1", word) for word in shlex.split(line, comments=True)]
    for position, word in enumerate(words):
        rest = words[position + 1 :]
        if word.endswith("rlvr-vocab") and rest:
            return rest[0], rest[1:]
        if word.endswith("exp/grpo_train.py"):
            return "train", rest
        if word.endswith("slurm/train_baseline.sh"):
            return "train", ["model.reasoning_vocab_size=0", *rest]
        if word.endswith("slurm/train_reasoning.sh"):
            return "train", ["model.reasoning_vocab_size=full", *rest]
        if word.endswith("slurm/sweep.sh"):
            return "train", ["--multirun", *rest]
        if word == "make" and rest[0] == "quickstart":
            given = [shlex.split(extra.removeprefix("ARGS=")) for extra in rest[1:] if extra.startswith("ARGS=")]
            return "quickstart", ["overwrite=true", *(extra for words in given for extra in words)]
    return None


def our_commands():
    for document in DOCUMENTS:
        for line in shell_lines(document):
            if our_command(line) is not None:
                marks = [needs_gym] if re.search(r"reasoning_gym|=gym_", line) else []
                marks += [] if document == README else [pytest.mark.slow]
                yield pytest.param(line, id=f"{name(document)}: {' '.join(line.split())}", marks=marks)


@pytest.fixture(scope="module")
def folder_of_files(tmp_path_factory):
    """The folder that a reader ends up with: files the documents show by name, and a run to start from."""
    folder = tmp_path_factory.mktemp("reader")
    for document in DOCUMENTS:
        for block in blocks(document, "yaml", "python"):
            path = re.match(r"(?:# @package \S+\n)?# (\S+\.(?:yaml|py))\n", block["text"])
            if path is not None:
                (folder / path[1]).parent.mkdir(parents=True, exist_ok=True)
                (folder / path[1]).write_text(block["text"], encoding="utf-8")
    recorded = config_yaml(read_settings("train", []).resolved)
    commands = [found for document in DOCUMENTS for found in map(our_command, shell_lines(document)) if found]
    words = " ".join(word for _, words in commands for word in words if re.match(r"runs?=|config=|checkpoint=", word))
    for run in set(re.findall(r"\bout/([\w-]+)", words.replace("?", "0"))):
        (folder / "out" / run).mkdir(parents=True)
        (folder / "out" / run / "config.yaml").write_text(recorded, encoding="utf-8")
    return folder


@pytest.fixture
def readers_folder(folder_of_files, monkeypatch):
    monkeypatch.chdir(folder_of_files)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: True)


@pytest.mark.parametrize("line", list(our_commands()))
@pytest.mark.usefixtures("readers_folder")
def test_a_documented_command_composes(line):
    """Files, models and packages, which only the reader's machine can have, are not looked at."""
    command, words = our_command(line)
    if command in ("--help", "-h"):
        return
    assert command in COMMANDS, f"no command {command}"
    parsed = parse_command_line(command, words)
    if parsed.help:
        printed(parsed)
        return
    for run in [job.words for job in jobs_of(command, words)] if parsed.multirun else [words]:
        settings = read_settings(command, run)
        if isinstance(settings, RunSettings):
            check_warmup(settings)
            check_training(settings)
            check_rewards(settings.rewards)


@pytest.mark.parametrize("document", LINKED_DOCUMENTS, ids=name)
def test_make_targets_and_commands_in_running_text_exist(document):
    targets = re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    spans = [*re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8")), *shell_lines(document)]
    for span in spans:
        if target := re.match(r"make ([\w-]+)", span):
            assert target[1] in targets, span
        if command := re.match(r"rlvr-vocab (\w+)", span):
            assert command[1] in COMMANDS, span


def test_the_readme_is_short_and_lists_every_command_as_the_help_does():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 170
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", table_rows(README, "commands"), re.MULTILINE)
    assert [f"  {command:<12}{line}" for command, line in rows] == re.findall(r"^  .*", overview(), re.MULTILINE)


# --- configuration keys -------------------------------------------------------------------------


def documented_keys():
    """key -> default as it stands in docs/configuration.md."""
    rows = list(ROW.finditer(table_rows(CONFIGURATION, "keys")))
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), f"named twice: {sorted({key for key in keys if keys.count(key) > 1})}"
    return {row["key"]: row["default"] for row in rows}


def actual_keys():
    """key -> default as the shipped files have it, interpolations applied."""

    def keys_of_run(*words):
        return dict(leaves(as_mapping(compose(parse_command_line("train", words)).config, resolve=True)))

    keys = keys_of_run()
    for section, choice in FILLED_BY.items():
        keys |= {key: value for key, value in keys_of_run(choice).items() if key.startswith(f"{section}.")}
    return keys


def is_written_as(value, cell):
    read = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={cell}"]))["value"]
    return str(value) == cell or (read == value and isinstance(read, bool) == isinstance(value, bool))


def test_the_key_table_names_every_key_of_a_run_with_its_default_and_no_other():
    documented, actual = documented_keys(), actual_keys()
    assert sorted(actual.keys() - documented.keys()) == [], "missing in docs/configuration.md"
    assert sorted(documented.keys() - actual.keys()) == [], "documented, but no such key"
    wrong = {key: (cell, actual[key]) for key, cell in documented.items() if not is_written_as(actual[key], cell)}
    assert wrong == {}, "the document says the first, conf/ the second"


# --- links, pictures, snippets ------------------------------------------------------------------


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


def links():
    for document in LINKED_DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
        for match in LINK.finditer(text):
            if "://" not in match["target"] and not match["target"].startswith("mailto:"):
                yield pytest.param(document, match["target"], id=f"{name(document)}: {match['target']}")


@pytest.mark.parametrize(("document", "target"), list(links()))
def test_a_relative_link_leads_somewhere(document, target):
    path, _, anchor = target.partition("#")
    goal = (document.parent / path).resolve() if path else document
    assert goal.exists(), f"{name(document)} shows {target}, which is not there"
    if anchor:
        headings = re.findall(r"^#+ (.+)$", goal.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in map(slug, headings), f"no heading {anchor} in {goal.name}"


@pytest.mark.slow
@pytest.mark.parametrize("document", [path for path in DOCUMENTS if blocks(path, "python")], ids=name)
def test_python_snippets_run_from_top_to_bottom(document, tmp_path, monkeypatch, expand_shape, make_shape):
    monkeypatch.chdir(tmp_path)
    text = document.read_text(encoding="utf-8")
    for folder in set(re.findall(r'= "(out/[\w/-]+/final_model)"', text)):
        shutil.copytree(expand_shape("qwen3", size=None), tmp_path / folder)
    for hub_name in set(re.findall(r'= ?"(Qwen/[\w.-]+)"', text)):
        shutil.copytree(make_shape("qwen2").folder, tmp_path / hub_name)
        if document.name == "tools.md":
            (tmp_path / hub_name / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    names = {"__name__": "snippets"}
    for block in blocks(document, "python"):
        if not (block["note"] or "").startswith("not run"):
            code = "\n" * text.count("\n", 0, block.start("text")) + block["text"]  # at its line of the document
            for key, short in SHORT.items() if document.name in ("python.md", "tools.md") else ():
                code = re.sub(rf"\b{key}=\d+", f"{key}={short}", code)
            exec(compile(code, str(document), "exec"), names)
