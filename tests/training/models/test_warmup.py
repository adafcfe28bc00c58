"""The embedded model depends on its seed alone; its warm-up learns, stops in time, and leaves an ordinary folder."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTTrainer
from trl.chat_template_utils import (
    is_chat_template_prefix_preserving,
    parse_response,
    qwen3_template,
    supports_tool_calling,
)

from rlvr_vocab.data.generators import ArithmeticTask, arithmetic_problems
from rlvr_vocab.runs.model import worked_turns
from rlvr_vocab.tools.calculator import calculator
from rlvr_vocab.training.models.tiny import tiny_tokenizer, write_tiny_model
from rlvr_vocab.training.models.warmup import warm_up
from rlvr_vocab.training.settings import TinyShape, WarmupSettings
from rlvr_vocab.vocab.expand import read_with_think_tags

TAGS = ("<think>", "</think>")
SMALL = TinyShape(hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=16)


def sums(count):
    return [
        {
            "prompt": [{"role": "user", "content": f"What is {n} + 4?"}],
            "completion": [{"role": "assistant", "content": f"<think>{n} + 4</think>\\boxed{{{n + 4}}}"}],
        }
        for n in range(count)
    ]


def run(base, out, accuracies, problems=8, **fields):
    seen, measured = [], iter(accuracies)
    settings = WarmupSettings(**{"max_steps": 6, "batch_size": 4, "check_every": 2, **fields})
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    outcome = warm_up(
        *(model, tokenizer, out / "unfinished", sums(problems), settings, 42),
        lambda: next(measured),
        lambda *row: seen.append(row),
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return outcome, [row for row in seen if "accuracy" in row[2]]


@pytest.fixture(scope="module")
def base(make_shape):
    return make_shape("qwen3").folder


def test_the_seed_decides_the_embedded_model_and_the_random_state_stays(tmp_path):
    state = torch.get_rng_state()
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_tiny_model(tmp_path / name, SMALL, ["Box the answer."] * 5, TAGS, seed)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2] and torch.equal(torch.get_rng_state(), state)
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "a", output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert not any(info.values()) and model.config.vocab_size == len(tokenizer)
    ids = tokenizer.encode("<think>123é</think>", add_special_tokens=False)
    assert [tokenizer.decode([token]) for token in ids[:4]] == ["<think>", "1", "2", "3"]


def test_the_first_good_check_stops_the_warm_up(base, tmp_path):
    outcome, checks = run(base, tmp_path, [0.1, 0.5, 0.9], until_accuracy=0.4)
    assert (outcome.steps, outcome.accuracy) == (4, 0.5)
    assert checks == [(2, 6, {"accuracy": 0.1}), (4, 6, {"accuracy": 0.5})]
    # Killed before its model is saved it takes the last steps again, and stops where it stopped.
    assert [path.name for path in (tmp_path / "unfinished").glob("checkpoint-*")] == ["checkpoint-2"]
    again, _ = run(base, tmp_path, [0.5], until_accuracy=0.4)
    assert again == outcome


def test_without_a_target_it_runs_to_its_end_and_the_worked_answer_gets_likelier(base, tmp_path):
    outcome, _ = run(base, tmp_path, [], problems=1, learning_rate=1e-2)
    assert (outcome.steps, outcome.accuracy) == (6, None)
    [problem], tokenizer = sums(1), AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer.apply_chat_template(problem["prompt"], add_generation_prompt=True, return_dict=False)
    answer = tokenizer.encode(problem["completion"][0]["content"], add_special_tokens=False)
    labels = torch.tensor([[-100] * len(ids) + answer])
    with torch.no_grad():
        before, after = (
            AutoModelForCausalLM.from_pretrained(folder)(input_ids=torch.tensor([ids + answer]), labels=labels).loss
            for folder in (base, tmp_path)
        )
    assert after < before - 0.1


def test_a_chat_reads_as_its_plain_turns_and_a_call_in_a_form_that_trl_knows():
    tokenizer = tiny_tokenizer(["Box the answer."], TAGS)
    chat = [{"role": role, "content": f" {role}\n"} for role in ("system", "user", "assistant", "user", "system")]
    for messages in (chat, chat[1:3], [{"role": "user", "content": ""}]):
        plain = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)
        assert tokenizer.apply_chat_template(messages, tokenize=False) == plain
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert prompt == f"{plain}<|im_start|>assistant\n"
    assert supports_tool_calling(tokenizer) and is_chat_template_prefix_preserving(tokenizer)
    call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": "1*2"}}}
    turn = {"role": "assistant", "content": "<think>1</think>", "tool_calls": [call, call]}
    start, ids = tokenizer.encode("<|im_start|>assistant\n"), tokenizer.apply_chat_template([turn], return_dict=False)
    tokenizer.response_template = qwen3_template
    assert parse_response(tokenizer, ids[len(start) :], prefix=start)["tool_calls"] == [call, call]
    for before in ([], chat[:1]):
        shown = tokenizer.apply_chat_template([*before, *chat[1:2]], tokenize=False, tools=[calculator])
        assert shown.count("<|im_start|>system\n") == 1
        assert "calculator(expression): Compute the value of an arithmetic expression." in shown


def test_of_a_worked_call_the_turns_of_the_assistant_are_trained(tmp_path, monkeypatch):
    trained = []
    step = SFTTrainer.training_step
    monkeypatch.setattr(SFTTrainer, "training_step", lambda *given: trained.append(given[2]["labels"]) or step(*given))
    write_tiny_model(tmp_path / "base", SMALL, ["Box the answer."], TAGS, 0)
    model, tokenizer = read_with_think_tags(str(tmp_path / "base"), TAGS)
    [row] = arithmetic_problems(ArithmeticTask(3, 1, right_calls=1.0), seed=1)
    worked = {"prompt": [{"role": "user", "content": "?"}], "completion": worked_turns(row, "", TAGS)}
    warm_up(model, tokenizer, tmp_path / "out", [worked], WarmupSettings(1, batch_size=1), 42, lambda: None)
    [labels] = trained
    call, answer = "237*682", str(237 * 682)
    assert tokenizer.decode(labels[labels != -100]) == (
        f"<think>{call}</think>\n"
        f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{call}"}}}}\n</tool_call><|im_end|>'
        f"<think>{answer}</think>\\boxed{{{answer}}}<|im_end|>"
    )


@pytest.mark.parametrize("bf16", [True, False])
def test_it_trains_and_measures_in_bfloat16_where_that_is_asked(base, tmp_path, bf16):
    model, tokenizer = read_with_think_tags(str(base), TAGS)
    computed = []
    model.get_input_embeddings().register_forward_hook(lambda *_: computed.append(torch.is_autocast_enabled("cpu")))

    def measure():
        model(input_ids=torch.tensor([[1, 2]]))

    settings = WarmupSettings(max_steps=2, batch_size=2, check_every=2, until_accuracy=0.5)
    warm_up(model, tokenizer, tmp_path, sums(8), settings, 42, measure, bf16=bf16)
    assert computed == [bf16] * 3  # two steps and a check
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
