"""A model card is valid, holds configuration and results, and gives away neither a token nor a path."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric
from rlvr_vocab.runs.final_model import card_of_adapter, card_of_run, write_card
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.merge import MergeReport
from tests.runs.test_held_out import result

WORDS = ["dataset=gsm8k", "model.reasoning_vocab_size=1000", "training.learning_rate=3e-6", "training.max_steps=12"]


def config_of(*words):
    """With a token in it."""
    resolved = copy.deepcopy(read_settings("train", [*WORDS, *words]).resolved)
    resolved["model"]["model_kwargs"]["token"] = "hf_secret"
    return resolved


def card_of(folder, config, adapter=False, **more):
    return card_of_run(folder, config, more.pop("metric", ACCURACY), adapter=adapter, **{"steps": 12, **more})


def written(folder, card, size=1_000, merge=None):
    if size is not None:
        VocabLayout(1_500, tuple(range(size)), 1_498, 1_499, (), (0,)).save(folder)
    write_card(folder, card, merge)
    text = (folder / "README.md").read_text()
    assert ModelCard(text).data.pipeline_tag == "text-generation"
    return text


def write_answers(folder, when, scores, **fields):
    (folder / "evaluation").mkdir(exist_ok=True)
    answers = [vars(result(problem, "1", score=score, **fields)) for problem, score in enumerate(scores)]
    (folder / "evaluation" / f"{when}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in answers))


def test_a_card_names_model_problems_configuration_and_results(tmp_path):
    write_answers(tmp_path, "before", [1.0] * 3 + [0.0] * 5)
    write_answers(tmp_path, "after", [1.0] * 5 + [0.0] * 3)
    text = written(tmp_path, card_of(tmp_path, config_of(), links=True))
    assert yaml.safe_load(text.split("---\n")[1]) == {
        "base_model": "Qwen/Qwen3-0.6B",
        "datasets": ["openai/gsm8k"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["grpo", "rlvr", "trl", "rlvr-vocab"],
    }
    for line in (
        "# grpo_reasoning_1000",
        "| GRPO steps | 12 |",
        "Rewards with their weights: `accuracy × 1`.",
        "| held-out accuracy before GRPO | 37.5% on 8 problems |",
        "| held-out accuracy at the end of training | 62.5% on 8 problems |",
    ):
        assert line in text.splitlines()
    assert "1,000 *reasoning tokens*, ids 1,500 to 2,499" in text
    assert "Stock sampling ignores the regions" in text and "RegionLogitsProcessor.from_folder(folder" in text


@pytest.mark.parametrize("links", [True, False])
def test_no_token_and_no_path_stands_in_a_card(tmp_path, links):
    (tmp_path / "customers" / "tickets").mkdir(parents=True)  # a folder with the look of a hub name
    config = config_of("model.name=customers/tickets" if links else f"model.name={tmp_path / 'private' / 'tickets'}")
    config["dataset"]["name"] = "~/somewhere/problems.jsonl"
    config["rewards"]["functions"] = [{"name": f"{tmp_path}/mine.py:short", "weight": 0.5}]
    for alone in (False, True):
        write_card(tmp_path, card_of(tmp_path, config, adapter=True, links=links), alone=alone)
        text = (tmp_path / "README.md").read_text()
        for secret in ("secret", str(tmp_path.parent), "somewhere", "customers", "base_model", "datasets"):
            assert secret not in text
        assert "mine.py:short × 0.5" in text


def test_cards_of_stages_of_a_baseline_and_of_no_run(tmp_path):
    stages = "stages=[{name:form,training:{max_steps:7}},{name:long,dataset:{name:/secret/hard.jsonl}}]"
    staged = written(tmp_path, card_of(tmp_path, config_of(stages)))
    assert "trained in stages, which may set other keys and rewards: `form`, `long`." in staged
    assert "secret" not in staged
    baseline = written(tmp_path, card_of(tmp_path, config_of("model.reasoning_vocab_size=0")), size=0)
    assert "stock tools sample it as it was trained" in baseline
    assert "regions" not in baseline and "RegionLogitsProcessor" not in baseline and "in stages" not in baseline
    (tmp_path / "adapter").mkdir()
    of_no_run = written(tmp_path / "adapter", card_of_adapter(tmp_path / "adapter"), size=None)
    assert of_no_run.split("---\n\n")[1].startswith("# A merged model") and "## Results" not in of_no_run


def test_the_card_of_a_merge_has_its_differences_and_the_quantization(tmp_path):
    (tmp_path / "config.yaml").write_text(config_yaml(config_of("model.model_kwargs.load_in_4bit=true")))
    write_answers(tmp_path, "after", [1.0] * 5 + [0.0] * 3)
    report = MergeReport(Path("b"), "bfloat16", 144, 2.1e-5)
    text = written(tmp_path, card_of_adapter(tmp_path / "checkpoint-7"), merge=report)
    assert "logits differ by at most 2e-05" in text
    assert "in 4 bit; the merged model is not rounded so" in text
    assert "| GRPO steps | 7 |" in text and "at the end of training | not measured |" in text
    assert "62.5% on 8" in written(tmp_path, card_of_adapter(tmp_path / "final_adapter"))
    card = card_of(tmp_path, config_of(), adapter=True)
    assert "4 bit" not in written(tmp_path, card, merge=report)


def test_a_checkpoint_of_an_unfinished_run_has_the_measure_of_its_grader(tmp_path):
    (tmp_path / "config.yaml").write_text(config_yaml(config_of()))
    grader = {"name": "style", "functions": [{"name": "style", "params": {}}], "threshold": None}
    (tmp_path / "problems.json").write_text(json.dumps({"grader": grader}))
    write_answers(tmp_path, "before", [0.5, 0.2], threshold=None)
    card = card_of_adapter(tmp_path / "checkpoint-7")
    assert (card["measure"], card["before"], card["after"]) == ("reward by style", "0.350 on 2 problems", None)


HOSTILE = "<img src=x onerror=alert(1)> [a](http://b.c) `<b>` ![i](http://d.e) | \n```\n````\n# head\n<script>"


def test_no_value_of_a_run_is_read_as_html_or_as_markdown(tmp_path):
    hostile, plain = config_of(), config_of()
    hostile["exp_name"] = HOSTILE
    for section, key in (("model", "name"), ("dataset", "name"), ("training", "loss_type")):
        hostile[section][key] = HOSTILE
    hostile["dataset"]["system_prompt"] = HOSTILE
    hostile["rewards"]["functions"][0]["name"] = f"mine.py:{HOSTILE}"
    hostile["stages"] = [{"name": HOSTILE, "rewards": {"functions": [{"name": HOSTILE}]}}]
    plain["stages"] = [{"name": "a"}]
    metric = HeldOutMetric(False, HOSTILE, f" by {HOSTILE}")
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    cards = card_of(tmp_path, plain), card_of(tmp_path, hostile, metric=metric)
    usual, tokens = (parser.parse(written(tmp_path, card).split("---\n", 2)[2]) for card in cards)
    inline = {child.type for token in tokens for child in token.children or ()}
    assert {"html_inline", "image", "link_open"}.isdisjoint(inline)
    kinds, usual_kinds = ([token.type for token in each] for each in (tokens, usual))
    assert "html_block" not in kinds and kinds.count("heading_open") == usual_kinds.count("heading_open")
