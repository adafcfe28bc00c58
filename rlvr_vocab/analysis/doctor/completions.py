"""Findings on the completions: cut off, lost in thought, all the same; and how reasoning tokens are used."""

from __future__ import annotations

from rlvr_vocab.analysis.doctor.finding import GUIDE, QUICKSTART, Threshold, figure, share, steps, typed
from rlvr_vocab.analysis.doctor.history import NEARLY_ALL, NEARLY_NONE, History, median
from rlvr_vocab.analysis.doctor.reward_functions import rewards_line
from rlvr_vocab.analysis.doctor.rule import (
    NO_SIGNAL,
    OF_REASONING_TOKENS,
    Symptom,
    longer_completions,
    longer_warm_up,
    lower_rate,
    rule,
    stronger_kl_penalty,
)
from rlvr_vocab.record.metrics import RunFacts

CLIPPED = Threshold(0.3, "share of completions", "`completions/clipped_ratio`: cut off, they cannot score", GUIDE)


@rule(
    severity="warning",
    title="Completions are cut off",
    cause="the completion limit does not hold the thinking and the answer, or the model no longer ends",
    metrics="`completions/clipped_ratio`",
    explains=("reward_flat", "format_reward_zero", "mode_collapse"),
)
def completions_cut_off(history: History) -> Symptom | None:
    """Completions end at the limit."""
    rows, facts = history.sampled.recent(), history.facts
    clipped = median(rows, "completions/clipped_ratio")
    if clipped is None or clipped <= CLIPPED:
        return None
    return Symptom(
        f"completions/clipped_ratio {share(clipped)} in {steps(rows)} (limit {share(CLIPPED)}), at "
        f"{facts.max_completion_length} tokens",
        (longer_completions(facts), rewards_line(facts, {}, more=({"name": "overlong"},))),
        severity="error" if clipped > NEARLY_ALL else "warning",
    )


CLOSED = Threshold(0.5, "share of completions", "`thinking/closed`: healthy above 0.9, doubtful below 0.7", GUIDE)


@rule(
    severity="error",
    title="Thinking is not closed",
    metrics="`thinking/closed`, where most tokens are thinking",
    explains=(*NO_SIGNAL, "reward_flat", "format_reward_zero", *OF_REASONING_TOKENS),
)
def thinking_never_closed(history: History) -> Symptom | None:
    """Completions think and do not come to an answer."""
    rows, facts = history.sampled.recent(), history.facts
    closed, thinking, answering, clipped = (
        median(rows, name)
        for name in ("thinking/closed", "thinking/mean_length", "answering/mean_length", "completions/clipped_ratio")
    )
    # Where most of the text is no thinking, a small share may only mean that few completions think at all.
    if closed is None or not thinking or closed >= CLOSED or thinking < (answering or 0.0):
        return None
    # Those that do close say that it is known how, and the rest ends at the limit: that is the finding.
    if closed > NEARLY_NONE and (clipped or 0.0) > CLIPPED:
        return None
    return Symptom(
        f"thinking/closed {share(closed)} in {steps(rows)} (limit {share(CLOSED)}), {figure(thinking)} tokens of "
        "thinking per completion",
        (longer_completions(facts), "dataset.open_thinking=model", longer_warm_up(facts)),
        cause=f"the model does not know {facts.think_tags[1]}, or the completion limit ends before it: no answer, no "
        "reward",
    )


DUPLICATES = Threshold(
    0.85,
    "of what a group can have",
    "a healthy group of eight has 5 of its 7 possible repeats at most",
    QUICKSTART,
)
SHARED = Threshold(0.5, "share of completions", "half of the texts do not depend on the problem", QUICKSTART)


@rule(
    severity="error",
    title="Completions repeat each other",
    cause="the policy writes one text whatever the problem, because the temperature is low, the reward pays for it, or "
    "the learning rate is too high",
    metrics="`completions/duplicates`, `completions/shared`",
    explains=(*NO_SIGNAL, "reward_flat"),
)
def mode_collapse(history: History) -> Symptom | None:
    """The same text again and again, and not a right one."""
    rows, facts = history.sampled.recent(), history.facts
    size = facts.num_generations
    most = DUPLICATES * (size - 1) / size
    repeated, shared, reward = (
        median(rows, name) for name in ("completions/duplicates", "completions/shared", "reward")
    )
    if size < 2 or (reward is not None and history.scale.is_near_full(reward)):
        return None
    told = []
    if repeated is not None and repeated > most:
        told.append(f"completions/duplicates {share(repeated)} (limit {share(most)} for groups of {size})")
    if shared is not None and shared > SHARED:
        told.append(f"completions/shared {share(shared)} (limit {share(SHARED)})")
    if not told:
        return None
    varied = rewards_line(facts, {}, more=({"name": "diversity", "weight": 0.1},))
    return Symptom(
        f"{' and '.join(told)} in {steps(rows)}",
        (f"training.temperature={typed(max(1.0, facts.temperature))}", lower_rate(facts), varied),
    )


REASONING_SHARE = Threshold(
    0.02, "× the share at even odds", "`thinking/reasoning_share`: below it copies are no longer sampled"
)


@rule(
    severity="warning",
    title="Reasoning tokens are not used",
    metrics="`thinking/reasoning_share`, `thinking/mean_length`",
)
def reasoning_tokens_unused(history: History) -> Symptom | None:
    """Copies are no longer sampled, or nothing is thought."""
    rows, facts = history.sampled.recent(), history.facts
    thinking, used = median(rows, "thinking/mean_length"), median(rows, "thinking/reasoning_share")
    if not facts.reasoning_copies:
        return None
    vocabulary = f"with a reasoning vocabulary of {facts.reasoning_copies:.2g} × the standard one"
    if thinking == 0:
        opened, _ = facts.think_tags
        return Symptom(
            f"thinking/mean_length 0 in {steps(rows)}, {vocabulary}",
            ("dataset.open_thinking=prefill", longer_warm_up(facts)),
            f"the model never thinks: nothing opens {opened}, and reasoning tokens are open in no other place",
            severity="error",
        )
    even = _share_at_even_odds(facts)
    least = REASONING_SHARE * even
    if used is None or used >= least or not history.has_tokens(rows, (thinking or 0.0) * even):
        return None
    before = median(history.sampled.earliest(), "thinking/reasoning_share") or 0.0
    told = (
        f"thinking/reasoning_share {share(used)} in {steps(rows)} (limit {share(least)}), {share(before)} at the "
        f"beginning, {vocabulary}"
    )
    if facts.reasoning_copies < 1 and before < least:
        return Symptom(
            told,
            ("model.reasoning_vocab_size=full model.source_ids=null",),
            "the tokens that are copied hardly occur in what the model thinks",
        )
    return Symptom(
        told,
        ("model.preserve_odds=true", "model.reasoning_mode=replace", lower_rate(facts)),
        "the policy samples standard tokens alone: the copies are new to it, and worse at first",
    )


STANDARD_SHARE = Threshold(
    0.1, "× the share at even odds", "the same for the standard tokens, which `expand` keeps open"
)


@rule(
    severity="warning",
    title="Reasoning tokens are used for everything",
    cause="the policy has settled on the copies, and the standard tokens are no longer tried",
    metrics="`thinking/reasoning_share`",
)
def reasoning_tokens_everywhere(history: History) -> Symptom | None:
    """Standard tokens are no longer sampled while thinking; not in `reasoning_mode: replace`, which closes them."""
    rows, facts = history.sampled.recent(), history.facts
    thinking, used, closings = (
        median(rows, f"thinking/{name}") for name in ("mean_length", "reasoning_share", "closed")
    )
    if not facts.reasoning_copies or facts.reasoning_mode == "replace" or not thinking or not used:
        return None
    # The closing tag is chosen while thinking and has no copy; many a completion may not think at all.
    open_to_both = thinking - (min(1.0, thinking) if closings is None else closings)
    even = _share_at_even_odds(facts)
    if used < REASONING_SHARE * even or not history.has_tokens(rows, open_to_both):
        return None
    if 1 - used * thinking / open_to_both >= STANDARD_SHARE * (1 - even):
        return None
    return Symptom(
        f"thinking/reasoning_share {share(used)} in {steps(rows)}, of at most {share(open_to_both / thinking)} at "
        f"{figure(thinking)} tokens of thinking with the closing tag; {share(even)} at even odds",
        (lower_rate(facts), stronger_kl_penalty(facts), "model.preserve_odds=true"),
    )


def _share_at_even_odds(facts: RunFacts) -> float:
    return facts.reasoning_copies / (1 + facts.reasoning_copies)
