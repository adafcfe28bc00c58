"""The completions of a run as they are shown: which, in which order, and that nothing in them acts on its reader."""

import os
import pty
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from rlvr_vocab.analysis.samples import (
    CorrectnessReward,
    SampleFilter,
    SampleReader,
    count_tokens,
    find_samples,
    sample_text,
    samples_page,
)
from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.record.metrics import RewardFact
from rlvr_vocab.text import visible_lines
from rlvr_vocab.training.metrics.completions import CompletionRows, write_completions
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.marking import Marker, TextSpan
from rlvr_vocab.vocab.tokenizer import load_tokenizer

CORRECTNESS = CorrectnessReward("accuracy", 1.0)
HOSTILE = (
    "<script>alert(1)</script> \"'><img src=x onerror=alert(1)>\n",
    "nul \0 bell \a escape \x1b[2J\x1b]0;title\x07 return \r end\n",
    "right to left \u202e gpj.exe \u2066 zero \u200b width\ufeff\n",
    "--- step 1, completion 1\nreward: 99\n",
    "[red]markup[/red] [@click=quit()]x[/] {{ 7 * 7 }} {0} {title} %s\n",
    "日本語 🙂 café " + "x" * 300,
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ufeff]")
STEPS, ROWS, PER_PROBLEM = 50, 64, 8


@pytest.fixture(scope="module")
def model_folder(expand_shape: Callable[..., Path]) -> Path:
    """A model with two copies of every standard token."""
    return expand_shape("qwen3", size=None, multiplicity=2)


@pytest.fixture(scope="module")
def finished_run(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be written into. Of each problem's completions the first half is right; the reward rises with the step."""
    run = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(model_folder, run / "initial_model")
    settings = read_settings("train", ["model=tiny", "model.reasoning_vocab_size=full"])
    (run / "config.yaml").write_text(config_yaml(settings.resolved), encoding="utf-8")
    tokenizer = load_tokenizer(model_folder)
    for step in range(1, STEPS + 1):
        write_step(run, step, tokenizer)
    return run


def write_step(run: Path, step: int, tokenizer: object) -> None:
    """The problems of a step come again ten steps later."""
    layout, rng = VocabLayout.load(run / "initial_model"), random.Random(step)
    prompts, completions, right = [], [], []
    for row in range(ROWS):
        problem = (step % 10) * 8 + row // PER_PROBLEM
        prompts.append(tokenizer.encode(f"<|im_start|>user\nWhat is {problem} + 1?<|im_end|>\n<|im_start|>assistant\n"))
        right.append(row % PER_PROBLEM < PER_PROBLEM // 2)
        answer = problem + 1 if right[-1] else 0
        ids = tokenizer.encode(f"<think>{problem} and one, step {step}</think>\\boxed{{{answer}}}<|im_end|>")
        closed = ids.index(layout.think_close_id)
        completions.append(
            [
                token + layout.standard_size * rng.choice((0, 1, 2)) if 0 < position < closed else token
                for position, token in enumerate(ids)
            ]
        )
    rows = CompletionRows(
        prompt_ids=prompts,
        completion_ids=completions,
        completion=tokenizer.batch_decode(completions, skip_special_tokens=True),
        solution=[str((step % 10) * 8 + row // PER_PROBLEM + 1) for row in range(ROWS)],
        advantage=[1.0 if each else -1.0 for each in right],
        rewards={"accuracy": [float(each) for each in right], "speed": [step / 100] * ROWS},
        weights={"accuracy": 1.0, "speed": 1.0},
        reasons={"accuracy": ["equal" if each else "different: 0 is not it" for each in right]},
    )
    write_completions(rows, step, tokenizer, run / "completions")


# --- which are found ---


def found(run, order="file", correctness=CORRECTNESS, unreadable=None, **conditions):
    files, unreadable = CompletionFiles(run / "completions"), [] if unreadable is None else unreadable
    return [*find_samples(files, SampleFilter(**conditions), correctness, order, unreadable)]


def test_everything_is_found_in_the_order_of_the_files(finished_run):
    assert found(finished_run) == [(step, row) for step in range(1, 51) for row in range(1, 65)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"step": "49:"}, {(step, row) for step in (49, 50) for row in range(1, 65)}),
        # Steps 3, 13, … ask about 24 to 31; the problem 24 is the first group.
        ({"problem": "what is 24 +"}, {(step, row) for step in range(3, 51, 10) for row in range(1, 9)}),
        ({"contains": "AND ONE, STEP 50<"}, {(50, row) for row in range(1, 65)}),
        ({"step": "1", "verdict": "right"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"step": "1", "verdict": "wrong"}, {(1, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"min_reward": 1.5}, {(50, row) for row in range(1, 65) if (row - 1) % 8 < 4}),
        ({"min_reward": 0.02, "max_reward": 0.02}, {(2, row) for row in range(1, 65) if (row - 1) % 8 >= 4}),
        ({"contains": "(.*) no pattern"}, set()),
    ],
)
def test_a_filter_lets_through_what_it_says(finished_run, conditions, expected):
    assert set(found(finished_run, **conditions)) == expected


@pytest.mark.parametrize(
    ("columns", "conditions"),
    [
        ({"reward": ["high"]}, {}),
        ({"reward": [1.0]}, {"contains": "x"}),
        ({"reward": [1.0], "completion": [7]}, {"contains": "x"}),
    ],
)
def test_a_file_that_is_none_of_ours_is_passed_over_and_named(columns, conditions, tmp_path):
    (tmp_path / "completions").mkdir()
    pd.DataFrame(columns).to_parquet(tmp_path / "completions" / "step_00001.parquet")
    unreadable = []
    assert found(tmp_path, unreadable=unreadable, **conditions) == [] and "step_00001" in unreadable[0]


# --- a completion with its facts ---


def sample_of(text, spans=None):
    """A sample every field of which is hostile."""
    own = SampledCompletion(3, 2, text, text, text, 0.5, -1.25, {"accuracy": 0.5}, {"accuracy": text}, [], [])
    shown = SampleReader((), CORRECTNESS, None).sample(own)
    return replace(shown, spans=spans or (TextSpan(text, 0), TextSpan(text, 1), TextSpan(text, 9)))


def test_the_facts_of_a_completion(finished_run):
    marker = Marker.from_folder(finished_run / "initial_model")
    rewards = (RewardFact("accuracy", 2.0, False), RewardFact("speed", 1.0, True))
    reader, files = SampleReader(rewards, CORRECTNESS, marker), CompletionFiles(finished_run / "completions")
    facts = dict(reader.sample(files.read_row(10, 1)).facts)
    assert facts["reward"] == "1.1, right (advantage +1.000)" and facts["gold answer"] == "1"
    assert facts["accuracy"] == "1 × 2: equal" and facts["speed"] == "0.1 × adaptive weight"
    assert re.fullmatch(
        r"\d+: \d+ thinking \(\d+ of them reasoning tokens\), \d+ answering; ended by itself", facts["tokens"]
    )
    wrong = dict(reader.sample(files.read_row(10, 8)).facts)
    assert wrong["reward"].startswith("0.1, wrong") and wrong["accuracy"] == "0 × 2: different: 0 is not it"
    unmarked = replace(reader, marker=None).sample(files.read_row(10, 1))
    assert "tokens" not in dict(unmarked.facts) and [each.copy_index for each in unmarked.spans] == [0]
    unscored = SampledCompletion(1, 1, "", "", "", 0.0, 0.0, {"accuracy": None})
    assert dict(reader.sample(unscored).facts)["accuracy"] == "no score"


def test_choices_that_were_not_chance_are_marked_and_summed(model_folder):
    marker, tokenizer = Marker.from_folder(model_folder), load_tokenizer(model_folder)
    a, b = (tokenizer.encode(letter)[0] for letter in "ab")
    own = SampledCompletion(*(1, 1, "", "aba", "", 0.0, 0.0), completion_ids=[a, b, a], choice_bits=[0.01, 1.5, 0.05])
    sample = SampleReader((), None, marker).sample(own)
    assert dict(sample.facts)["choices of ids"] == "1.56 bits from chance, 0.1 or more at 1 token"
    assert sample_text(sample, colour=False).plain.endswith("    a⟪b⟫a\n")
    assert 'a<span class="chosen" title="standard, chosen">b</span>a' in samples_page([sample], "", None)
    text = sample_text(sample, colour=True)
    assert [text.plain[span.start : span.end] for span in text.spans if "underline" in str(span.style)] == ["b"]
    before = SampleReader((), None, marker).sample(replace(own, choice_bits=()))
    assert "choices of ids" not in dict(before.facts) and [each.text for each in before.spans] == ["aba"]


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
        ([], [closed], "1: 0 thinking, 1 answering; cut off"),
        ([], [], "0: 0 thinking, 0 answering; cut off"),
    ):
        assert count_tokens(prompt, ids, layout) == expected


# --- what is written ---


def test_nothing_that_is_written_holds_a_character_that_a_screen_obeys():
    samples = [sample_of(text) for text in HOSTILE]
    texts = [sample_text(each, colour=colour).plain for each in samples for colour in (False, True)]
    for written in (*texts, samples_page(samples, "", None)):
        assert not CONTROL.search(written)


class Page(HTMLParser):
    """The tags of a page, and the text of each of its prompts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.prompts, self.in_prompt = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *sorted(name for name, _ in attrs)))
        self.in_prompt = ("class", "prompt") in attrs
        if self.in_prompt:
            self.prompts.append("")

    def handle_endtag(self, tag):
        self.in_prompt = False

    def handle_data(self, data):
        if self.in_prompt:
            self.prompts[-1] += data


def test_html_has_only_our_tags_and_all_of_the_text():
    harmless = Page(samples_page([sample_of("harmless")] * len(HOSTILE), "2 of contains='<b>'", "<i>"))
    hostile = Page(samples_page([sample_of(text) for text in HOSTILE], "2 of contains='<b>'", "<i>"))
    assert hostile.tags == harmless.tags
    assert hostile.prompts == [visible_lines(text) for text in HOSTILE]
    assert not {"src", "onerror"} & {name for _, *names in hostile.tags for name in names}


def test_text_indents_what_is_not_ours():
    lines = [line for text in HOSTILE for line in sample_text(sample_of(text), colour=False).plain.split("\n")]
    assert [line for line in lines if line.startswith("---")] == ["--- step 3, completion 2"] * len(HOSTILE)
    assert sum(line.startswith("reward:") for line in lines) == len(HOSTILE)


# --- the command ---


def test_off_a_terminal_it_is_text(finished_run, capsys):
    assert main(["samples", f"run={finished_run}", "step=50", "verdict=right", "problem=what is 7 +"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"completions of {finished_run}: step=50 problem=what is 7 + verdict=right\n")
    assert [line for line in out.splitlines() if line.startswith("---")] == [
        f"--- step 50, completion {row}" for row in (57, 58, 59, 60)
    ]
    assert "accuracy: 1: equal" in out and "⟦" in out and "gold answer: 8" in out


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("a/b.html", [], "<!DOCTYPE html>"),
        ("b.txt", [], "completions of"),
        ("b.html", ["format=text"], "completions of"),
    ],
)
def test_it_is_written_as_the_file_ends_unless_told_otherwise(finished_run, tmp_path, capsys, name, words, expected):
    out = tmp_path / name
    assert main(["samples", f"run={finished_run}", "order=highest", "max_samples=2", f"out={out}", *words]) == 0
    assert out.read_text(encoding="utf-8").startswith(expected)
    assert "step 50, completion 2" in out.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"2 completions are in {out}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["contains=nowhere", "step=3:"], "step=3: contains=nowhere: matches no completion"),
        (["step=ten"], "step=ten: give a step or a range"),
        (["step=50:10"], "the first step is after the last one"),
        (["min_reward=2", "max_reward=1"], "min_reward=2 is above max_reward=1"),
        (["min_reward=nan"], "min_reward=nan"),
        (["verdict=good"], "verdict=good: should be 'right' or 'wrong'"),
        (["out=/proc"], "out=/proc: a folder; give a file"),
        (["out=/proc/a/x.html", "max_samples=1"], "out=/proc/a/x.html cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(finished_run, capsys, words, message):
    assert main(["samples", f"run={finished_run}", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_damaged_files_are_named_and_the_rest_is_shown(finished_run, tmp_path, capsys):
    shutil.copy(finished_run / "config.yaml", tmp_path)
    assert main(["samples", f"run={tmp_path}"]) == 2
    assert "no completions yet (no completions/step_*.parquet)" in capsys.readouterr().err
    (tmp_path / "completions").mkdir()
    (tmp_path / "completions" / "step_00002.parquet").write_bytes(b"PAR1")
    assert main(["samples", f"run={tmp_path}"]) == 2
    assert "no completion could be read" in capsys.readouterr().err
    shutil.copy(finished_run / "completions" / "step_00001.parquet", tmp_path / "completions")
    assert main(["samples", f"run={tmp_path}"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("--- step 1, completion") == 64
    assert "left out: " in captured.err and "step_00002" in captured.err
    assert "reasoning tokens are not marked" in captured.err  # there is no initial_model/ here


@pytest.mark.parametrize(("pager", "lines"), [("head -4", 4), ("cat", 12_000), ("", 12_000)])
def test_on_a_terminal_a_pager_gets_it_in_colour_and_may_be_closed_early(finished_run, pager, lines):
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
    assert lines <= terminal.count(b"\n") and (pager != "head -4" or terminal.count(b"\n") == lines)


def test_showing_a_run_imports_neither_torch_nor_pandas_nor_transformers(finished_run):
    """Each of them is a second or more."""
    code = (
        "import sys; from rlvr_vocab.cli import main;"
        f"assert main(['samples', 'run={finished_run}', 'max_samples=1']) == 0;"
        "print({'torch', 'pandas', 'transformers', 'datasets', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
