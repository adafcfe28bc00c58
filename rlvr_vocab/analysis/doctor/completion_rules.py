"""Rules on the completions: cut off, lost in thought, all the same; and what reasoning tokens are used for."""

from __future__ import annotations

from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.remedies import longer_completions, longer_warm_up, lower_rate, stronger_pull
from rlvr_vocab.analysis.doctor.reward_scale import scale_seen
from rlvr_vocab.analysis.doctor.reward_words import rewards_line
from rlvr_vocab.analysis.doctor.seen import Seen, typical
from rlvr_vocab.analysis.doctor.thresholds import LIMITS
from rlvr_vocab.analysis.doctor.words import figure, share, steps, typed
from rlvr_vocab.record.metrics import Row


def completions_cut_off(seen: Seen) -> list[Finding]:
    """Too many completions end at the limit."""
    rows = seen.sampled()
    clipped = typical(rows, "completions/clipped_ratio")
    if clipped is None or clipped <= LIMITS.clipped:
        return []
    limit = seen.facts.max_completion_length
    return [
        Finding(
            "completions_cut_off",
            "Completions are cut off",
            "error" if clipped > LIMITS.nearly_all else "warning",
            f"completions/clipped_ratio {share(clipped)} in {steps(rows)} (limit {share(LIMITS.clipped)}), at "
            f"{limit} tokens",
            "the completion limit does not hold the thinking and the answer, or the model no longer ends",
            (longer_completions(seen.facts), rewards_line(seen.facts, {}, more=({"name": "overlong"},))),
            seen.step,
        )
    ]


def thinking_never_closed(seen: Seen) -> list[Finding]:
    """Completions think and do not come to an answer."""
    rows = seen.sampled()
    closed, thinking, answering = (
        typical(rows, name) for name in ("thinking/closed", "thinking/mean_length", "answering/mean_length")
    )
    # Where most of the text is no thinking, a small share may only mean that few completions think at all.
    if closed is None or not thinking or closed >= LIMITS.closed or thinking < (answering or 0.0):
        return []
    # Those that do close say that it is known how, and the rest ends at the limit: that is the finding.
    if closed > LIMITS.nearly_none and (typical(rows, "completions/clipped_ratio") or 0.0) > LIMITS.clipped:
        return []
    _, close = seen.facts.think_tags
    return [
        Finding(
            "thinking_never_closed",
            "Thinking is not closed",
            "error",
            f"thinking/closed {share(closed)} in {steps(rows)} (limit {share(LIMITS.closed)}), {figure(thinking)} "
            f"tokens of thinking per completion",
            f"the model does not know {close}, or the completion limit ends before it: no answer, no reward",
            (
                longer_completions(seen.facts),
                "dataset.open_thinking=model",
                longer_warm_up(seen.facts),
            ),
            seen.step,
        )
    ]


def most_duplicates(size: int) -> float:
    """The share of completions of groups of this size that may repeat another one."""
    return LIMITS.duplicates * (size - 1) / size


def mode_collapse(seen: Seen) -> list[Finding]:
    """The same text again and again, and not the right one."""
    rows = seen.sampled()
    repeated, shared, reward = (
        typical(rows, name) for name in ("completions/duplicates", "completions/shared", seen.reward)
    )
    if not rows or (reward is not None and scale_seen(seen, rows[-1]).is_near_full(reward)):
        return []
    size = seen.facts.num_generations
    if size < 2:
        return []
    most = most_duplicates(size)
    told = []
    if repeated is not None and repeated > most:
        told.append(f"completions/duplicates {share(repeated)} (limit {share(most)} for groups of {size})")
    if shared is not None and shared > LIMITS.shared:
        told.append(f"completions/shared {share(shared)} (limit {share(LIMITS.shared)})")
    if not told:
        return []
    warmer = typed(max(1.0, seen.facts.temperature))
    return [
        Finding(
            "mode_collapse",
            "Completions repeat each other",
            "error",
            f"{' and '.join(told)} in {steps(rows)}",
            "the policy writes one text whatever the problem, because the temperature is low, the reward pays for it, "
            "or the learning rate is too high",
            (
                f"training.temperature={warmer}",
                lower_rate(seen.facts),
                rewards_line(seen.facts, {}, more=({"name": "diversity", "weight": 0.1},)),
            ),
            seen.step,
        )
    ]


def reasoning_tokens(seen: Seen) -> list[Finding]:
    """Reasoning tokens that are not used, or have driven out all others."""
    rows, facts = seen.sampled(), seen.facts
    if not facts.reasoning_copies or not rows:
        return []
    thinking, used = typical(rows, "thinking/mean_length"), typical(rows, "thinking/reasoning_share")
    at_even_odds = facts.reasoning_copies / (1 + facts.reasoning_copies)
    if thinking == 0:
        return [_never_thinks(seen, rows)]
    least = LIMITS.reasoning_share * at_even_odds
    if used is not None and used < least and seen.has_tokens(rows, (thinking or 0.0) * at_even_odds):
        return [_unused(seen, rows, used, least)]
    if facts.reasoning_mode == "replace" or used is None or not thinking:
        return []
    # The closing tag is chosen while thinking and has no copy; many a completion may not think at all.
    closings = typical(rows, "thinking/closed")
    open_to_both = thinking - (min(1.0, thinking) if closings is None else closings)
    if not seen.has_tokens(rows, open_to_both) or not used:
        return []
    standard = 1 - used * thinking / open_to_both
    if standard >= LIMITS.standard_share * (1 - at_even_odds):
        return []
    return [
        Finding(
            "reasoning_tokens_everywhere",
            "Reasoning tokens are used for everything",
            "warning",
            f"thinking/reasoning_share {share(used)} in {steps(rows)}, of at most {share(open_to_both / thinking)} at "
            f"{figure(thinking)} tokens of thinking with the closing tag; {share(at_even_odds)} at even odds",
            "the policy has settled on the copies, and the standard tokens are no longer tried",
            (lower_rate(facts), stronger_pull(facts), "model.preserve_odds=true"),
            seen.step,
        )
    ]


def _never_thinks(seen: Seen, rows: list[Row]) -> Finding:
    opened, _ = seen.facts.think_tags
    return Finding(
        "reasoning_tokens_unused",
        _UNUSED,
        "error",
        f"thinking/mean_length 0 in {steps(rows)}, with a reasoning vocabulary of {seen.facts.reasoning_copies:.2g} × "
        "the standard one",
        f"the model never thinks: nothing opens {opened}, and reasoning tokens are open in no other place",
        ("dataset.open_thinking=prefill", longer_warm_up(seen.facts)),
        seen.step,
    )


def _unused(seen: Seen, rows: list[Row], used: float, least: float) -> Finding:
    facts, before = seen.facts, typical(seen.first_sampled(), "thinking/reasoning_share") or 0.0
    some_are_copied = facts.reasoning_copies < 1 and before < least
    return Finding(
        "reasoning_tokens_unused",
        _UNUSED,
        "warning",
        f"thinking/reasoning_share {share(used)} in {steps(rows)} (limit {share(least)}), {share(before)} at the "
        f"beginning, with a reasoning vocabulary of {facts.reasoning_copies:.2g} × the standard one",
        "the tokens that are copied hardly occur in what the model thinks"
        if some_are_copied
        else "the policy samples standard tokens alone: the copies are new to it, and worse at first",
        ("model.reasoning_vocab_size=full model.source_ids=null",)
        if some_are_copied
        else ("model.preserve_odds=true", "model.reasoning_mode=replace", lower_rate(facts)),
        seen.step,
    )


_UNUSED = "Reasoning tokens are not used"
