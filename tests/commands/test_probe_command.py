"""`rlvr-vocab probe` on small runs: arms that change nothing, arms that do, what is written, what is refused."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.probe_controls.planted_channel import train_planted
from rlvr_vocab.cli import main
from rlvr_vocab.evaluation.sampling import Continuations
from rlvr_vocab.record.results import ARMS, ProbeAnswer, read_lines
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import scored_regions

pytestmark = pytest.mark.slow  # a minute
SMALL = (
    *("warmup.max_steps=120", "warmup.until_accuracy=null", "training.max_steps=1", "training.learning_rate=1e-5"),
    *("training.per_device_train_batch_size=32", "training.eval_steps=null", "dataset.max_eval_samples=24"),
    "report=false",
)
MOVED = ("model.reasoning_rank=null", "model.init_noise=0.5")  # copies that are not their sources
PROBE = ("draws=3", "permutations=8", "batch_size=32")


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")

    def trained(name, *words):
        if not (runs / name).exists():
            assert main(["quickstart", *SMALL, f"output_dir={runs / name}", *words]) == 0
        return runs / name

    return trained


def probed(run, *words):
    assert main(["probe", f"run={run}", *PROBE, *words]) == 0
    return json.loads((run / "probe" / "probe.json").read_text())


def answers(run, arm):
    return read_lines(run / "probe" / f"{arm}.jsonl", ProbeAnswer)


def test_frozen_copies_are_answered_alike_in_every_arm(train):
    run = train("frozen", "model.reasoning_rank=0")
    found = probed(run)
    own = answers(run, "own")
    assert len({each.answer for each in own}) > 3
    for arm in ARMS:
        by_place = {(each.problem, each.draw): each for each in answers(run, arm)}
        for each in own:
            if (each.problem, each.draw) in by_place:
                other = by_place[each.problem, each.draw]
                assert other.answer == each.answer and abs(other.gold_logp - each.gold_logp) < 1e-5
    assert found["primary"]["difference"] == 0 and found["verdict"] != "carries meaning"
    assert abs(found["used"]["own"]["estimate"]) < 1e-5 > abs(found["used"]["redrawn"]["estimate"])
    assert "NaN" not in (run / "probe" / "probe.json").read_text()


def test_a_planted_quarter_of_a_bit_is_found_and_draws_to_the_donor(tmp_path):
    run = tmp_path / "planted"
    assert train_planted(0.25, ["report=false", "dataset.max_eval_samples=200", f"output_dir={run}"]) == 0
    found = probed(run)
    assert found["verdict"] == "carries meaning"
    used, pull = found["used"], found["contrasts"]["donor"]
    for bits in (used["own"], used["redrawn"]):
        assert bits["low"] - used["bias"] < 0.25 < bits["high"] - used["bias"]
    assert pull["low"] > 0


def test_a_bit_planted_across_a_call_is_found_and_vanishes_where_earlier_thoughts_are_reencoded(tmp_path):
    run = tmp_path / "planted"
    small = ("dataset.generator.num_problems=1000", "dataset.max_eval_samples=100", "model.tiny.num_layers=2")
    words = [*small, "report=false", f"output_dir={run}"]
    assert train_planted(1, words, steps=700, call=True) == 0
    found = probed(run, "trust_code=true")
    assert found["verdict"] == "carries meaning" and "past_thinking=keep; ids exchanged" in found["sentence"]
    assert 0.5 < found["used"]["own"]["estimate"] - found["used"]["bias"] < 1.01
    assert main(["probe", f"run={run}", *PROBE, "trust_code=true", "past_thinking=reencode"]) == 0
    placebo = json.loads((run / "probe_reencode" / "probe.json").read_text())
    assert placebo["primary"]["difference"] == 0 and placebo["verdict"] != "carries meaning"
    assert abs(placebo["used"]["own"]["estimate"]) < 1e-3


def test_log_p_of_the_gold_answer_is_that_of_the_definition(train):
    run = train("moved", *MOVED)
    probed(run)
    model, layout = AutoModelForCausalLM.from_pretrained(run / "final_model"), VocabLayout.load(run / "final_model")
    asked = []
    own_logps = Continuations.logps

    def noted(self, prompts, ids, of="log_probs"):
        found = own_logps(self, prompts, ids, of)
        asked.append((prompts, ids, of, found))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Continuations, "logps", noted)
        (run / "probe" / "own.jsonl").unlink()
        probed(run)
    prefixes, ids, _, found = next(each for each in asked if each[2] == "log_probs")
    bias = RegionPolicy(layout).bias.double()
    for prefix, own, logp in list(zip(prefixes, ids, found, strict=True))[:8]:
        sequence = torch.tensor([[*prefix, *own]])
        with torch.no_grad():
            log_p = (
                model(sequence).logits[:, :-1].double() + bias[scored_regions(sequence, layout)[:, 1:]]
            ).log_softmax(-1)
        expected = log_p.gather(2, sequence[:, 1:].unsqueeze(2))[0, len(prefix) - 1 :, 0]
        assert abs(expected.sum().item() - logp) < 1e-4


def test_arms_that_are_lost_come_out_with_the_same_bytes(train):
    run = train("moved", *MOVED)
    probed(run)
    before = {path.name: path.read_bytes() for path in (run / "probe").iterdir()}
    for name in ("thoughts.jsonl", "permutations_8.jsonl", "permuted.jsonl", "transplanted.jsonl", "probe.json"):
        (run / "probe" / name).unlink()
    probed(run)
    assert {path.name: path.read_bytes() for path in (run / "probe").iterdir()} == before


def test_several_runs_are_probed_together_and_what_cannot_be_is_refused(train, tmp_path, error_of):
    run, other = train("moved", *MOVED), train("frozen", "model.reasoning_rank=0")
    assert main(["probe", f"run=[{run},{other}]", *PROBE, f"out={tmp_path / 'both'}"]) == 0
    found = json.loads((tmp_path / "both" / "probe.json").read_text())
    assert found["runs"] == [str(run), str(other)] and len(found["primary"]["other_scores"]) == 2
    assert "draws=3 (now 2)" in error_of("probe", f"run={run}", "draws=2", "permutations=8", "batch_size=32")
    assert "no reasoning tokens" in error_of("probe", f"run={train('baseline', 'model.reasoning_vocab_size=0')}")
    assert "is given twice" in error_of("probe", f"run=[{run},{run}]")
