"""The completions of a run as they are shown: which, in which order, and that nothing in them acts on its reader."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlvr_vocab.analysis.samples import (
    CorrectnessReward,
    SampleFilter,
    count_tokens,
    find_samples,
    sample_text,
    shown_sample,
)
from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker, TextSpan
from rlvr_vocab.vocab.tokenizer import load_tokenizer

CORRECTNESS = CorrectnessReward("accuracy", 1.0)
HOSTILE = (
    "<script>alert(1)</script> \"'><img src=x onerror=alert(1)>\n",
    "nul \0 bell \a escape \x1b[2J\x1b]0;title\x07 return \r right to left \u202e zero \u200b width\ufeff\n",
    "--- step 1, completion 1\nreward: 99\n",
    "[red]markup[/red] [@click=quit()]x[/] {{ 7 * 7 }} {0} {title} %s\n",
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ufeff]")
STEPS, ROWS, PER_PROBLEM = 20, 16, 8


@pytest.fixture(scope="module")
def model_folder(expand_shape):
    """A model with two copies of every standard token."""
    return expand_shape("qwen3", size=None, multiplicity=2)


@pytest.fixture(scope="module")
def finished_run(model_folder, tmp_path_factory):
    """Not to be written into. Of each problem's completions the first half is right; the reward rises with the step."""
    run = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(model_folder, run / "initial_model")
    settings = read_settings("train", ["model=tiny", "model.reasoning_vocab_size=full"])
    (run / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    grader = {"name": "accuracy", "functions": [{"name": "accuracy"}], "threshold": 1.0}
    (run / "problems.json").write_text(json.dumps({"grader": grader}), encoding="utf-8")
    tokenizer = load_tokenizer(model_folder)
    (run / "completions").mkdir()
    for step in range(1, STEPS + 1):
        write_step(run, step, tokenizer)
    return run


def write_step(run, step, tokenizer):
    """The two problems of a step come again ten steps later; a thought begins with a copy."""
    layout, rows = VocabLayout.load(run / "initial_model"), []
    for row in range(ROWS):
        problem, right = (step % 10) * 2 + row // PER_PROBLEM, row % PER_PROBLEM < PER_PROBLEM // 2
        ids = tokenizer.encode(f"<think>{problem} and one, step {step}</think>\\boxed{{{problem + 1 if right else 0}}}")
        ids[1] += layout.standard_size
        rows.append(
            {
                "prompt": f"What is {problem} + 1?",
                "completion": tokenizer.decode(ids),
                "prompt_ids": [0],
                "completion_ids": ids,
                "solution": str(problem + 1),
                "advantage": 1.0 if right else -1.0,
                "reward": right + step / 100,
                "reward/accuracy": float(right),
                "reward/speed": step / 100,
                "reason/accuracy": "equal" if right else "different: 0 is not it",
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), run / "completions" / f"step_{step:05}.parquet")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, [(step, row) for step in range(1, 21) for row in range(1, 17)]),
        ({"step": "19:"}, [(step, row) for step in (19, 20) for row in range(1, 17)]),
        # Steps 3 and 13 ask about 6 and 7.
        ({"problem": "what is 6 +"}, [(step, row) for step in (3, 13) for row in range(1, 9)]),
        ({"contains": "AND ONE, STEP 20<"}, [(20, row) for row in range(1, 17)]),
        ({"step": "1", "verdict": "right"}, [(1, row) for row in (1, 2, 3, 4, 9, 10, 11, 12)]),
        ({"step": "1", "verdict": "wrong"}, [(1, row) for row in (5, 6, 7, 8, 13, 14, 15, 16)]),
        ({"min_reward": 1.2}, [(20, row) for row in (1, 2, 3, 4, 9, 10, 11, 12)]),
        ({"min_reward": 0.02, "max_reward": 0.02}, [(2, row) for row in (5, 6, 7, 8, 13, 14, 15, 16)]),
        ({"contains": "(.*) no pattern"}, []),
    ],
)
def test_a_filter_lets_through_what_it_says_in_the_order_of_the_files(finished_run, conditions, expected):
    files = CompletionFiles(finished_run / "completions")
    assert [*find_samples(files, SampleFilter(**conditions), CORRECTNESS, "file", [])] == expected


# --- a completion with its facts ---


def sample_of(text):
    """A sample every field of which is hostile."""
    own = SampledCompletion(3, 2, text, text, text, 0.5, -1.25, {"accuracy": 0.5}, {"accuracy": text}, [], [])
    spans = (TextSpan(text, 0), TextSpan(text, 1), TextSpan(text, 9))
    return replace(shown_sample(own, None, CORRECTNESS), parts=[("completion", spans)])


def test_a_turn_whose_text_is_not_that_of_its_ids_is_shown_unmarked(model_folder):
    marker = Marker.from_folder(model_folder)
    ids = [marker.layout.standard_size + load_tokenizer(model_folder).encode("7")[0]]
    for content, copies in (("7", 1), ("other", 0)):
        messages = [{"role": "assistant", "content": content}]
        own = SampledCompletion(1, 1, "p", "", "", 0.0, 0.0, completion_ids=ids, messages=messages, segments=[1])
        assert shown_sample(own, marker).parts == [("assistant", [TextSpan(content, copies)])]


def test_tokens_are_counted_in_the_region_in_which_they_were_chosen(model_folder):
    layout = Marker.from_folder(model_folder).layout
    opened, closed = layout.think_open_id, layout.think_close_id
    end = next(each for each in layout.control_ids if each not in (opened, closed))
    for prompt, ids, expected in (
        (
            [9, opened],
            [5, layout.standard_size, closed, 9],
            "4: 3 thinking (1 of them reasoning tokens), 1 answering; cut off",
        ),
        ([opened, *layout.turn_ids], [5, end], "2: 0 thinking, 2 answering; ended by itself"),
        ([], [end, 5], "2: 0 thinking, 2 answering; cut off"),
    ):
        assert count_tokens(prompt, ids, layout) == expected


# --- what is written ---


def test_nothing_that_is_written_is_obeyed_by_a_screen():
    samples = [sample_of(text) for text in HOSTILE]
    texts = [sample_text(each, colour=colour).plain for each in samples for colour in (False, True)]
    assert not any(CONTROL.search(text) for text in texts)
    titles = [line for text in texts for line in text.split("\n") if line.startswith("---")]
    assert titles == ["--- step 3, completion 2"] * len(texts)  # what is not ours is indented


# --- the command ---


def test_a_file_is_written_as_text(finished_run, tmp_path, capsys):
    out = tmp_path / "a" / "b.txt"
    assert main(["samples", f"run={finished_run}", "order=highest", "max_samples=2", f"out={out}"]) == 0
    assert out.read_text(encoding="utf-8").startswith("completions of")
    assert re.findall(r"step \d+, completion \d+", out.read_text()) == [
        "step 20, completion 1",
        "step 20, completion 2",
    ]
    assert capsys.readouterr().out == f"2 completions are in {out}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["contains=nowhere", "step=3:"], "step=3: contains=nowhere: matches no completion"),
        (["contains=nowhere"], "; contains looks in completions, problem= in problems"),
        (["step=ten"], "step=ten: give a step or a range"),
        (["step=50:10"], "step=50:10: matches no completion"),
        (["out=/proc/a/x.txt", "max_samples=1"], "out=/proc/a/x.txt cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(finished_run, error_of, args, message):
    assert message in error_of("samples", f"run={finished_run}", *args)


def test_a_verdict_of_a_grader_that_is_no_reward_of_the_run_is_refused(finished_run, tmp_path, capsys):
    shutil.copytree(finished_run / "completions", tmp_path / "completions")
    shutil.copy(finished_run / "config.yaml", tmp_path)
    record = (finished_run / "problems.json").read_text().replace("accuracy", "numeric")
    (tmp_path / "problems.json").write_text(record)
    assert main(["samples", f"run={tmp_path}", "verdict=right"]) == 2
    assert "verdict=right: the completions have no scores of numeric" in capsys.readouterr().err


def test_damaged_files_are_named_and_the_rest_is_shown(finished_run, tmp_path, capsys):
    for name in ("config.yaml", "problems.json"):
        shutil.copy(finished_run / name, tmp_path)
    assert main(["samples", f"run={tmp_path}"]) == 2
    (tmp_path / "completions").mkdir()
    (tmp_path / "completions" / "step_00002.parquet").write_bytes(b"PAR1")
    assert main(["samples", f"run={tmp_path}"]) == 2
    assert "no completion could be read" in capsys.readouterr().err
    shutil.copy(finished_run / "completions" / "step_00001.parquet", tmp_path / "completions")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "completions" / "step_00003.parquet")
    assert main(["score", f"completions={tmp_path / 'completions' / 'step_00003.parquet'}"]) == 2
    assert "has no column completion" in capsys.readouterr().err
    assert main(["samples", f"run={tmp_path}", "verdict=right", "problem=what is 3 +"]) == 0
    captured = capsys.readouterr()
    assert re.findall(r"^--- (.*)$", captured.out, re.MULTILINE) == [f"step 1, completion {n}" for n in range(9, 13)]
    assert "left out: " in captured.err and "step_00002" in captured.err
    assert "no file of a run's completions" in captured.err and "step_00003" in captured.err
    assert "reasoning tokens are not marked" in captured.err  # there is no initial_model/ here


@pytest.mark.parametrize(("pager", "fewest", "most"), [("head -4", 4, 4), ("", 2_000, 10_000)])
def test_on_a_terminal_a_pager_gets_it_in_colour_and_may_be_closed_early(finished_run, pager, fewest, most):
    """An empty `PAGER` is none."""
    code, terminal = [sys.executable, "-m", "rlvr_vocab.cli", "samples", f"run={finished_run}"], b""
    child, shown = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", PAGER=pager)
        os.environ.pop("NO_COLOR", None)
        os.execv(sys.executable, code)
    try:
        while piece := os.read(shown, 65536):
            terminal += piece
    except OSError:  # Linux says so at the end of a terminal
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"\x1b[1;35mfirst copies" in terminal and b"Traceback" not in terminal and b"Error" not in terminal
    assert fewest <= terminal.count(b"\n") <= most


def test_showing_and_judging_a_run_import_nothing_heavy(finished_run):
    """Each of these is a second or more."""
    (finished_run / "metrics.jsonl").touch()
    code = (
        "import sys; from rlvr_vocab.cli import main;"
        f"assert main(['samples', 'run={finished_run}', 'max_samples=1']) == 0;"
        f"assert main(['doctor', 'run={finished_run}']) == 0;"
        "print({'torch', 'pandas', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
