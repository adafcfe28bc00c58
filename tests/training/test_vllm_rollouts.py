"""The canary before vLLM rollouts, asked of a stand-in that samples with the trainer's own model."""

from types import SimpleNamespace

import pytest
import torch

from rlvr_vocab.errors import UserError
from rlvr_vocab.training.vllm_rollouts import check_vllm, set_vllm_context
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import region_of_next


class Engine:
    """Samples under the region policy as vLLM is asked to, or with the fault that is named."""

    def __init__(self, trainer, fault=None):
        self.trainer, self.fault = trainer, fault
        self.max_completion_length, self.logprobs, self.generation_kwargs = 16, 0, {}

    def generate(self, prompts, images, num_generations):
        answers = [self._complete(torch.tensor([ids])) for ids in prompts]
        return prompts, [ids for ids, _ in answers], [[[logp] for logp in logps] for _, logps in answers], None

    @torch.no_grad()
    def _complete(self, ids):
        policy, start, logps = self.trainer.policy, ids.size(1), []
        for _ in range(self.max_completion_length):
            raw = self.trainer.model(input_ids=ids).logits[0, -1]
            logits = raw / self.trainer.temperature
            bias = policy.bias[region_of_next(ids, policy.layout)[0]]
            if self.fault == "answers in tongues":
                bias = bias.masked_fill(bias.isinf(), 0.0)
            if self.fault == "no reasoning":
                bias = policy.bias[0]
            for token, push in self.generation_kwargs.get("logit_bias", {}).items():
                logits[token] += push
            logp = (logits + bias).log_softmax(0)
            token = torch.multinomial(logp.exp(), 1)
            reported = raw.log_softmax(0) if self.fault == "raw" else logp
            logps.append(float(reported[token]) - (1.0 if self.fault == "other weights" else 0.0))
            ids = torch.cat([ids, token.unsqueeze(0)], dim=1)
        return ids[0, start:].tolist(), logps


@pytest.fixture
def asked(make_trainer, expand_shape, tmp_path):
    def ask(fault=None):
        trainer = make_trainer(expand_shape("llama", size=None), tmp_path, temperature=0.8)
        trainer.vllm_generation = Engine(trainer, fault)
        check_vllm(trainer)
        return trainer.vllm_generation

    return ask


def test_a_sampler_of_the_policy_passes_and_keeps_its_settings(asked):
    engine = asked()
    assert (engine.max_completion_length, engine.logprobs, engine.generation_kwargs) == (16, 0, {})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raw", "before temperature and region policy: start it with --logprobs-mode"),
        ("answers in tongues", r"it sampled (\[\d+\]) while answering and \1 while thinking; install rlvr-vocab"),
        ("no reasoning", "asked for reasoning token .* it sampled .* while thinking; install rlvr-vocab"),
        ("other weights", r"differ by 1\.00 on average .*\(answering\)"),
    ],
)
def test_each_fault_ends_the_run_with_a_line_of_its_own(fault, message, asked):
    with pytest.raises(UserError, match=message):
        asked(fault)


WORDS = ("one", "one two three four", "one two")


@pytest.mark.parametrize(
    ("settings", "evaluation", "context"),
    [
        ({}, None, 4 + 30),
        ({}, {"easy": ["a"], "hard": ["a b c d e"]}, 5 + 30),
        ({"max_completion_length": 2}, None, 3 + 2 + 1 + 16),  # the questions asked before training need more
        ({"vllm_max_model_length": 512}, None, 512),
        ({"use_vllm": False}, None, None),
    ],
)
def test_vllm_makes_room_for_the_longest_prompt_and_its_completion(settings, evaluation, context):
    def dataset(texts):
        return [{"prompt": text} for text in texts]

    if evaluation is not None:
        evaluation = {name: dataset(texts) for name, texts in evaluation.items()}
    given = {"use_vllm": True, "vllm_max_model_length": None, "max_completion_length": 30}
    args, layout = SimpleNamespace(**{**given, **settings}), VocabLayout(90, (), 1, 2, (3, 4), (1, 2, 3, 4))
    set_vllm_context(args, layout, lambda texts: {"input_ids": [*map(str.split, texts)]}, dataset(WORDS), evaluation)
    assert args.vllm_max_model_length == context
