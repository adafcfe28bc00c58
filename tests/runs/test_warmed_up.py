"""Warm-ups in the cache: made once, gone on with where they were interrupted, by one process for all."""

import os
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import read_json
from rlvr_vocab.runs import model
from rlvr_vocab.runs.model import _in_a_child, base_model, plan_model
from rlvr_vocab.runs.problems import load_run_problems
from rlvr_vocab.training.models import warmup

SMALL = (
    *("dataset.generator.num_problems=60", "warmup.max_steps=4", "warmup.check_every=2", "warmup.batch_size=8"),
    *("warmup.num_check_problems=2", "training.max_completion_length=4"),
)


@pytest.fixture
def made_in(monkeypatch):
    settings = read_settings("quickstart", [*SMALL])
    problems = load_run_problems(settings, Console(quiet=True))

    def make(cache):
        """The weights, and what was said."""
        monkeypatch.setenv("RLVR_VOCAB_CACHE", str(cache))
        console = Console(record=True, width=200, quiet=False, file=(cache.parent / "screen").open("w"))
        monkeypatch.setattr(model, "make_console", lambda: console)
        made = Path(base_model(settings, problems.train))
        assert list((cache / "warmup").iterdir()) == [made]
        assert not list(made.glob("*checkpoint*")) and not list(made.glob(".*"))
        return (made / "model.safetensors").read_bytes(), console.export_text()

    return make


def test_one_that_was_interrupted_goes_on_and_leaves_nothing_but_what_one_at_a_stretch_leaves(
    made_in, tmp_path, monkeypatch
):
    whole, _ = made_in(tmp_path / "whole")
    step, steps = warmup.SFTTrainer.training_step, []

    def fails_in_the_fourth(self, *args, **kwargs):
        steps.append(self.state.global_step)
        if steps == [0, 1, 2, 3]:
            raise InterruptedError
        return step(self, *args, **kwargs)

    monkeypatch.setattr(warmup.SFTTrainer, "training_step", fails_in_the_fourth)
    with pytest.raises(InterruptedError):
        made_in(tmp_path / "resumed")
    [unfinished] = (tmp_path / "resumed" / "warmup").iterdir()
    assert [path.name for path in unfinished.iterdir()] == ["checkpoint-2"]
    resumed, said = made_in(tmp_path / "resumed")
    assert resumed == whole and steps == [0, 1, 2, 3, 2, 3]
    assert "4 supervised steps" in said and "done before" not in said
    [made] = (tmp_path / "resumed" / "warmup").iterdir()
    (made.with_name(f"{made.name}.unfinished") / "checkpoint-2").mkdir(parents=True)  # killed at its very end
    assert made_in(tmp_path / "resumed")[0] == whole and steps[6:] == []


def test_a_template_that_shows_no_calls_is_refused_before_a_warm_up(tmp_path, monkeypatch):
    monkeypatch.setenv("RLVR_VOCAB_CACHE", str(tmp_path))
    template = tmp_path / "plain.jinja"
    template.write_text("{% for each in messages %}{{ each.content }}{% endfor %}{{ 'A:' if add_generation_prompt }}")
    words = ("experiment=calculator", f"model.chat_template={template}", "dataset.generator.num_problems=60")
    settings, quiet = read_settings("train", [*words]), Console(quiet=True)
    with pytest.raises(UserError, match="shows no tool calls"):
        plan_model(settings, load_run_problems(settings, quiet), quiet)
    assert not (tmp_path / "warmup").exists()


def cached_for(cache, *words):
    settings = read_settings("quickstart", [*SMALL, "warmup.max_steps=1", "warmup.until_accuracy=null", *words])
    train = load_run_problems(settings, Console(quiet=True)).train
    return Path(base_model(settings, train)).name


@pytest.mark.slow
def test_what_decides_the_weights_decides_which_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("RLVR_VOCAB_CACHE", str(tmp_path))
    usual = cached_for(tmp_path)
    assert cached_for(tmp_path, "training.max_completion_length=5") == usual  # nothing is measured
    assert cached_for(tmp_path, "training.learning_rate=1") == usual
    others = ("warmup.learning_rate=1e-4", "model.think_tags=[<thinking>,</thinking>]", "seed=7")
    measured = ("warmup.until_accuracy=0.9", "warmup.until_accuracy=0.9 training.max_completion_length=5")
    found = {cached_for(tmp_path, *words.split()) for words in (*others, *measured)}
    assert len(found) == 5 and usual not in found
    monkeypatch.setattr(model, "has_bf16", lambda use_cpu: True)
    assert cached_for(tmp_path) == usual  # quickstart sets training.bf16=false
    assert cached_for(tmp_path, "training.bf16=true") not in {usual, *found}


def test_a_named_revision_is_the_one_that_is_warmed_up(tmp_path, monkeypatch):
    def read(base, tags, template, source_kwargs):
        raise LookupError(base, template, source_kwargs)

    monkeypatch.setattr(model, "read_with_think_tags", read)
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    words = ["model.model_kwargs.revision=abc", f"model.chat_template={tmp_path / 'own.jinja'}", "model.tiny=null"]
    with pytest.raises(LookupError) as asked:
        cached_for(tmp_path, *words, "model.name=somebody/model")
    assert asked.value.args == ("somebody/model", "{{ messages }}", {"revision": "abc"})


def test_the_child_is_no_process_of_the_launcher_and_its_error_is_the_callers(monkeypatch, tmp_path):
    for name in ("RANK", "TORCHELASTIC_RUN_ID", "ACCELERATE_USE_CPU"):
        monkeypatch.setenv(name, "1")
    assert [_in_a_child(os.getenv, (name,)) for name in ("RANK", "TORCHELASTIC_RUN_ID")] == [None, None]
    assert _in_a_child(os.getenv, ("ACCELERATE_USE_CPU",)) == "1"
    assert os.environ["RANK"] == "1"
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="is not readable JSON"):
        _in_a_child(read_json, (tmp_path / "a.json",))
