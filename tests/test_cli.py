"""The command line: exit codes, one-line errors, and how little is imported to say no."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rlvr_vocab import cli, errors
from rlvr_vocab.errors import EXIT_CODE_FILE, Interrupted, OutOfRoom, UserError

ROOT = Path(__file__).resolve().parents[1]
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.50 GiB."
HEAVY = ("torch", "transformers", "trl", "datasets", "wandb", "numpy", "rlvr_vocab.training.trainer")


@pytest.mark.parametrize(
    ("commands", "heavy"),
    [
        (("--help", "train --help", "train model.learning_rat=1", "score training.learning_rat=1"), HEAVY),
        (("compare --help", "check dataset=arithmetic", "plan model=tiny"), ("torch", "trl")),
    ],
)
def test_what_needs_no_model_imports_nothing_heavy(commands, heavy):
    script = (
        "import sys; from rlvr_vocab.cli import main; codes = [main(words.split()) for words in sys.argv[1:]];"
        f"print(codes, {{*sys.modules}} & {{*{heavy}}}, file=sys.stderr)"
    )
    expected = [2 if "learning_rat" in words else 0 for words in commands]
    words, environment = [sys.executable, "-c", script, *commands], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.stderr.splitlines()[-1] == f"{expected} set()"


def test_the_script_is_train_from_any_folder_without_an_installed_package(tmp_path):
    script = ROOT / "rlvr_vocab" / "exp" / "grpo_train.py"
    done = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCH_WITHOUT_INSTALLED_PACKAGE, str(script), "seed=x"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr == "error: seed=x: should be a valid integer\n"


# site-packages without its .pth files, so that an editable install of the package is not seen.
LAUNCH_WITHOUT_INSTALLED_PACKAGE = f"""
import runpy, sys
sys.path.extend({[path for path in sys.path if path.endswith("site-packages")]!r})
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = script.rpartition("/")[0]
runpy.run_path(script, run_name="__main__")
"""


def test_bad_input_is_one_line_on_stderr_and_exit_code_2(capsys):
    assert cli.main(["trian"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: unknown command trian; did")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("own", "found"), [({}, cli.SPIN_COUNT), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)]
)
def test_threads_of_torch_sleep_soon_unless_the_user_says_how_they_wait(own, found, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # put back after the test, also what the command sets
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["--help"]) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == found


def test_help_lists_the_commands_and_shows_the_values_that_the_other_words_give(capsys):
    for words in ([], ["--help"], ["-h"]):
        assert cli.main(words) == 0
        assert "  quickstart " in capsys.readouterr().out
    assert cli.main(["train", "training=small_gpu", "model.reasoning_vocab_size=9", "--help"]) == 0
    out = capsys.readouterr().out
    assert "training.num_generations=8 " in out and "exp_name=grpo_reasoning_9 " in out
    assert re.search(r"experiment  .*\bgsm8k_xml_reasoning, .*\bquickstart\b", out)


def fake_command(monkeypatch, error):
    seen = []
    module = types.ModuleType("rlvr_vocab.commands.train")

    def run(settings):
        seen.append(settings)
        if error is not None:
            raise error
        return 3

    module.run = run
    monkeypatch.setitem(sys.modules, "rlvr_vocab.commands.train", module)
    monkeypatch.setitem(sys.modules, "rlvr_vocab.commands", types.ModuleType("rlvr_vocab.commands"))
    return seen


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("two\n  lines"), 2, "error: two lines\n"),
        (UserError("columns are prob\x1b[31mlem\u202e"), 2, "error: columns are prob␛[31mlem<U+202E>\n"),
        (OutOfRoom("full"), 74, "error: full\n"),
        (Interrupted("by SIGTERM"), 75, "interrupted: by SIGTERM\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (None, 3, ""),
    ],
)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_end_of_a_command_is_a_line_and_a_code_that_the_main_process_also_writes_to_a_file(
    error, code, said, rank, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(errors, "_wait_to_be_ended", lambda seconds: None)
    monkeypatch.setenv(EXIT_CODE_FILE, str(tmp_path / "code"))
    monkeypatch.setenv("RANK", rank)
    (tmp_path / "code").write_text("earlier\n")
    fake_command(monkeypatch, error)
    assert cli.main(["quickstart"]) == code
    assert capsys.readouterr().err == said
    assert (tmp_path / "code").read_text() == (f"{code}\n" if rank == "0" else "earlier\n")


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("evaluate", " Keys that decide: batch_size, max_new_tokens"),
        ("train", " Keys that decide: warmup.batch_size, training.per_device_train_batch_size, "),
        ("merge", ""),
    ],
)
def test_a_full_memory_is_one_line_with_the_keys_of_that_command(command, keys, monkeypatch, capsys):
    def run_out(words):
        raise RuntimeError(f"{OUT_OF_MEMORY} If reserved but unallocated memory is large")

    monkeypatch.setattr(cli, "dispatch", run_out)
    assert cli.main([command]) == 74
    assert capsys.readouterr().err.startswith(f"error: {OUT_OF_MEMORY}{keys}")


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), BrokenPipeError("a worker is gone")])
def test_any_other_exception_is_not_swallowed_and_leaves_no_code(error, tmp_path, monkeypatch):
    monkeypatch.setenv(EXIT_CODE_FILE, str(tmp_path / "code"))
    (tmp_path / "code").write_text("75\n")
    fake_command(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        cli.main(["quickstart"])
    assert not (tmp_path / "code").exists()


def unread(*words):
    """Exit code and stderr of Python where nobody reads stdout any more."""
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}  # buffered, as in a shell
    try:
        done = subprocess.run(
            [sys.executable, *words], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "writing", ["print('one')", "from rlvr_vocab.terminal import make_console; make_console().print('one')"]
)
def test_output_that_nobody_reads_any_more_ends_a_command_quietly(writing):
    script = (
        "import sys; from rlvr_vocab import cli\n"
        f"def dispatch(words):\n    {writing}\n    return 0\n"
        "cli.dispatch = dispatch\n"
        "sys.exit(cli.main([]))"
    )
    assert unread("-c", script) == (141, "")
    assert unread("-m", "rlvr_vocab.cli", "--help") == (141, "")


WRITES_ON = (
    "import sys; from rlvr_vocab import cli\n"
    "from rlvr_vocab.config.command_settings import Command\n"
    "from rlvr_vocab.terminal import make_console\n"
    "def run(self, settings):\n"
    "    for _ in range(3):\n"
    "        make_console().print('x' * 20000); print('x' * 20000, flush=True)\n"
    "    open(sys.argv[1], 'w').write('made')\n"
    "    return 0\n"
    "Command.run = run\n"
    "sys.exit(cli.main(['quickstart', 'logging=disabled']))"
)


def test_a_command_that_makes_files_goes_on_where_nobody_reads_its_output(tmp_path):
    assert unread("-c", WRITES_ON, str(tmp_path / "made")) == (0, "")
    assert (tmp_path / "made").read_text() == "made"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_output_to_a_closed_stream_goes_nowhere_and_in_no_other_file(closed, tmp_path):
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", WRITES_ON, str(tmp_path / "made")]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert (tmp_path / "made").read_text() == "made"


LARGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("word", "said"),
    [
        *((f"{key}=-{LARGE}", f"{key}=-1000") for key in ("seed", "training.eval_delay", "model.init_noise")),
        ("training.adam_epsilon=1e400", "training.adam_epsilon=inf: should be a finite number"),
        (f"seed={LARGE * 12}", "4300 digits"),
        (f"output_dir={LARGE}", "File name too long"),
        ("training.num_generations=17 training.per_device_train_batch_size=99999999999999", "does not divide the 3999"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_number_or_a_name_that_is_too_large_is_one_line(word, said, error_of):
    assert said in error_of("train", "model=tiny", "dataset=arithmetic", "logging=disabled", *word.split())
