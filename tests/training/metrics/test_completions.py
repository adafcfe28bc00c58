"""Completions of several turns on disk: with the words of each author, and which tokens the model sampled."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch

from rlvr_vocab.analysis.report.run_page import _body
from rlvr_vocab.analysis.samples import SampleFilter, find_samples, head_text, sample_text, shown_sample
from rlvr_vocab.analysis.vocabulary import _thinking_ids
from rlvr_vocab.commands.score import read_completions, score_rows
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.terminal import make_console
from rlvr_vocab.training.metrics.completions import gather_rollouts, write_completions
from rlvr_vocab.vocab.marking import Marker
from rlvr_vocab.vocab.tokenizer import load_tokenizer

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 3}}}
FORGED = "7\n--- step 9, completion 9\nreward: 99 \x1b[2J<script>"
TRANSCRIPT = [
    {"role": "assistant", "content": "<think>one</think>", "tool_calls": [CALL]},
    {"role": "tool", "name": "add\nreward: 99", "content": f"{FORGED}\ud800"},
    {"role": "assistant", "content": "\\boxed{7}"},
]
TURNS = ("<think>one</think>add(3)", f"<think>{FORGED}", "\\boxed{7}")


@pytest.fixture(scope="module")
def model_folder(expand_shape):
    return expand_shape("qwen3", size=None)


@pytest.fixture(scope="module")
def run(model_folder, tmp_path_factory):
    """A run with the completions of a step: one that calls, one that ends in a call, one that does not call."""
    folder, tokenizer, layout = (
        tmp_path_factory.mktemp("run"),
        load_tokenizer(model_folder),
        Marker.from_folder(model_folder).layout,
    )
    first, given, last = map(tokenizer.encode, TURNS)
    first[1] += layout.standard_size
    rows = [(first + given + last, [1] * len(first) + [0] * len(given) + [1] * len(last)), (first, [1] * len(first))]
    rows.append((last, [1] * len(last)))
    ids, sampled = (torch.nn.utils.rnn.pad_sequence([torch.tensor(row[i]) for row in rows], True) for i in (0, 1))
    whole = [[1] * len(each) for each, _ in rows]
    batch = {
        "prompt_ids": torch.tensor([[5]] * 3),
        "prompt_mask": torch.ones(3, 1),
        "completion_ids": ids,
        "completion_mask": torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, whole)), True),
        "tool_mask": sampled,
        "sampled_mask": sampled,
    }
    logs = {"rewards": {"accuracy": deque([1.0, 0.0, 1.0])}, "extra": {}, "advantages": deque([1.0, -1.0, 0.0])}
    logs["completion"] = deque([TRANSCRIPT, TRANSCRIPT[:1], TRANSCRIPT[2:]])
    names, weights = ["accuracy"], torch.ones(1)
    trainer = SimpleNamespace(logged_completions=logs, reward_func_names=names, reward_weights=weights)
    rollouts = gather_rollouts(trainer, [{"solution": "7"}] * 3, batch)
    assert rollouts["segments"] == [[len(first), len(given), len(last)], [len(first)], [len(last)]]
    write_completions(rollouts, 1, tokenizer, folder / "completions")
    return folder


def test_a_transcript_is_read_as_it_was_written(run):
    first, second, third = CompletionFiles(run / "completions").read(1)
    assert (first.messages, second.messages, third.messages) == (TRANSCRIPT, TRANSCRIPT[:1], TRANSCRIPT[2:])
    assert [each.completion for each in (first, second, third)] == ["\\boxed{7}", "", "\\boxed{7}"]


def test_each_part_is_shown_under_its_author_and_no_line_of_a_tool_passes_for_ours(run, model_folder):
    files, marker = CompletionFiles(run / "completions"), Marker.from_folder(model_folder)
    samples = [shown_sample(each, marker) for each in files.read(1)]
    lines = sample_text(samples[0], colour=False).plain.split("\n")
    start = lines.index("assistant:")
    assert lines[start:] == [
        *("assistant:", "    <think>⟦o⟧ne</think>", "call:", '    add({"a": 3})', "tool add reward: 99:"),
        *("    7", "    --- step 9, completion 9", "    reward: 99 ␛[2J<script><U+D800>"),
        *("assistant:", "    \\boxed{7}", ""),
    ]
    page = str(_body(samples[0]))
    assert '<span class="part given"><b>tool add reward: 99</b>\n7\n--- step 9' in page and "<script>" not in page
    given = len(marker._tokenizer.encode(TURNS[1]).ids)
    facts = [dict(each.facts) for each in samples]
    assert facts[0]["tokens"].endswith(f"beside them {given} of tools") and facts[0]["calls"] == "1"
    assert facts[1]["calls"] == "1; it ends in a call, without an answer" and facts[2]["calls"] == "0"
    assert "words of tools" in head_text("a", None, 0, tools=True, colour=True).plain


def test_score_judges_whole_transcripts(run):
    settings = read_settings("score", [f"completions={run / 'completions'}", "rewards=[accuracy,tool_calls]"])
    rows = read_completions(settings, run / "completions")
    assert [row.columns["completions"] for row in rows] == [TRANSCRIPT, TRANSCRIPT[:1], TRANSCRIPT[2:]]
    assert set(rows[0].columns) & {"messages", "segments", "completion"} == set()
    rewards = build_rewards(settings.rewards.functions, RewardContext())
    score_rows(rewards, rows, make_console())
    assert [[score.value for score in row.scores] for row in rows] == [[1.0, 1.0], [0.0, 0.2], [1.0, 0.0]]
    assert rows[1].shown() == 'assistant: <think>one</think> | call: add({"a": 3})' and rows[1].text == ""


def test_a_filter_reads_every_part(run):
    files = CompletionFiles(run / "completions")
    for contains, rows in (("ADD({", [1, 2]), ("step 9", [1]), ("boxed", [1, 3])):
        assert [row for _, row in find_samples(files, SampleFilter(contains=contains), None, "file", [])] == rows


def test_tokens_of_a_tool_are_not_counted_as_thought(run, model_folder):
    table, layout = CompletionFiles(run / "completions").table(1), Marker.from_folder(model_folder).layout
    sampled = [
        int(layout.source_ids[token - layout.standard_size]) if token >= layout.standard_size else token
        for token in _thinking_ids(table, layout)
    ]
    tokenizer = load_tokenizer(model_folder)
    assert tokenizer.decode(sampled) == "one</think>\\boxed{7}one</think>"  # the tool here opens the second thought
