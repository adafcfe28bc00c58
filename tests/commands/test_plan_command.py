"""`rlvr-vocab plan` from the command line, and the problems and prompts of its forecast."""

import json
import math
from dataclasses import replace

import pytest

from rlvr_vocab.cli import main
from rlvr_vocab.config.load import read_settings
from rlvr_vocab.plan.devices import GIB, card_called, device_named, device_with
from rlvr_vocab.plan.fit import fit_into_device
from rlvr_vocab.plan.forecast import forecast_of, longest_met
from rlvr_vocab.plan.workload import configured_problems, workload_of

QWEN = ("model=qwen3_0.6b", "dataset=gsm8k")


def planned(capsys, *words):
    code = main(["plan", *words, "format=json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_plan_says_what_trains_and_what_it_takes(capsys):
    code, plan = planned(capsys, *QWEN, "gpu=a100_40", "training.max_steps=10")
    assert code == 0 and plan["trained_weights"] == 596_049_920 and plan["steps"] == 10
    parts = plan["memory"]["optimizer"]
    assert parts["weights"] == parts["gradients"] == 4 * 596_049_920 and parts["optimizer"] == 8 * 596_049_920
    assert plan["peak"] == max(sum(phase.values()) for phase in plan["memory"].values())


@pytest.mark.parametrize(("rank", "of_copies"), [("null", 151_936 * 1024), (16, (151_936 + 1024) * 16), (0, 0)])
def test_what_a_copy_of_every_token_adds_follows_from_its_rank(rank, of_copies, capsys):
    words = ("model.reasoning_vocab_size=full", f"model.reasoning_rank={rank}", "gpu=h100")
    assert planned(capsys, *QWEN, *words)[1]["trained_weights"] == 596_049_920 + of_copies


def test_an_epoch_is_counted_in_steps(capsys):
    # 8 completions a step, 4 of a problem: 2 problems.
    _, plan = planned(capsys, *QWEN, "gpu=h100", "training.num_train_epochs=3", "train_problems=1000")
    assert plan["steps"] == 1500
    _, plan = planned(capsys, *QWEN, "gpu=h100", "gpus=4", "training.num_train_epochs=3", "train_problems=1000")
    assert plan["steps"] == 375


def test_prompts_and_problems_follow_from_the_configuration_unless_they_are_given(capsys):
    words = ("model=tiny", "dataset=arithmetic", "dataset.generator.num_problems=60", "gpu=cpu")
    _, plan = planned(capsys, *words)
    assert plan["prompt"] == 256 and plan["problems"] == 54
    _, given = planned(capsys, *words, "prompt_tokens=500", "train_problems=7")
    assert given["prompt"] == 500 and given["problems"] == 7 and given["peak"] > plan["peak"]


def test_a_run_that_does_not_fit_ends_with_code_1(capsys):
    assert main(["plan", "model=qwen3_1.7b", "gpu=t4"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT into 14.6" in out and "fit=15GiB finds settings that fit" in out


@pytest.mark.parametrize("gib", [6, 16, *(pytest.param(gib, marks=pytest.mark.slow) for gib in (8, 12, 24))])
@pytest.mark.parametrize("model", ["qwen3_0.6b", "qwen3_1.7b"])
def test_what_fit_proposes_fits_as_it_is_typed(model, gib):
    words = [f"model={model}", "dataset=gsm8k", "model.reasoning_vocab_size=full"]
    work = workload_of(read_settings("train", words), device_with(gib))
    fit = fit_into_device(work)
    typed = forecast_of(replace(work, run=read_settings("train", [*words, *fit.words])))
    assert typed.peak == fit.forecast.peak <= gib * GIB
    assert bool(fit.changes) == (forecast_of(work).peak > 0.92 * gib * GIB)


def test_fit_leaves_the_algorithm_alone_as_long_as_it_can():
    words = [*QWEN, "training.gradient_checkpointing=false", "training.per_device_train_batch_size=8"]
    fit = fit_into_device(workload_of(read_settings("train", words), device_with(16)))
    assert fit.changes and not [change for change in fit.changes if change.effect]
    before, after = read_settings("train", words), read_settings("train", [*words, *fit.words])
    drawn = [run.training.grpo["per_device_train_batch_size"] for run in (before, after)]
    batches = [run.training.grpo["gradient_accumulation_steps"] for run in (before, after)]
    assert drawn[0] * batches[0] == drawn[1] * batches[1]


def test_what_a_stage_sets_itself_is_left_alone():
    stages = "stages=[{name: a},{name: b, training: {per_device_train_batch_size: 16, num_generations: 16}}]"
    words = [*QWEN, "training.gradient_checkpointing=false", stages]
    work = workload_of(read_settings("train", words), device_with(24))
    fit = fit_into_device(work)
    assert fit.changes and not any("per_device_train_batch_size" in word for word in fit.words)
    typed = forecast_of(replace(work, run=read_settings("train", [*words, *fit.words])))
    assert typed.peak == fit.forecast.peak < 24 * GIB


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model=qwen3_1.7b", "fit=1GiB"), "fit=1GiB: not even "),
        (("gpu=h10",), "gpu=h10: no such card; did you mean h100"),
        (("fit=much",), "fit=much: expected the memory of a card, as 24GiB"),
        (("model.name=nobody/nothing",), "model.name=nobody/nothing: this machine has no config.json"),
        (("training.num_generations=7",), "training.num_generations=7 does not divide"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_a_line(words, message, capsys):
    assert main(["plan", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_several_cards_hold_gradients_twice_unless_they_share_all_that_trains():
    run = read_settings("train", list(QWEN))
    one, two, shared = (
        forecast_of(workload_of(run, device_with(80), processes=cards, sharding=sharding)).memory
        for cards, sharding in ((1, "none"), (2, "none"), (2, "fsdp2"))
    )
    assert two["generation"]["buckets"] == 4 * 596_049_920
    assert "buckets" not in one["generation"] | shared["generation"]
    for part in ("weights", "gradients", "optimizer"):
        assert shared["optimizer"][part] == pytest.approx(two["optimizer"][part] / 2)


def test_held_out_problems_are_answered_many_at_a_time(capsys):
    words = (*QWEN, "gpu=h100", "training.per_device_train_batch_size=8", "training.gradient_accumulation_steps=1")
    words = (*words, "training.num_generations=8", "prompt_tokens=200")
    of_a_token = 28 * 8 * 128 * (4 + 2)  # keys in float32, as their norm leaves them, and values in bfloat16
    memory = planned(capsys, *words)[1]["memory"]
    evaluation, generation = memory["evaluation"], memory["generation"]
    assert evaluation["kv cache"] == 8 * generation["kv cache"] == 64 * (200 + 1024) * of_a_token
    assert "optimizer" in generation and "optimizer" not in evaluation
    during = planned(capsys, *words, "training.eval_steps=10")[1]["memory"]["evaluation"]
    assert during["optimizer"] == generation["optimizer"]
    few = planned(capsys, *words, "dataset.max_eval_samples=4")[1]["memory"]["evaluation"]
    assert few["kv cache"] == 4 * (200 + 1024) * of_a_token


def test_adam_in_8_bits_leaves_the_embedding_in_32(capsys):
    _, plan = planned(capsys, *QWEN, "gpu=h100", "training.optim=paged_adamw_8bit")
    table = 151_936 * 1024
    assert plan["memory"]["optimizer"]["optimizer"] == 8 * table + 2 * (596_049_920 - table)


def test_a_card_without_bfloat16_computes_in_float32(capsys):
    words = ("model=smollm2_135m", "dataset=gsm8k", "training.bf16=true")
    older, newer = (planned(capsys, *words, f"gpu={card}")[1]["memory"]["forward"] for card in ("t4", "l4"))
    assert "cast weights" in newer and "cast weights" not in older


def test_a_reference_that_is_the_model_without_its_adapter_takes_time_and_no_memory(capsys):
    words = (*QWEN, "gpu=h100", "model.lora.enabled=true", "model.lora.lora_dropout=0", "training.beta=0.04")
    _, plan = planned(capsys, *words)
    assert plan["step_seconds"]["logprobs"] > 0 and "reference" not in plan["memory"]["logprobs"]


def test_the_time_for_slurm_is_the_longest_in_whole_quarters_of_an_hour(capsys):
    words = (*QWEN, "gpu=h100", "gpus=2", "training.max_steps=1000")
    _, plan = planned(capsys, *words)
    main(["plan", *words, "format=slurm_time"])
    days, clock = capsys.readouterr().out.strip().split("-")
    given_hours, minutes, seconds = map(int, clock.split(":"))
    given = int(days) * 86400 + given_hours * 3600 + minutes * 60 + seconds
    assert 0 <= given - plan["total_range"][1] < 900


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100_40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", None),
        ("NVIDIA RTX A1000", None),
    ],
)
def test_a_card_is_known_by_what_its_driver_calls_it(name, card):
    found = card_called(name)
    assert (found and found.name) == card


def test_a_dropout_has_the_policy_score_its_samples_again():
    words, device = ["model=smollm2_135m", "model.lora.enabled=true"], device_with(16)
    assert workload_of(read_settings("train", words), device).scored_before
    assert not workload_of(read_settings("train", [*words, "model.lora.lora_dropout=0"]), device).scored_before


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (["dataset=gsm8k"], 7_473),
        (["dataset=gsm8k", "dataset.max_train_samples=100"], 100),
        (["dataset=local", "dataset.name=mine.jsonl"], None),
    ],
)
def test_the_number_of_problems_follows_from_the_configuration(words, problems):
    assert configured_problems(read_settings("train", words)) == problems


def test_the_schemas_of_tools_lengthen_prompts_of_unknown_length():
    run = read_settings("plan", ["model=tiny", "tools=[calculator,mine.py:f]"])  # whose file is not imported
    device = device_named("h100")
    assert workload_of(run, device).prompt == 256 + 100 + 2 * 100
    assert workload_of(run, device, prompt=31).prompt == 31
    assert workload_of(read_settings("plan", ["model=tiny"]), device).prompt == 256


def test_few_draws_meet_no_extremes_and_many_meet_all():
    prompts = [*range(1, 100), 1000]
    assert longest_met(prompts, 1) == 51 and longest_met(prompts, 9) == 91
    assert longest_met(prompts, 99) == longest_met(prompts, math.inf) == 1000
    assert longest_met([7], 0.1) == 7
