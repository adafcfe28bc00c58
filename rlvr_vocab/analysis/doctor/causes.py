"""Which finding explains which: what follows from something else that was found is not told beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rlvr_vocab.analysis.doctor.finding import Finding

_NO_SIGNAL = ("groups_too_hard", "groups_too_easy", "reward_never_varies")
_NOTHING_LEARNED = ("reward_flat", "weights_not_moving", "updates_rounded_away")
_OF_THE_COPIES = ("reasoning_tokens_unused", "reasoning_tokens_everywhere")
_FALLEN_APART = (
    *_NO_SIGNAL,
    *("reward_flat", "reward_collapsed", "reward_dominated", "held_out_accuracy_falls", "format_reward_zero"),
    *("completions_cut_off", "thinking_never_closed", "mode_collapse", "gradients_clipped", "steps_slow"),
    *(*_OF_THE_COPIES, "updates_rounded_away"),
)

EXPLAINS: dict[str, tuple[str, ...]] = {
    "loss_not_finite": (*_FALLEN_APART, "kl_high", "kl_exploding", "entropy_collapsing", "entropy_exploding"),
    "sampler_disagrees": (*_FALLEN_APART, "kl_high", "kl_exploding", "entropy_collapsing", "entropy_exploding"),
    "kl_exploding": (*_FALLEN_APART, "kl_high", "entropy_collapsing", "entropy_exploding"),
    "entropy_exploding": _FALLEN_APART,
    "entropy_collapsing": tuple(name for name in _FALLEN_APART if name != "mode_collapse"),
    "learning_rate_zero": _NOTHING_LEARNED,
    "completions_cut_off": (*_NO_SIGNAL, "reward_flat", "format_reward_zero", "mode_collapse"),
    "thinking_never_closed": (*_NO_SIGNAL, "reward_flat", "format_reward_zero", *_OF_THE_COPIES),
    "verifier_timeouts": (*_NO_SIGNAL, "reward_flat", "steps_slow", "rows_skipped"),
    "rows_skipped": (*_NO_SIGNAL, "reward_flat"),
    "format_reward_zero": (*_NO_SIGNAL, "reward_flat"),
    "mode_collapse": (*_NO_SIGNAL, "reward_flat"),
    "weights_not_moving": ("reward_flat", "updates_rounded_away"),
    "updates_rounded_away": ("reward_flat",),
    "gradients_clipped": ("reward_flat",),
    "reward_dominated": ("reward_flat",),
    "reward_collapsed": (
        *(*_NO_SIGNAL, "reward_flat", "format_reward_zero", "mode_collapse", "kl_high"),
        *("completions_cut_off", "thinking_never_closed", *_OF_THE_COPIES),
    ),
    **dict.fromkeys(_NO_SIGNAL, _NOTHING_LEARNED),
}
"""Name of a finding -> names of those that follow from it."""


def explained_by(names: Iterable[str]) -> set[str]:
    """What follows from any of these."""
    return {consequence for name in names for consequence in EXPLAINS.get(name, ())}


def unexplained(found: Collection[Finding]) -> list[Finding]:
    """The findings that follow from no other, the gravest first, then by step."""
    explained = explained_by(finding.name for finding in found)
    kept = [finding for finding in found if finding.name not in explained]
    return sorted(kept, key=lambda finding: (finding.severity != "error", finding.step or 0, finding.name))
