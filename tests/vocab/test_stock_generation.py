"""Stock pipelines on our folders: with the processor they follow the region policy, without it they do not."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, TokenizersBackend, pipeline

import rlvr_vocab
from rlvr_vocab import RegionLogitsProcessor
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

QUESTION = [{"role": "user", "content": "What is 3 + 4?"}]
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def sampled_ids(pipe: Any, seed: int, **kwargs: Any) -> list[int]:
    torch.manual_seed(seed)
    [output] = pipe(QUESTION, max_new_tokens=30, temperature=0.7, return_tensors=True, **kwargs)
    return output["generated_token_ids"]


def prompt_length(pipe: Any) -> int:
    return len(pipe.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False))


def forbidden(pipe: Any, layout: VocabLayout, ids: list[int]) -> int:
    """Sampled ids that the policy does not allow where they stand."""
    start = prompt_length(pipe)
    regions = scored_regions(torch.tensor([ids]), layout)[0, start:]
    allowed = torch.isfinite(RegionPolicy(layout).bias)[regions, torch.tensor(ids[start:])]
    return int((~allowed).sum())


@pytest.mark.parametrize("opens", ["model", "prefill"])
@pytest.mark.parametrize("name", ["qwen3", "qwen2"])
def test_a_pipeline_with_the_processor_gives_no_forbidden_id_and_without_it_does(
    name: str, opens: str, expand_shape: Callable[..., Path]
) -> None:
    folder = str(expand_shape(name, size=None, open_thinking=opens))
    layout = VocabLayout.load(folder)
    pipe = pipeline("text-generation", model=folder, tokenizer=TokenizersBackend.from_pretrained(folder))
    regions = RegionLogitsProcessor.from_folder(folder, temperature=0.7)
    with_policy = [sampled_ids(pipe, seed, logits_processor=[regions]) for seed in range(6)]
    assert sum(forbidden(pipe, layout, ids) for ids in with_policy) == 0
    without = [sampled_ids(pipe, seed) for seed in range(6)]
    thinks = any(token >= layout.standard_size for ids in with_policy for token in ids)
    # These models hardly ever close what they think: where the prompt opens the thinking, nothing is forbidden but
    # what nobody may sample, and where it does not, all reasoning tokens are.
    assert thinks if opens == "prefill" else sum(forbidden(pipe, layout, ids) for ids in without) > 0


def test_a_temperature_of_0_is_a_greedy_search_under_the_forbids_alone(expand_shape: Callable[..., Path]) -> None:
    folder = expand_shape("llama", size=200, init_noise=0.3)
    layout = VocabLayout.load(folder)
    ids, logits = torch.tensor([[5, layout.think_open_id], [5, 6]]), torch.randn(2, layout.rows)
    processed = RegionLogitsProcessor.from_folder(folder, temperature=0)(ids, logits)
    assert torch.equal(processed[1, : layout.standard_size], logits[1, : layout.standard_size])
    assert torch.isinf(processed[1, layout.standard_size :]).all() and torch.isfinite(processed[0]).sum() > 300
    open_in_both = torch.isfinite(processed[0])
    assert torch.equal(processed[0, open_in_both], logits[0, open_in_both])


def test_for_qwen2_the_tokenizer_is_named_or_lies_in_a_folder_of_its_own(
    expand_shape: Callable[..., Path], tmp_path: Path
) -> None:
    folder = expand_shape("qwen2", size=None)
    layout = VocabLayout.load(folder)
    text = "What is 3 + 4?"
    for file in TOKENIZER_FILES:
        shutil.copy(folder / file, tmp_path / file)
    backend, alone = TokenizersBackend.from_pretrained(folder), AutoTokenizer.from_pretrained(tmp_path)
    copies = [layout.standard_size + token for token in backend.encode(text)]
    assert backend.decode(copies) == alone.decode(copies) == text
    # The trap: where this fails, Transformers has mended it, and the documents can say so.
    assert AutoTokenizer.from_pretrained(folder).decode(copies) != text
    assert pipeline("text-generation", model=str(folder), tokenizer=str(tmp_path)).tokenizer.decode(copies) == text


def test_the_package_names_its_processor_without_importing_torch_before_it_is_asked_for() -> None:
    code = "import sys, rlvr_vocab; print('torch' in sys.modules, 'RegionLogitsProcessor' in rlvr_vocab.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'RegionProcessor'"):
        rlvr_vocab.RegionProcessor  # noqa: B018
