"""What to change in a problem set before training on it, drawn from the facts alone."""

from __future__ import annotations

from collections.abc import Iterator

from rlvr_vocab.counted import counted
from rlvr_vocab.exp.check_facts import HELD_OUT, CheckFacts, OverlapFacts, RowFacts
from rlvr_vocab.exp.check_lines import rows_in_words
from rlvr_vocab.exp.prompt_facts import PromptFacts, limits_that_fit

FEW_PROBLEMS = 100
MANY_DROPPED = 0.05
MANY_REPEATED = 0.01


def verdict(facts: CheckFacts) -> tuple[str, ...]:
    """One line for each thing to change; none where nothing stands in the way."""
    return (
        *row_advice(facts.rows),
        *repeat_advice(facts),
        *gold_advice(facts),
        *(advice for overlap in facts.overlaps for advice in overlap_advice(overlap)),
        *(prompt_advice(facts.prompts) if facts.prompts is not None else ()),
    )


def row_advice(facts: RowFacts) -> Iterator[str]:
    report = facts.report
    if facts.likelier_format is not None:
        yield f"nearly all answers are worked solutions: set dataset.answer_format={facts.likelier_format}"
    dropped = sum(report.dropped.values())
    if dropped > MANY_DROPPED * report.rows_read:
        yield f"{dropped / report.rows_read:.0%} of the rows are left out: see above why"
    if report.train_rows < FEW_PROBLEMS:
        yield f"only {counted(report.train_rows, 'problem')} to train on: GRPO wants some hundreds"
    for hidden in facts.hidden_characters:
        if hidden.is_control:
            where = rows_in_words(hidden.row_numbers)
            yield f"{hidden.shown} stands in {counted(len(hidden.row_numbers), 'problem')} ({where}): take it out"


def repeat_advice(facts: CheckFacts) -> Iterator[str]:
    contradictions = [problem for problem in facts.repeated if problem.is_contradiction]
    if contradictions:
        rows = rows_in_words(sorted(row for problem in contradictions for row, _ in problem.answers))
        yield f"{counted(len(contradictions), 'problem')} with contradicting answers: keep the right one ({rows})"
    extra = sum(len(problem.row_numbers) - 1 for problem in facts.repeated)
    if extra > MANY_REPEATED * facts.rows.report.rows_kept:
        repeat = counted(extra, "row repeats", "rows repeat")
        yield f"{repeat} an earlier problem, which counts more: keep one of each"


def gold_advice(facts: CheckFacts) -> Iterator[str]:
    unusable = facts.golds.unusable
    if unusable:
        rows = rows_in_words([gold.row_number for gold in unusable])
        yield f"{counted(len(unusable), 'gold answer')} of no use to the verifier: mend what can be mended ({rows})"


def overlap_advice(facts: OverlapFacts) -> Iterator[str]:
    if not facts.train_matches:
        return
    where = "among the held-out problems in other writing" if facts.name == HELD_OUT else f"in {facts.name}"
    share = f"{facts.train_matches / facts.num_trained:.1%} of training"
    yield (
        f"{counted(facts.train_matches, 'training problem')} ({share}) also {where}: remove them, or accuracy there "
        "says less than it seems to"
    )


def prompt_advice(facts: PromptFacts) -> Iterator[str]:
    if facts.context_length is not None and not facts.fits:
        yield (
            f"the longest prompt ({facts.lengths.longest:,} tokens) and a completion of up to {facts.max_completion:,} "
            f"do not fit the model's {facts.context_length:,}: "
            f"{limits_that_fit(facts.lengths.counts, facts.context_length, facts.max_completion)}"
        )
    if facts.opener == "nobody":
        yield "the chat template closes the thinking before the model can think: take another with model.chat_template"
    if facts.opener == "model" and not facts.knows_tag:
        yield f"nobody opens the thinking: {facts.think_tag} is new to this model, set dataset.open_thinking=prefill"
