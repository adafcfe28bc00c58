"""The plugin under Model Runner V2's interface: its classes and batch objects, whose kernels no CPU can run."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("vllm", reason="vllm is not installed here: make test-vllm has an environment of its own")
pytest.importorskip(
    "vllm.v1.worker.gpu.sample.logits_processor", reason="this vLLM has no processors for Model Runner V2"
)

from vllm import SamplingParams
from vllm.v1.worker.gpu import buffer_utils
from vllm.v1.worker.gpu.buffer_utils import StagedWriteTensor
from vllm.v1.worker.gpu.sample import states as vllm_sampling_states
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, build_custom_logits_processors
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import regions_after
from rlvr_vocab.vocab.vllm_plugin import NAME_OF_NAMED, NamedVLLMRegionProcessor, VLLMRegionProcessor

DEVICE = torch.device("cpu")


@pytest.fixture(autouse=True)
def kernels_done_on_the_host(monkeypatch):
    """What three Triton kernels write, written by a loop."""

    def apply_write(self):
        contents, start = self._staged_write_contents, 0
        for row, first, end in zip(
            self._staged_write_indices, self._staged_write_starts, self._staged_write_cu_lens, strict=True
        ):
            written = torch.tensor(contents[start:end], dtype=self.dtype)
            self.gpu.view(self.num_rows, -1)[row, first : first + len(written)] = written
            start = end
        self.clear_staged_writes()

    def apply_temperature(logits, slots, temperatures):
        chosen = temperatures[slots.long()]
        logits /= torch.where(chosen == 0, 1.0, chosen).unsqueeze(1)

    monkeypatch.setattr(buffer_utils, "is_uva_available", lambda: False)
    monkeypatch.setattr(StagedWriteTensor, "apply_write", apply_write)
    monkeypatch.setattr(vllm_sampling_states, "apply_temperature", apply_temperature)


def engine_config(folder, rows, named=(NAME_OF_NAMED,)):
    model_config = SimpleNamespace(
        model=str(folder), revision=None, logits_processors=list(named), get_vocab_size=lambda: rows
    )
    return SimpleNamespace(
        model_config=model_config,
        scheduler_config=SimpleNamespace(async_scheduling=True),
        speculative_config=None,
        reasoning_config=None,
        num_speculative_tokens=0,
    )


class Runner:
    """One V2 model runner's sampling side: real request state, real sampler, the plugin as vLLM loads it."""

    def __init__(self, folder, rows, slots=6):
        self.rows = rows
        self.state = RequestState(slots, 64, 64, 0, rows, DEVICE)
        config = engine_config(folder, rows)
        named = config.model_config.logits_processors
        self.processors = build_custom_logits_processors(config, self.state, False, named)
        self.sampler = Sampler(config, slots, rows, DEVICE, self.state, custom_logits_processors=self.processors)

    def add(self, name, prompt_ids, temperature, extra_args=None):
        self.state.add_request(name, len(prompt_ids), prompt_ids, 0, 64)
        params = SamplingParams(temperature=temperature, extra_args=extra_args)
        self.sampler.add_request(self.state.req_id_to_index[name], params)

    def flush(self):
        self.state.apply_staged_writes()
        self.sampler.apply_staged_writes()

    def sampled(self, name, token):
        slot = self.state.req_id_to_index[name]
        self.state.all_token_ids.gpu[slot, self.state.total_len.gpu[slot]] = token
        self.state.total_len.gpu[slot] += 1

    def process(self, names, logits):
        slots = np.array([self.state.req_id_to_index[name] for name in names], dtype=np.int32)
        on_device = torch.from_numpy(slots)
        lengths = self.state.total_len.gpu[on_device.long()]
        return self.sampler.apply_sampling_params(
            logits, on_device, on_device, slots, lengths - 1, torch.zeros_like(on_device),
            torch.zeros_like(on_device), lengths.numpy(),
        )  # fmt: skip

    def ids(self, name):
        slot = self.state.req_id_to_index[name]
        return self.state.all_token_ids.gpu[slot, : self.state.total_len.gpu[slot]].long()


def expected(runner, policy, name, logits, temperature, top_k):
    region = int(regions_after(runner.ids(name).unsqueeze(0), policy.layout)[0, -1])
    bias = policy.bias[region]
    if temperature == 0.0:
        return (logits + bias.masked_fill(bias.isfinite(), 0.0)).log_softmax(0)
    log_p, texts = (logits / temperature + bias).log_softmax(0), policy.surface_ids(torch.arange(len(logits)))
    q = torch.zeros(policy.layout.standard_size).index_add(0, texts, log_p.exp())
    return log_p.masked_fill(~torch.isin(texts, q.topk(top_k or len(q)).indices), -torch.inf).log_softmax(0)


@pytest.mark.parametrize("mode", ["expand", "replace"])
def test_the_sampler_of_v2_gives_each_request_the_distribution_of_its_region(mode, expand_shape):
    folder = expand_shape("qwen3", size=None, mode=mode)
    layout = VocabLayout.load(folder)
    policy, runner = RegionPolicy(layout), Runner(folder, layout.rows)
    requests, truncated = {"a": 1.0, "b": 0.0, "c": 0.6, "d": 1.4}, {"b": 5, "d": 9}
    for number, (name, temperature) in enumerate(requests.items()):
        opened = [layout.think_open_id] if number % 2 else []
        asked = {"text_top_k": truncated[name]} if name in truncated else None
        runner.add(name, [20 + number, *opened, 30], temperature, asked)
    dice = torch.Generator().manual_seed(0)
    tokens = [layout.think_open_id, 40, layout.think_close_id, *layout.turn_ids, layout.think_open_id, 41]
    for step in range(20):
        if step == 7:  # one leaves, and another takes over its slot
            runner.state.remove_request("a")
            runner.add("a", [50, layout.think_open_id], 1.0)
        runner.flush()
        names = [name for number, name in enumerate(requests) if (step + number) % 4]
        logits = torch.randn(len(names), layout.rows, generator=dice) * 5
        made = runner.process(names, logits.clone()).log_softmax(1)
        for row, name in enumerate(names):
            defined = expected(runner, policy, name, logits[row], requests[name], truncated.get(name))
            assert torch.equal(made[row].isinf(), defined.isinf())
            allowed = defined.isfinite()
            assert (made[row] - defined)[allowed].abs().max() < 1e-4
            runner.sampled(name, tokens[(step + row) % len(tokens)])


def test_vllm_takes_the_class_for_both_runners_and_builds_it_once_in_force(expand_shape):
    folder = expand_shape("qwen3", size=None)
    runner = Runner(folder, VocabLayout.load(folder).rows)
    ours = [one for one in runner.processors if isinstance(one, VLLMRegionProcessor)]
    assert [type(one) for one in ours] == [VLLMRegionProcessor, NamedVLLMRegionProcessor]
    assert [one.add_request(0, SamplingParams(temperature=1.0)) for one in ours] == [False, True]


def test_a_model_without_a_reasoning_vocabulary_has_no_request_processed(expand_shape):
    state, folder = RequestState(4, 64, 64, 0, 100, DEVICE), expand_shape("qwen3", size=0)
    installed, _ = build_custom_logits_processors(engine_config(folder, 100), state, False, [NAME_OF_NAMED])
    assert not installed.add_request(0, SamplingParams(temperature=1.0))
    installed.apply_staged_writes()
    logits = torch.randn(1, 100)
    assert installed.apply(logits, LogitsContext(*[None] * 7)) is logits
