"""Findings on the policy and its updates: completions, KL, entropy, sampler, gradients, weights that do not move."""

from __future__ import annotations

import statistics

from rlvr_vocab.analysis.doctor.history import FEWEST_ROWS, NEARLY_ALL, RISEN, WINDOW, Finding, History, Window, number

_CLIPPED = 0.3  # share of completions (docs/guide.md): cut off, they cannot score
_CLOSED = 0.5  # share of completions: healthy above 0.9, doubtful below 0.7 (docs/guide.md)


def completions_cut_off(history: History) -> Finding | None:
    rows = history.sampled.recent()
    clipped, closed = rows.median("completions/clipped_ratio"), rows.median("thinking/closed")
    thinking, answering = rows.median("thinking/mean_length"), rows.median("answering/mean_length")
    # Where most of the text is no thinking, few completions may think at all.
    shown = ""
    if closed is not None and closed < _CLOSED and thinking and thinking >= (answering or 0.0):
        shown = f"thinking/closed {closed:.0%}"
    if clipped is not None and clipped > _CLIPPED:
        return Finding(
            "Completions are cut off",
            "error" if clipped > NEARLY_ALL else "warning",
            f"completions/clipped_ratio {clipped:.0%} in {rows.steps} (limit {_CLIPPED:.0%}), at "
            f"{history.facts.max_completion_length} tokens{f', {shown}' if shown else ''}",
            "the completion limit does not hold the thinking and the answer, or the model no longer ends",
            "training.max_completion_length: twice as much; rewards: add overlong",
        )
    if not shown:
        return None
    return Finding(
        "Thinking is not closed",
        "error",
        f"{shown} in {rows.steps} (limit {_CLOSED:.0%})",
        f"the model does not write {history.facts.think_tags[1]}: no answer, no reward",
        "dataset.open_thinking=model; warmup.max_steps: show it; training.max_completion_length: twice as much",
    )


_FEW_CALLS = 0.02  # calls per completion: nearly all groups hold none to learn from
_FAILED_CALLS, _ENDED_IN_CALLS = 0.5, 0.5  # share of calls, and of completions: most of them are for nothing


def no_calls(history: History) -> Finding | None:
    """Not where the problems are solved without any."""
    rows = history.sampled.recent()
    calls, reward = rows.mean("tools/call_frequency"), rows.mean("reward")
    if calls is None or calls >= _FEW_CALLS or history.is_near_full(reward):
        return None
    return Finding(
        "The model calls no tool",
        "warning",
        f"tools/call_frequency {calls:.3g} in {rows.steps} (limit {_FEW_CALLS} calls per completion)",
        "it was never trained to call, or its calls cannot be read (rlvr-vocab samples contains='<tool_call>')",
        "warmup.max_steps: show calls; dataset.system_prompt: ask for them; rewards: add tool_calls",
    )


def calls_fail(history: History) -> Finding | None:
    rows = history.sampled.recent()
    calls, failed = rows.mean("tools/call_frequency"), rows.mean("tools/failure_frequency")
    if calls is None or failed is None or calls < _FEW_CALLS or failed <= _FAILED_CALLS:
        return None
    return Finding(
        "Most calls fail",
        "warning",
        f"tools/failure_frequency {failed:.0%} of {calls:.3g} calls per completion in {rows.steps} (limit "
        f"{_FAILED_CALLS:.0%})",
        "wrong names or arguments, or the tool raises or runs into its deadline (rlvr-vocab samples contains=error)",
        "tools: mend the function, or describe its parameters in its docstring; rewards: add tool_calls",
    )


def completions_end_in_calls(history: History) -> Finding | None:
    rows = history.sampled.recent()
    ended = rows.mean("tools/ended_in_call")
    if ended is None or ended <= _ENDED_IN_CALLS:
        return None
    return Finding(
        "Completions end in calls, without an answer",
        "error" if ended > NEARLY_ALL else "warning",
        f"tools/ended_in_call {ended:.0%} in {rows.steps} (limit {_ENDED_IN_CALLS:.0%})",
        "the limit on calls ends them, or the results do not fit into the completion limit, or the model only calls",
        "training.max_tool_calling_iterations, training.max_completion_length: raise them; rewards: pay the answer",
    )


_DUPLICATES = 0.85  # of the possible ones: a healthy group of eight has 5 of its 7 possible repeats at most
_SHARED = 0.5  # share of completions: half of the texts do not depend on the problem


def mode_collapse(history: History) -> Finding | None:
    rows, size = history.sampled.recent(), history.facts.num_generations
    most = _DUPLICATES * (size - 1) / size
    names = ("completions/duplicates", "completions/shared", "reward")
    repeated, shared, reward = (rows.median(name) for name in names)
    if size < 2 or history.is_near_full(reward):
        return None
    seen = []
    if repeated is not None and repeated > most:
        seen.append(f"completions/duplicates {repeated:.0%} (limit {most:.0%} for groups of {size})")
    if shared is not None and shared > _SHARED:
        seen.append(f"completions/shared {shared:.0%} (limit {_SHARED:.0%})")
    if not seen:
        return None
    return Finding(
        "Completions repeat each other",
        "error",
        f"{' and '.join(seen)} in {rows.steps}",
        "the temperature is low, the reward pays for one text, or the learning rate is too high",
        "training.temperature=1.0; training.learning_rate: a quarter of it",
    )


_KL = 0.5  # nats per token (docs/guide.md): further from the initial model, words change and not only odds


def kl_high(history: History) -> Finding | None:
    if not history.rows.recent() or not history.kl:
        return None
    (first_step, first), (step, kl) = history.kl[0], history.kl[-1]
    dense = history.rows.recent(WINDOW / 2).values("kl")
    if len(dense) >= FEWEST_ROWS:
        kl = statistics.median(dense)
    if kl <= _KL or first > _KL >= kl - first:  # a stage that began far from the reference
        return None
    return Finding(
        "The KL to the initial model is above its limit",
        "warning",
        f"kl {kl:.3g} at step {step}, {first:.3g} at step {first_step} (limit {_KL} nats per token)",
        "the learning rate is high for this run's length, or the policy exploits a hole in the reward",
        "training.learning_rate: a quarter of it; training.beta: raise it, such as 0.01",
        step,
    )


_ENTROPY_LOW = 0.2  # of the beginning: healthy runs end at half or more
_ENTROPY_LOW_NATS = 0.1  # per token: above it, one token in fifty is still another
_ENTROPY_NONE = 0.01  # nats per token: every completion of a group is the same, from the start


def entropy_collapsing(history: History) -> Finding | None:
    rows, last = history.sampled.recent(), history.rows.recent(WINDOW / 2)
    reward, half = history.sampled.recent(WINDOW / 2).median("reward"), len(rows) // 2
    before, now = (Window(part).estimate("reward") for part in (rows[:half], rows[half:]))
    if history.is_near_full(reward) or (before and now and now.is_above(before, RISEN)):
        return None
    first, entropy = history.rows.earliest(FEWEST_ROWS).values("entropy"), last.median("entropy")
    if not history.rows.recent() or not first or entropy is None:
        return None
    if entropy >= _ENTROPY_NONE and (entropy >= _ENTROPY_LOW * max(first) or entropy >= _ENTROPY_LOW_NATS):
        return None
    return Finding(
        "The entropy collapses",
        "error",
        f"entropy {entropy:.3g} in {last.steps}, {max(first):.3g} at the beginning (limit "
        f"{_ENTROPY_LOW} × the beginning and {_ENTROPY_LOW_NATS} nats per token)",
        "the temperature is low, the learning rate is too high, or the reward pays for one text",
        "training.temperature=1.0; training.learning_rate: a quarter of it; training.entropy_coef=0.001",
    )


# Nats per token: rounding makes 1e-6 in float32 and 0.02 in bfloat16; another engine has other kernels (TRL's guides).
_LOGP_GAP, _LOGP_GAP_VLLM = 0.05, 0.1


def sampler_disagrees(history: History) -> Finding | None:
    rows = history.sampled.recent()
    limit = _LOGP_GAP_VLLM if history.facts.use_vllm else _LOGP_GAP
    for metric in ("sampling/logp_gap", "sampling/sampling_logp_difference/mean"):
        gap = rows.median(metric)
        if gap is not None and gap > limit:
            return Finding(
                "Sampler and trainer disagree on log-probabilities",
                "error",
                f"{metric} {gap:.3g} in {rows.steps} (limit {limit} nats per token)",
                "the sampler has other weights, another temperature, precision or region bias than the trainer",
                "training.use_vllm=false, or training.bf16=false with model.model_kwargs.torch_dtype=fp32",
            )
    return None


def loss_not_finite(history: History) -> Finding | None:
    """A single bad value is usual where fp16 looks for its scale."""
    rows = history.rows.recent()
    for metric in ("loss", "grad_norm"):
        bad = [row for row in rows if metric in row and number(row, metric) is None]
        if rows.recurs(len(bad)):
            return Finding(
                "Loss or gradient is not a number",
                "error",
                f"{metric} is NaN or infinite in {len(bad)} of {len(rows)} rows, first at step {bad[0]['step']}",
                "numbers have left the range of their type, or the learning rate has broken the weights",
                "training.learning_rate: a quarter of it; model.model_kwargs.torch_dtype=fp32",
                int(bad[0]["step"]),
            )
    return None


_MOVED, _ROUNDED = 0.01, 0.5  # share of values: AdamW moves every value that has a gradient
_LEAST_RATE = 1e-12
_RATE_JUDGED = 0.1  # of `training.learning_rate`: the ends of a warm-up and of a decay may round away


def weights_not_moving(history: History) -> Finding | None:
    """A rate of 0, a frozen adapter, or weights that round updates away."""
    asked, rows = history.facts.learning_rate, history.rows.recent()
    rates = rows.values("learning_rate")
    if rows and len(rates) == len(rows) and max(rates) <= _LEAST_RATE:
        return Finding(
            "The learning rate is next to 0",
            "error",
            f"learning_rate {max(rates):.3g} in {rows.steps}, training.learning_rate={asked:.3g}",
            "training.learning_rate is 0, or the schedule has ended before the run",
            "training.learning_rate: such as 5e-6; training.lr_scheduler_type=constant_with_warmup",
        )
    least = max(_LEAST_RATE, _RATE_JUDGED * asked)
    rows = Window(
        row for row in rows if (number(row, "learning_rate") or 0) > least and (number(row, "grad_norm") or 0) > 0
    )
    moved = rows.median("weights/moved")
    if len(rows) < FEWEST_ROWS or moved is None or moved >= _ROUNDED:
        return None
    return Finding(
        "Most updates round away" if moved >= _MOVED else "The parameters do not move",
        "warning" if moved >= _MOVED else "error",
        f"weights/moved {moved:.0%} in {rows.steps}, at learning_rate {rows[-1]['learning_rate']:.3g} (limit "
        f"{_ROUNDED:.0%})",
        "the optimizer lacks the parameters that train, the learning rate is too low, or the weights have 16 bits",
        "training.learning_rate: raise it, such as 5e-6; model.pure_bf16=false",
    )
