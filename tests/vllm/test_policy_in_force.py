"""What vLLM samples from an expanded SmolLM2, held against the region policy and the trainer's own scoring."""

import itertools
import random
from collections import namedtuple
from dataclasses import replace

import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")

from transformers import AutoModelForCausalLM

from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion
from rlvr_vocab.vocab.head import head_settings
from rlvr_vocab.vocab.head_logits import HeadWeights
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.logprobs import region_logprobs
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import THINKING, regions_after, scored_regions

TEMPERATURES = (0.0, 0.6, 1.0, 1.4)


def mixed_requests(layout, number, mean_length):
    """Prompts of 3 to 150 ids, a third of them ending inside thinking, with temperatures and lengths of every kind."""
    dice = random.Random(0)
    turn, thought = list(layout.turn_ids), [layout.think_open_id]
    endings = itertools.cycle([[], thought, [*turn, *thought], [*thought, 300, layout.think_close_id], turn, thought])
    prompts = [[dice.randrange(100, 40000) for _ in range(dice.randint(3, 150))] + next(endings) for _ in range(number)]
    lengths = [dice.randint(mean_length // 2, mean_length * 3 // 2) for _ in range(number)]
    return prompts, [TEMPERATURES[i % 4] for i in range(number)], lengths


def forbidden(sampled, policy):
    """Completion ids that the policy forbids where they stand."""
    found = []
    for one in sampled:
        ids = torch.tensor([one.prompt_ids + one.completion_ids])
        chosen_in = regions_after(ids, policy.layout)[0, len(one.prompt_ids) - 1 : -1]
        chosen = ids[0, len(one.prompt_ids) :]
        found += chosen[torch.isinf(policy.bias[chosen_in, chosen])].tolist()
    return found


@torch.no_grad()
def trainers_logps(model, one, layout):
    """The completion's log-probabilities by the trainer's scoring; greedy tokens at temperature 1, forbids alone."""
    greedy = one.temperature == 0.0
    policy = RegionPolicy(replace(layout, preserve_odds=False) if greedy else layout)
    ids = torch.tensor([one.prompt_ids + one.completion_ids])
    start = len(one.prompt_ids)
    hidden = model.base_model(input_ids=ids).last_hidden_state[0, start - 1 : -1]
    regions = scored_regions(ids, layout)[0, start:]
    head = model.get_output_embeddings()
    settings = head_settings(model.config, 1.0 if greedy else one.temperature)
    return region_logprobs(hidden, HeadWeights(head.weight, head.bias), ids[0, start:], regions, policy, settings)[0]


def differences(sampled, folder, layout, autocast=False):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        scored = [trainers_logps(model, one, layout) for one in sampled]
    return (torch.cat(scored) - torch.tensor([logp for one in sampled for logp in one.logps])).abs()


Run = namedtuple("Run", "folder policy sampled preemptions")


@pytest.fixture(scope="module", params=["expand", "replace", "trained_low_rank"])
def run(request, chatty_smollm2, make_trainer, start_engine, sample, tmp_path_factory):
    """10,000 tokens in one batch of 64, prompts read in chunks, the cache too small for all of them at once."""
    if request.param == "trained_low_rank":
        folder = tmp_path_factory.mktemp("run") / "final_model"
        initial_model = chatty_smollm2("expand", 16)
        trainer = make_trainer(initial_model, folder.parent, use_vllm=False, learning_rate=1e-3)
        trainer.train()
        trainer.save_model(folder)
    else:
        folder = chatty_smollm2(request.param)
    layout = VocabLayout.load(folder)
    if request.param == "trained_low_rank":  # copies are no longer their sources
        rows = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).get_output_embeddings().weight
        assert (rows[layout.standard_size :] - rows[list(layout.source_ids)]).abs().max() > 1e-3
    llm = start_engine(folder, max_num_batched_tokens=128, block_size=32, num_gpu_blocks_override=300)
    sampled = sample(llm, *mixed_requests(layout, 64, 165))
    preemptions = sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:num_preemptions")
    return Run(folder, RegionPolicy(layout), sampled, preemptions)


def test_ten_thousand_tokens_hold_no_forbidden_id_and_their_logps_are_those_of_the_trainer(run):
    assert sum(len(one.completion_ids) for one in run.sampled) >= 10_000
    assert forbidden(run.sampled, run.policy) == []
    assert differences(run.sampled, run.folder, run.policy.layout).max() < 1e-3


def test_requests_were_preempted_and_blocks_opened_by_prompts_and_by_the_model(run):
    layout = run.policy.layout
    assert run.preemptions > 5
    completions = [one.completion_ids for one in run.sampled]
    opened = sum(ids.count(layout.think_open_id) for ids in completions)
    closed = sum(ids.count(layout.think_close_id) for ids in completions)
    reasoning = sum(run.policy.is_reasoning(torch.tensor(ids)).sum() for ids in completions)
    assert opened > 50 and closed > 50 and reasoning > 1000
    at_start = [regions_after(torch.tensor([one.prompt_ids]), layout)[0, -1] == THINKING for one in run.sampled]
    assert 16 < sum(at_start) < 48


def test_in_bfloat16_logps_are_as_near_as_those_of_a_stock_model(
    smollm2, chatty_smollm2, start_engine, sample, tmp_path
):
    # bfloat16 itself moves SmolLM2's log-probabilities by 0.03 on average: the policy must add nothing to that.
    stock_folder = tmp_path / "stock"
    write_expansion(plan_expansion(str(smollm2), Expansion(size=0)), stock_folder)
    off = {}
    for name, folder in (("stock", stock_folder), ("expanded", chatty_smollm2("expand"))):
        layout = VocabLayout.load(folder)
        sampled = sample(start_engine(folder, dtype="bfloat16"), *mixed_requests(layout, 64, 20))
        off[name] = differences(sampled, folder, layout, autocast=True)
        assert forbidden(sampled, RegionPolicy(layout)) == []
    assert off["expanded"].mean() < 1.5 * off["stock"].mean() and off["expanded"].mean() < 0.1


@pytest.mark.usefixtures("asynchronous")
def test_tokens_that_reach_the_host_a_step_late_decide_regions_in_time(chatty_smollm2, start_engine, sample):
    folder = chatty_smollm2("expand")
    layout = VocabLayout.load(folder)
    llm = start_engine(folder, max_num_batched_tokens=128, block_size=32, num_gpu_blocks_override=150)
    assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling
    sampled = sample(llm, *mixed_requests(layout, 64, 40))
    assert forbidden(sampled, RegionPolicy(layout)) == []
    assert differences(sampled, folder, layout).max() < 1e-3
