"""The completions and answers of a report: which are shown, how much of them, with their reasoning tokens."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_vocab.analysis.report.run_page import choose_samples
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.tokenizer import load_tokenizer

from .report_run import answer, completion, report, rewrite, words, write_completions, write_rows, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_samples_are_chosen_by_rule(run: Path) -> None:
    for step in range(7, 50):
        write_completions(run, step, [{**completion(step, row), "reward": -row / 7} for row in range(8)])
    chosen, unreadable = choose_samples(CompletionFiles(run / "completions"), 9)
    assert [each.step for _, each in chosen] == [1, 1, 1, 25, 25, 25, 49, 49, 49] and not unreadable
    highest, lowest, random = (each.row for _, each in chosen[3:6])
    assert (highest, lowest) == (1, 8) and random not in (1, 8)
    assert choose_samples(CompletionFiles(run / "completions"), 9)[0] == chosen
    assert len(choose_samples(CompletionFiles(run / "completions"), 1)[0]) == 1


def test_a_long_completion_is_shown_from_both_ends(run: Path) -> None:
    write_completions(run, 6, [{**completion(6, 0), "completion": "a" * 5000 + "b" * 5000}])
    page = report(run)
    assert "… 7,900 characters …" in words(page) and "a" * 1400 in page and "a" * 1401 not in page


def test_held_out_answers_show_their_reasoning_tokens(run: Path, expand_shape: Callable[..., Path]) -> None:
    """Within the turn, which begins with what the template prefilled."""
    shutil.copytree(expand_shape("llama", size=None), run / "initial_model")
    rewrite(run, "summary.json", held_out_problems=1)
    marker = Marker.from_folder(run / "initial_model")
    tokenizer = load_tokenizer(run / "initial_model")
    plain = tokenizer.encode("so 41", add_special_tokens=False)
    ids = [plain[0] + marker.layout.standard_size, *plain[1:]]
    first = tokenizer.decode(plain[:1])
    for name in ("before", "after"):
        kept = {**answer(0, right=name == "after", text="<think>so 41"), "completion_ids": ids}
        write_rows(run / "evaluation" / f"{name}.jsonl", [kept])
    marked = f'&lt;think&gt;<span class="m1" title="copy 1">{first}</span>{"so 41".removeprefix(first)}</pre>'
    assert report(run).count(marked) == 2


def test_a_damaged_file_of_completions_is_named_and_the_rest_is_shown(run: Path) -> None:
    (run / "completions" / "step_00006.parquet").write_bytes(b"PAR1 cut off")
    shown = words(report(run))
    assert "step_00006.parquet: cannot be read" in shown and "Step 1" in shown and "Step 5" in shown
