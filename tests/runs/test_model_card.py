"""A model card is valid, holds configuration and results, and gives away neither a token nor a path."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.runs.folder import start_run_folder
from rlvr_vocab.runs.model_card import CardFacts, card_of_adapter, write_adapter_card, write_card
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.merge import MergeReport, Shift

WORDS = ["dataset=gsm8k", "model.reasoning_vocab_size=1000", "training.learning_rate=3e-6", "training.max_steps=12"]
ON_HUB = ("Qwen/Qwen3-0.6B", "openai/gsm8k")


def facts_of(*words: str, adapter: bool = False, **more: Any) -> CardFacts:
    """With a token in the configuration."""
    resolved = copy.deepcopy(read_settings("train", [*WORDS, *words]).resolved)
    resolved["model"]["model_kwargs"]["token"] = "hf_secret"
    return CardFacts(resolved, adapter, **{"on_hub": ON_HUB, **more})


def card(folder: Path, facts: CardFacts, size: int | None = 1_000, merge: MergeReport | None = None) -> str:
    if size is not None:
        VocabLayout(1_500, tuple(range(size)), 1_498, 1_499, (), (0,)).save(folder)
    write_card(folder, facts, merge)
    text = (folder / "README.md").read_text()
    assert ModelCard(text).data.pipeline_tag == "text-generation"
    return text


def test_a_card_names_model_problems_configuration_and_results(tmp_path: Path) -> None:
    text = card(tmp_path, facts_of(steps="12", before="37.5% (3 of 8)", after="62.5% (5 of 8)"))
    assert yaml.safe_load(text.split("---\n")[1]) == {
        "base_model": "Qwen/Qwen3-0.6B",
        "datasets": ["openai/gsm8k"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["grpo", "rlvr", "trl", "rlvr-vocab"],
    }
    for line in (
        "# grpo_reasoning_1000",
        "| `training.learning_rate` | `3e-06` |",
        "| `rewards` | `accuracy × 1` |",
        "| held-out accuracy before GRPO | 37.5% (3 of 8) |",
        "| held-out accuracy at the end of training | 62.5% (5 of 8) |",
    ):
        assert line in text.splitlines()
    assert "1,000 *reasoning tokens*, ids 1,500 to 2,499" in text and "model.lora" not in text
    assert "Stock sampling knows no regions" in text and "RegionLogitsProcessor.from_folder(folder" in text


def test_no_token_and_no_path_stands_in_a_card(tmp_path: Path) -> None:
    facts = facts_of(adapter=True, on_hub=())
    assert facts.config is not None
    facts.config["model"]["name"] = str(tmp_path / "private" / "base")
    facts.config["dataset"]["name"] = "~/somewhere/problems.jsonl"
    facts.config["rewards"]["functions"] = [{"name": f"{tmp_path}/mine.py:short", "weight": 0.5}]
    for write in (write_card, write_adapter_card):
        write(tmp_path, facts)
        text = (tmp_path / "README.md").read_text()
        assert "secret" not in text and str(tmp_path.parent) not in text and "somewhere" not in text
        assert "| `model.name` | `base` |" in text and "`problems.jsonl`" in text and "mine.py:short × 0.5" in text
        assert "base_model" not in text and "datasets" not in text
        assert "| `model.lora.r` | `16` |" in text


def test_cards_of_stages_of_a_baseline_and_of_no_run(tmp_path: Path) -> None:
    staged = card(
        tmp_path, facts_of("stages=[{name:form,training:{max_steps:7}},{name:long,dataset:{name:/secret/hard.jsonl}}]")
    )
    assert "trained in stages, which may set other keys and rewards: `form`, `long`." in staged
    assert "secret" not in staged
    baseline = card(tmp_path, facts_of("model.reasoning_vocab_size=0"), size=0)
    assert "stock tools sample it as it was trained" in baseline
    assert "regions" not in baseline and "RegionLogitsProcessor" not in baseline and "in stages" not in baseline
    (tmp_path / "adapter").mkdir()
    of_no_run = card(tmp_path / "adapter", CardFacts(None, adapter=True), size=None)
    assert of_no_run.split("---\n\n")[1].startswith("# A merged model") and "## Results" not in of_no_run


def test_the_card_of_a_merge_has_its_differences_and_the_quantization(tmp_path: Path) -> None:
    report = MergeReport(Path("b"), "bfloat16", 144, 2.1e-5, Shift(3.0, 0.25), Shift(1.25, 9.5e-4))
    text = card(tmp_path, facts_of("model.model_kwargs.load_in_4bit=true", adapter=True), merge=report)
    assert "logits differ by at most 2e-05" in text
    assert (
        "costs at most 1.2 in a logit and 9.5e-04 nats a token, where training moved the base by 3 and 2.5e-01" in text
    )
    assert "in 4 bit and folded into the unquantized base" in text
    assert "bit" not in card(tmp_path, facts_of(adapter=True), merge=report).split("## Configuration")[0]


def test_a_folder_with_the_look_of_a_hub_name_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From whatever folder the run is merged: its start has decided."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "customers" / "acme-tickets").mkdir(parents=True)
    settings = read_settings("train", [*WORDS, f"output_dir={tmp_path / 'run'}"])
    settings.resolved["dataset"]["name"] = "customers/acme-tickets"
    start_run_folder(settings)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    facts = card_of_adapter(tmp_path / "run" / "final_adapter")
    text = card(tmp_path, facts)
    assert "customers" not in text and "| `dataset.name` | `acme-tickets` |" in text
    assert facts.on_hub == ("Qwen/Qwen3-0.6B",) and "| `model.name` | `Qwen/Qwen3-0.6B` |" in text


HOSTILE = "<img src=x onerror=alert(1)> [a](http://b.c) `<b>` ![i](http://d.e) | \n```\n````\n# head\n<script>"


def test_no_value_of_a_run_is_read_as_html_or_as_markdown(tmp_path: Path) -> None:
    hostile = facts_of(measure=f"reward by {HOSTILE}", before="1", steps=HOSTILE)
    config: Any = hostile.config
    config["exp_name"] = HOSTILE
    for section, key in (("model", "name"), ("dataset", "name"), ("training", "loss_type")):
        config[section][key] = HOSTILE
    config["dataset"]["system_prompt"] = HOSTILE
    config["rewards"]["functions"][0]["name"] = f"mine.py:{HOSTILE}"
    config["stages"] = [{"name": HOSTILE, "rewards": {"functions": [{"name": HOSTILE}]}}]
    plain = facts_of()
    plain.config["stages"] = [{"name": "a"}]  # type: ignore[index]
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    usual, tokens = (parser.parse(card(tmp_path, facts).split("---\n", 2)[2]) for facts in (plain, hostile))
    inline = {child.type for token in tokens for child in token.children or ()}
    assert {"html_inline", "image", "link_open"}.isdisjoint(inline)
    kinds, usual_kinds = ([token.type for token in each] for each in (tokens, usual))
    assert "html_block" not in kinds and kinds.count("heading_open") == usual_kinds.count("heading_open")
