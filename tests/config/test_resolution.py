"""Keys that say the same thing twice, and recorded configurations: the values that hold in the end."""

import re

import pytest

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml, differences, read_recorded
from rlvr_vocab.errors import UserError

LIMIT, LENGTH = "model.generation_kwargs.max_new_tokens", "training.max_completion_length"


def both(words):
    settings = read_settings("train", words)
    resolved = settings.resolved
    assert resolved["training"]["temperature"] == settings.training.grpo["temperature"]
    return (
        settings.model.generation_kwargs["max_new_tokens"],
        settings.training.grpo["max_completion_length"],
        resolved["training"]["max_completion_length"],
    )


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ([], 1024),
        ([f"{LIMIT}=300"], 300),
        ([f"{LENGTH}=300"], 300),
        (["training=small_gpu", f"{LENGTH}=300"], 300),
        (["model=tiny"], 48),
        (["model=tiny", "training=small_gpu"], 512),
        (["experiment=quickstart", f"{LENGTH}=64"], 64),
    ],
)
def test_the_completion_limit_is_one_value_under_both_names(words, value):
    assert both(words) == (value, value, value)


def test_what_is_typed_over_a_recorded_run_replaces_both_names(tmp_path):
    recorded = tmp_path / "config.yaml"
    recorded.write_text(config_yaml(read_settings("train", [f"{LIMIT}=300"]).resolved))
    assert both([f"config={recorded}", f"{LENGTH}=200"]) == (200, 200, 200)
    assert both([f"config={recorded}", f"{LIMIT}=1024"]) == (1024, 1024, 1024)
    assert both([f"config={recorded}", "training=small_gpu"]) == (512, 512, 512)
    assert both([f"config={recorded}", "model=tiny"]) == (300, 300, 300)


def test_tokens_to_copy_come_from_a_file_or_a_pattern_and_are_recorded_by_themselves(tmp_path):
    file = tmp_path / "first words.txt"
    file.write_text("wait\n\n 17 \nso, then\n")
    settings = read_settings("train", [f"model.source_ids={file}"])
    model, recorded = settings.model, settings.resolved["model"]["source_ids"]
    assert model.source_ids == ("wait", 17, "so, then") == tuple(recorded) and model.adds_copies
    assert re.fullmatch(r"grpo_reasoning_first_words_[0-9a-f]{6}", settings.exp_name)
    file.write_text("wait\n")
    assert read_settings("train", [f"model.source_ids={file}"]).exp_name != settings.exp_name
    by_pattern = read_settings("quickstart", ["model.source_ids=re:^ ?[0-9]+$"])
    assert by_pattern.model.source_ids == "re:^ ?[0-9]+$" == by_pattern.resolved["model"]["source_ids"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.source_ids=gone.txt"], "gone.txt: no such file, expected a list, re:PATTERN, or a text file"),
        (["model.source_ids=re:("], r"model.source_ids=re:\(: no regular expression: missing \)"),
        (["model.source_ids=[a,b]", "model.reasoning_vocab_size=2"], "sets the number of copies"),
        (["model.source_ids=[]"], "model.source_ids"),
        (["model.source_ids=[5,5,6]"], "model.source_ids: 5 stands in it twice"),
        (["model.source_ids=[1,2]", "model.reasoning_vocab_size=3"], ""),
        ([f"{LIMIT}=300", f"{LENGTH}=200"], ""),
        (["training=small_gpu", f"{LIMIT}=300"], ""),
        (["training.temperature=0.7", "model.generation_kwargs.temperature=1.0"], ""),
        (["stages=[{name: a, generation: {max_new_tokens: 12}, training: {max_completion_length: 20}}]"], ""),
    ],
)
def test_two_different_values_and_tokens_that_cannot_be_read_are_refused(words, message):
    with pytest.raises(UserError, match=message):
        read_settings("train", words)


def test_bookkeeping_is_no_difference_and_every_other_key_is():
    one = read_settings("train", ["experiment=quickstart"]).resolved
    other = read_settings("train", ["experiment=quickstart", "max_hours=3", "training.beta=0.1", "seed=7"]).resolved
    assert list(differences(one, other)) == [
        ("exp_name", "quickstart_reasoning_full_seed42", "quickstart_reasoning_full_seed7"),
        ("seed", 42, 7),
        ("training.beta", 0.0, 0.1),
    ]


def test_what_a_recorded_file_leaves_out_has_its_default(tmp_path):
    (tmp_path / "config.yaml").write_text("model: {name: m}\ndataset: {name: d}\ntraining: {max_steps: 3}\n")
    recorded = read_recorded(tmp_path, resolve=True)
    assert (recorded["seed"], recorded["model"]["reasoning_mode"], recorded["model"]["name"]) == (42, "expand", "m")
    assert (recorded["training"]["max_steps"], recorded["training"]["max_completion_length"]) == (3, 1024)
