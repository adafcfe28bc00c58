"""Scores and gradients of the region head against a dense float64 softmax, in every form of the reasoning rows."""

import pytest
import torch

from rlvr_vocab.vocab import head_logits, logprobs, policy
from rlvr_vocab.vocab.head_logits import HeadSettings, HeadWeights
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.logprobs import Scores, region_logprobs
from rlvr_vocab.vocab.policy import FORBIDDEN, RegionPolicy
from rlvr_vocab.vocab.truncation import KeptTexts, pack_kept_texts

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STANDARD, HIDDEN, RANK, POSITIONS = 61, 16, 3, 33
CONTROL = (3, 50, 51)
MIXES = {
    "mixed": [index % 2 for index in range(POSITIONS)],
    "all answering": [0] * POSITIONS,
    "all thinking": [1] * POSITIONS,
}
SOURCES = {
    "the first 40": tuple(range(40)),
    "all, thrice": tuple(range(STANDARD)) * 3,
    "runs, holes and repeats": (5, 5, 9, 1, 60, 22, 23, 24, 30, 9, 9, *range(41, 48), 50, 51, 3),
    "none": (),
}
FORMS = ("independent", "low_rank", "frozen")
# Which of the figures have a gradient: log-probs, those given the text, entropy over texts.
UPSTREAM = {"all": (1, 1, 1), "log-probs": (1, 0, 0), "KL of texts": (1, 1, 0), "entropy": (0, 0, 1)}


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """Several blocks of tokens and of rows, the last ones partly filled; runs that are long and short."""
    monkeypatch.setattr(logprobs, "_TOKENS_PER_BLOCK", 7)
    monkeypatch.setattr(logprobs, "_TOKENS_PER_BLOCK_ON_ACCELERATOR", 7)
    monkeypatch.setattr(head_logits, "_ROWS_PER_BLOCK", 19)
    monkeypatch.setattr(head_logits, "_ROWS_PER_BLOCK_ON_ACCELERATOR", 19)
    monkeypatch.setattr(policy, "_SHORTEST_RUN", 5)


class Case:
    """Random inputs: `rows` as the function takes them, `leaves` of its gradients, `whole()` the stock table."""

    def __init__(
        self, form="independent", mode="expand", sources="the first 40", regions="mixed", bias=False, odds=True
    ):
        self.sources = torch.tensor(SOURCES[sources], dtype=torch.long)
        layout = VocabLayout(STANDARD, SOURCES[sources], 50, 51, (), CONTROL, mode, odds)
        self.policy = RegionPolicy(layout)
        self.regions = torch.tensor(MIXES[regions])
        generator = torch.Generator().manual_seed(0)

        def leaf(*shape):
            return torch.randn(*shape, generator=generator).requires_grad_()

        copies = len(self.sources)
        self.hidden = leaf(POSITIONS, HIDDEN)
        self.weight = leaf(STANDARD + (copies if form == "independent" else 0), HIDDEN)
        self.bias = leaf(len(self.weight)) if bias else None
        self.A = leaf(RANK, HIDDEN) if form == "low_rank" else None
        self.B = leaf(copies, RANK) if form == "low_rank" else None
        self.form = form
        allowed = torch.isfinite(self.policy.bias)[self.regions].float()
        self.targets = torch.multinomial(allowed, 1, generator=generator).squeeze(1)
        self.kept = torch.ones(POSITIONS, STANDARD, dtype=torch.bool)

    def truncate(self):
        """Keep of each position the text of its target, and of the others a part: from none to nearly all."""
        generator = torch.Generator().manual_seed(2)
        shares = torch.linspace(0, 0.95, POSITIONS)[torch.randperm(POSITIONS, generator=generator), None]
        self.kept = torch.rand(POSITIONS, STANDARD, generator=generator) < shares
        self.kept.scatter_(1, self.policy.surface_ids(self.targets)[:, None], True)
        rows = [pack_kept_texts([row.nonzero()[:, 0].int() for row in part]) for part in self.kept.split(10)]
        return KeptTexts.of_completions(rows, torch.device(DEVICE))

    @property
    def leaves(self):
        every = (self.hidden, self.weight, self.bias, self.A, self.B)
        return [each for each in every if each is not None]

    def scores(self, settings, own_rows=None, kept=None):
        projected = None if self.A is None else self.hidden @ self.A.t()
        parts = (self.weight, self.bias, own_rows, projected, self.B)
        rows = HeadWeights(*(None if each is None else each.to(DEVICE) for each in parts))
        hidden, targets, regions = (each.to(DEVICE) for each in (self.hidden, self.targets, self.regions))
        scores = region_logprobs(hidden, rows, targets, regions, self.policy, settings, kept)
        return Scores(*(each.to(self.hidden.device) for each in scores))

    def whole(self):
        weight, bias = self.weight.double(), None if self.bias is None else self.bias.double()
        if self.form == "independent":
            return weight, bias
        copies = weight[self.sources]
        if self.B is not None:
            copies = copies + self.B.double() @ self.A.double()
        if bias is not None:
            bias = torch.cat([bias, bias[self.sources]])
        return torch.cat([weight, copies]), bias

    def dense(self, settings):
        """The definition, in float64, with the whole table of logits."""
        weight, bias = self.whole()
        z = settings.scale * (self.hidden.double() @ weight.t() + (0 if bias is None else bias))
        if settings.softcap is not None:
            z = settings.softcap * torch.tanh(z / settings.softcap)
        texts = self.policy.surface_ids(torch.arange(self.policy.layout.rows))
        z = (z / settings.temperature + self.policy.bias[self.regions].double()).masked_fill(
            ~self.kept[:, texts], FORBIDDEN
        )
        log_p = z.log_softmax(-1)
        q = torch.zeros(POSITIONS, STANDARD, dtype=torch.float64).index_add(1, texts, log_p.exp())
        of_target = log_p.gather(1, self.targets[:, None]).squeeze(1)
        of_text = q.gather(1, texts[self.targets][:, None]).squeeze(1).log()
        entropy_of_texts = entropy(q)
        is_open = torch.isfinite(self.policy.bias)[self.regions].double()
        open_ids = torch.zeros(POSITIONS, STANDARD, dtype=torch.float64).index_add(1, texts, is_open)
        capacity = (q * open_ids.clamp(min=1).log()).sum(1)
        of_copies = entropy(log_p.exp()) - entropy_of_texts
        return Scores(of_target, of_target - of_text, entropy_of_texts, of_copies, capacity)

    def gradients(self, scores, used):
        for leaf in self.leaves:
            leaf.grad = None
        upstream = torch.randn(3, POSITIONS, generator=torch.Generator().manual_seed(1))
        used_of = zip(scores[:3], upstream.to(scores[0].device), used, strict=True)
        sum((each * weight).sum() for each, weight, use in used_of if use).backward()
        return [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in self.leaves]


def entropy(p):
    return -(p * torch.where(p > 0, p, 1.0).log()).sum(1)


def assert_close(ours, reference, least_scale):
    for each, expected in zip(ours, reference, strict=True):
        assert torch.isfinite(each).all()
        scale = expected.abs().max().clamp(min=least_scale)
        assert (each.double() - expected.double()).abs().max() <= 1e-5 * scale


PLAIN, CAPPED = HeadSettings(1.0), HeadSettings(0.6, softcap=5.0, scale=0.7)


def assert_equals_dense(case, settings, used, kept=None):
    scores, reference = case.scores(settings, kept=kept), case.dense(settings)
    assert_close(scores, reference, least_scale=0.1)  # of an entropy that is 0 the tenth of a nat
    assert_close(case.gradients(scores, used), case.gradients(reference, used), least_scale=1e-2)


@pytest.mark.parametrize(("settings", "bias"), [(PLAIN, False), (CAPPED, True)])
@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sources", SOURCES)
def test_scores_and_gradients_equal_a_dense_float64_reference(sources, form, mode, settings, bias):
    if sources != "none" or form == "independent":  # else there is nothing to hold
        assert_equals_dense(Case(form, mode, sources, bias=bias), settings, UPSTREAM["all"])


@pytest.mark.parametrize("used", UPSTREAM.values(), ids=UPSTREAM)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("form", FORMS)
def test_so_they_do_in_each_region_and_for_each_gradient(form, mix, used):
    case = Case(form, sources="runs, holes and repeats", regions=mix, odds=False)
    assert_equals_dense(case, HeadSettings(0.7), used)


@pytest.mark.parametrize("settings", [PLAIN, CAPPED])
@pytest.mark.parametrize("mode", ["expand", "replace"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sources", SOURCES)
def test_so_they_do_where_each_position_keeps_other_texts(sources, form, mode, settings):
    if sources != "none" or form == "independent":
        case = Case(form, mode, sources)
        assert_equals_dense(case, settings, UPSTREAM["all"], case.truncate())


def test_in_bfloat16_before_training_the_choice_is_as_far_from_chance_as_in_float32():
    case = Case("frozen", sources="all, thrice", regions="all thinking")
    with torch.autocast("cpu", torch.bfloat16):
        scores = case.scores(HeadSettings())
    assert scores.copy_entropy.mean() > 0.5 and (scores.copy_entropy - scores.copy_capacity).abs().max() < 1e-5


def test_a_forbidden_target_scores_as_forbidden_and_leaves_gradients_finite():
    case = Case(regions="all answering")
    case.targets[0] = STANDARD + 1
    scores = case.scores(HeadSettings())
    assert scores.log_probs[0] <= FORBIDDEN / 2
    (scores.log_probs[1:].sum() + scores.entropy.sum()).backward()
    assert torch.isfinite(case.weight.grad).all() and torch.isfinite(case.hidden.grad).all()


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("sources", ["the first 40", "runs, holes and repeats"])
def test_rows_of_their_own_stand_for_the_copies_and_get_their_gradient(sources, mix):
    case, settings = Case(sources=sources, regions=mix, bias=True), HeadSettings(0.8)
    reference = case.dense(settings)
    hidden, weight, bias = case.gradients(reference, UPSTREAM["all"])
    reference = case.dense(settings)
    rows = case.weight.detach()[STANDARD:].clone().requires_grad_()
    case.weight = case.weight.detach().clone()
    case.weight[STANDARD:] = torch.nan  # what stands there is not read
    scores = case.scores(settings, rows)
    case.weight = rows  # the leaf
    assert_close(scores, reference, least_scale=0.1)
    assert_close(case.gradients(scores, UPSTREAM["all"]), (hidden, weight[STANDARD:], bias), least_scale=1e-2)
