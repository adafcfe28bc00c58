"""A model card is valid, says what was configured, and gives away neither a token nor a path."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.record.results import ACCURACY, HeldOutMetric
from rlvr_vocab.runs.environment import names_on_hub, without_folder
from rlvr_vocab.runs.folder import start_run_folder
from rlvr_vocab.runs.model_card import CardFacts, Measured, facts_of_adapter, write_adapter_card, write_card
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.peft.merge import MergeReport
from rlvr_vocab.vocab.peft.merge_check import Shift

WORDS = [
    "dataset=gsm8k",
    "model.reasoning_vocab_size=1000",
    "training.learning_rate=3e-6",
    "training.max_steps=12",
]


def config_of(*words: str) -> dict[str, Any]:
    """With a token in it: one that came there before secrets were refused."""
    resolved = read_settings("train", [*WORDS, *words]).resolved
    resolved["model"]["model_kwargs"]["token"] = "hf_secret"
    return resolved


def layout(size: int) -> VocabLayout:
    return VocabLayout(1_500, tuple(range(size)), 1_498, 1_499, (), (0,))


def card(folder: Path, facts: CardFacts, size: int | None = 1_000, merge: MergeReport | None = None) -> str:
    if size is not None:
        layout(size).save(folder)
    write_card(folder, facts, merge)
    text = (folder / "README.md").read_text()
    assert ModelCard(text).data.pipeline_tag == "text-generation"
    return text


def test_the_head_of_a_card_names_model_and_problems_as_the_hub_does(tmp_path: Path) -> None:
    text = card(tmp_path, CardFacts(config_of(), adapter=False))
    assert yaml.safe_load(text.split("---\n")[1]) == {
        "base_model": "Qwen/Qwen3-0.6B",
        "datasets": ["openai/gsm8k"],
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["grpo", "rlvr", "trl", "rlvr-vocab"],
    }


def measured(right: int) -> Measured:
    return Measured(ACCURACY, (1.0,) * right + (0.0,) * (8 - right))


def test_a_card_says_what_graded_where_nothing_is_right_or_wrong(tmp_path: Path) -> None:
    reward = HeldOutMetric(is_share=False, grader="2 × style + boxed", by=" by 2 × style + boxed")
    facts = CardFacts(config_of(), adapter=False, steps="12", before=Measured(reward, (0.5, 0.25)))
    line = "| held-out reward by 2 × style + boxed before GRPO | 0.375 on 2 problems |"
    assert line in card(tmp_path, facts).splitlines()


def test_a_card_shows_the_main_keys_and_the_results(tmp_path: Path) -> None:
    facts = CardFacts(config_of(), adapter=False, steps="12", before=measured(3), after=measured(5))
    text = card(tmp_path, facts)
    for line in (
        "# grpo_reasoning_1000",
        "| `training.learning_rate` | `3e-06` |",
        "| `model.reasoning_vocab_size` | `1000` |",
        "| `rewards` | `accuracy × 1` |",
        "| GRPO steps | 12 |",
        "| held-out accuracy before GRPO | 37.5% (3 of 8) |",
        "| held-out accuracy of this model | 62.5% (5 of 8) |",
    ):
        assert line in text.splitlines()
    assert "1,000 *reasoning tokens*, ids 1,500 to 2,499" in text and "model.lora" not in text
    assert "Stock sampling knows no regions" in text and "RegionLogitsProcessor.from_folder(folder" in text


def test_no_token_and_no_path_stands_in_a_card(tmp_path: Path) -> None:
    config = copy.deepcopy(config_of())
    config["model"]["name"] = str(tmp_path / "private" / "base")
    config["dataset"]["name"] = "~/somewhere/problems.jsonl"
    config["rewards"]["functions"] = [{"name": f"{tmp_path}/mine.py:short", "weight": 0.5}]
    for write in (write_card, write_adapter_card):
        layout(1_000).save(tmp_path)
        write(tmp_path, CardFacts(config, adapter=True))
        text = (tmp_path / "README.md").read_text()
        assert "secret" not in text and str(tmp_path.parent) not in text and "somewhere" not in text
        assert "| `model.name` | `base` |" in text and "`problems.jsonl`" in text and "mine.py:short × 0.5" in text
        assert "base_model" not in text and "datasets" not in text
        assert "| `model.lora.r` | `16` |" in text


def test_the_card_of_a_baseline_has_nothing_to_warn_of(tmp_path: Path) -> None:
    text = card(tmp_path, CardFacts(config_of("model.reasoning_vocab_size=0"), adapter=False), size=0)
    assert "stock tools sample it as it was trained" in text
    assert "regions" not in text and "RegionLogitsProcessor" not in text


def test_the_card_of_a_merge_tells_what_was_compared_and_what_quantization_leaves(tmp_path: Path) -> None:
    report = MergeReport(Path("b"), "bfloat16", 144, 2.1e-5, Shift(3.0, 0.25), Shift(1.25, 9.5e-4))
    config = config_of("model.model_kwargs.load_in_4bit=true")
    text = card(tmp_path, CardFacts(config, adapter=True), merge=report)
    assert (
        "logits differ by at most 2e-05" in text
        and "costs at most 1.2 in a logit and 9.5e-04 nats a token, where training moved the base by 3 and 2.5e-01"
        in text
    )
    assert "in 4 bit and folded into the unquantized base" in text
    assert "bit" not in card(tmp_path, CardFacts(config_of(), adapter=True), merge=report).split("## Configuration")[0]


def test_an_adapter_of_no_run_and_of_no_reasoning_vocabulary_has_a_card_too(tmp_path: Path) -> None:
    text = card(tmp_path, CardFacts(None, adapter=True), size=None)
    assert text.split("---\n\n")[1].startswith("# A merged model") and "rlvr-vocab generate" not in text
    assert "## Results" not in text and "## Configuration" not in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("/models/qwen3", "qwen3"),
        ("C:\\models\\qwen3", "qwen3"),
        ("data/problems.csv", "problems.csv"),
    ],
)
def test_of_a_path_only_its_last_part_is_shown(name: str, shown: str) -> None:
    on_hub = names_on_hub({"model": {"name": name}, "dataset": {"name": "tiny"}})
    assert without_folder(name, on_hub) == shown
    assert on_hub == (["Qwen/Qwen3-0.6B"] if "Qwen/" in name else [])


def test_a_folder_with_the_look_of_a_hub_name_is_no_link_from_whatever_folder_its_run_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "customers" / "acme-tickets").mkdir(parents=True)
    settings = read_settings("train", [*WORDS, f"output_dir={tmp_path / 'run'}"])
    settings.resolved["dataset"]["name"] = "customers/acme-tickets"
    start_run_folder(settings)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    facts = facts_of_adapter(tmp_path / "run" / "final_adapter")
    text = card(tmp_path, facts)
    assert "customers" not in text and "| `dataset.name` | `acme-tickets` |" in text
    assert facts.base == "Qwen/Qwen3-0.6B" and "| `model.name` | `Qwen/Qwen3-0.6B` |" in text
    (tmp_path / "run" / "environment.json").write_text("{}")  # of a run before names were recorded
    facts = facts_of_adapter(tmp_path / "run" / "final_adapter")
    assert facts.base is None and facts.dataset is None
    assert "customers" not in card(tmp_path, facts)


def merged(dtype: str) -> MergeReport:
    rounding = None if dtype == "float32" else Shift(1.25, 9.5e-4)
    return MergeReport(Path("b"), dtype, 144, 2.1e-5, Shift(3.0, 0.25), rounding)


@pytest.mark.parametrize(
    ("dtype", "bits", "said"),
    [
        ("float32", None, "of this model"),
        ("bfloat16", None, "at the end of training (before rounding to bf16)"),
        ("float16", None, "at the end of training (before rounding to fp16)"),
        ("float32", 4, "at the end of training (on the base in 4 bit)"),
        ("bfloat16", 8, "at the end of training (on the base in 8 bit, before rounding to bf16)"),
    ],
)
def test_an_accuracy_is_said_to_be_of_the_weights_that_it_was_measured_on(
    dtype: str, bits: int | None, said: str, tmp_path: Path
) -> None:
    words = [] if bits is None else [f"model.model_kwargs.load_in_{bits}bit=true"]
    facts = CardFacts(config_of(*words), adapter=True, after=measured(5))
    lines = card(tmp_path, facts, merge=merged(dtype)).splitlines()
    assert [line for line in lines if "62.5%" in line] == [f"| held-out accuracy {said} | 62.5% (5 of 8) |"]


def test_a_card_shows_the_rewards_of_each_stage_and_no_path_of_them(tmp_path: Path) -> None:
    functions = f"{tmp_path}/mine.py"
    Path(functions).write_text("def short(completions):\n    return [0.0 for _ in completions]\n")
    stages = (
        f"[{{name:form,rewards:[{{name:'{functions}:short',weight:0.5}}],training:{{max_steps:7}}}},"
        "{name:long,dataset:{name:/secret/place/hard.jsonl,subset:null}}]"
    )
    text = card(tmp_path, CardFacts(config_of(f"stages={stages}"), adapter=False))
    listed = [line for line in text.splitlines() if line.startswith("- `")]
    assert listed == ["- `form`: rewards mine.py:short × 0.5", "- `long`: rewards as above"]
    assert "secret" not in text and str(tmp_path) not in text
    assert "stages" not in card(tmp_path, CardFacts(config_of(), adapter=False))


@pytest.mark.parametrize(
    ("prompt", "fence"), [("Think.", "```"), ("Write\n```python\n1\n```", "````"), ("`````", "``````")]
)
def test_a_system_prompt_does_not_end_its_own_fence(prompt: str, fence: str, tmp_path: Path) -> None:
    config = copy.deepcopy(config_of())
    config["dataset"]["system_prompt"] = prompt
    text = card(tmp_path, CardFacts(config, adapter=False))
    assert text.endswith(f":\n\n{fence}text\n{prompt}\n{fence}\n")


HOSTILE = "<img src=x onerror=alert(1)> [a](http://b.c) `<b>` ![i](http://d.e) | \n# head\n<script>"


def test_no_value_of_a_run_is_read_as_html_or_as_markdown(tmp_path: Path) -> None:
    config = copy.deepcopy(config_of())
    config["exp_name"] = HOSTILE
    for section, key in (("model", "name"), ("dataset", "name"), ("dataset", "split"), ("training", "loss_type")):
        config[section][key] = HOSTILE
    config["model"]["think_tags"] = [HOSTILE, "</b>`<i>"]
    config["dataset"]["system_prompt"] = HOSTILE
    config["rewards"]["functions"][0]["name"] = f"mine.py:{HOSTILE}"
    config["stages"] = [{"name": HOSTILE, "rewards": {"functions": [{"name": HOSTILE}]}}]
    found = Measured(HeldOutMetric(by=f" by {HOSTILE}"), (1.0,))
    hostile = CardFacts(config, adapter=False, before=found, steps=HOSTILE)
    texts = [card(tmp_path, facts) for facts in (CardFacts(config_of(), adapter=False), hostile)]
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    usual, tokens = (parser.parse(text.split("---\n", 2)[2]) for text in texts)
    inline = {child.type for token in tokens for child in token.children or ()}
    assert {"html_inline", "image", "link_open"}.isdisjoint(inline)
    kinds, usual_kinds = ([token.type for token in each] for each in (tokens, usual))
    assert "html_block" not in kinds and kinds.count("heading_open") == usual_kinds.count("heading_open")
