"""The facts of `rlvr-vocab check` as lines for people; those that call for action are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlvr_vocab.commands.check.facts import (
    HELD_OUT,
    CheckFacts,
    ControlCharacter,
    DoubtfulGold,
    GoldFacts,
    LengthFacts,
    OverlapFacts,
    PromptFacts,
    RowFacts,
    SharedProblem,
)
from rlvr_vocab.data.answers import with_decimal_points
from rlvr_vocab.data.duplicates import RepeatedProblem
from rlvr_vocab.data.rows import short_text
from rlvr_vocab.terminal import Alarm
from rlvr_vocab.text import pluralize, rows_in_words, visible_text
from rlvr_vocab.verify.golds import COMPARED_AS_TEXT

SHOWN = 3
REASONS_SHOWN = 5
FORMATS = {"bare": "the whole cell", "hash": "what follows the last ####", "boxed": r"the last \boxed{}"}
OPENED_BY = {
    "template": "the template opens the thinking with {tag}",
    "model": "the model has to open the thinking with {tag}",
    "nobody": "the template opens the thinking and closes it again: the model begins with its answer",
}


def row_lines(facts: RowFacts) -> Iterator[str]:
    # Repeated problems have lines of their own, and doubts are among the advice.
    first, *others = replace(facts.report, duplicates=0, doubts=(), missing_columns=()).lines()
    yield first
    yield f"columns: {', '.join(map(visible_text, facts.columns))}"
    mapped = ", ".join(f"{meaning} = {name}" for meaning, name in facts.mapped.items() if name is not None)
    row_number, problem, answer = facts.example
    if answer is None:
        yield f"read as: {mapped}; dataset.columns.answer=null: without gold answers"
        yield f"row {row_number}, for example: {problem}"
    else:
        yield f"read as: {mapped}; answer_format={facts.answer_format}: {FORMATS[facts.answer_format]} is the answer"
        yield f"row {row_number}, for example: {problem} -> {answer}"
    yield from others
    for control in facts.control_characters[:SHOWN]:
        yield Alarm(f"control characters: {in_problems(control)}")


def in_problems(control: ControlCharacter) -> str:
    rows = control.row_numbers
    return f"{control.shown} in {pluralize(len(rows), 'problem')} ({rows_in_words(rows)})"


def repeat_lines(repeated: Sequence[RepeatedProblem]) -> Iterator[str]:
    if not repeated:
        yield "no problem stands in the set twice"
        return
    rows = sum(len(problem.row_numbers) for problem in repeated)
    again = pluralize(rows - len(repeated), "row")
    yield f"{pluralize(len(repeated), 'problem')} in {pluralize(rows, 'row')}: {again} more than one each"
    agreeing = [problem for problem in repeated if not problem.is_contradiction]
    for problem in agreeing[:SHOWN]:
        like = "" if problem.verbatim else " (in other writing)"
        yield f"{rows_in_words(problem.row_numbers)}{like}: {short_text(problem.text)}"
    contradictions = [problem for problem in repeated if problem.is_contradiction]
    if not contradictions:
        if any(problem.answers for problem in repeated):
            yield "their answers agree"
        return
    yield Alarm(f"{pluralize(len(contradictions), 'problem')} with answers that contradict each other:")
    for problem in contradictions[:SHOWN]:
        answers = "; ".join(f"row {row}: {short_text(answer, 30)}" for row, answer in problem.answers[:SHOWN])
        yield Alarm(f"  {short_text(problem.text)} ({answers})")


def prompt_lines(facts: PromptFacts) -> Iterator[str]:
    yield f"{facts.tokens} tokens, of row {facts.row_number}; ⏎ is a line break:"
    yield from (f"│ {line}" for line in visible_text(facts.text).splitlines())
    yield (Alarm if facts.opener == "nobody" else str)(OPENED_BY[facts.opener].format(tag=facts.think_tag))
    if facts.opener == "model" and not facts.knows_tag:
        yield Alarm(f"{facts.think_tag} is new to this model: it will not open it by itself")


def length_lines(facts: PromptFacts) -> Iterator[str]:
    lengths = facts.lengths
    shares = ", ".join(f"{share:.0%}: {length}" for share, length in lengths.quantiles.items() if share != 0.5)
    yield (
        f"tokens a prompt: shortest {lengths.shortest}, median {lengths.quantiles[0.5]}, {shares}, "
        f"longest {lengths.longest}"
    )
    yield f"training.max_prompt_length={lengths.suggested_limit} {what_a_limit_does(lengths)}"
    if facts.context_length is not None:
        yield (Alarm if not facts.fits else str)(
            f"the model takes {facts.context_length:,} tokens; the longest prompt leaves "
            f"{max(facts.context_length - lengths.longest, 0):,} of them for the completion, whose limit is "
            f"{facts.max_completion:,}"
        )


def what_a_limit_does(lengths: LengthFacts) -> str:
    if not lengths.left_out:
        return "would keep every prompt"
    share = lengths.left_out / sum(lengths.counts.values())
    return f"would leave out {pluralize(lengths.left_out, 'problem')} ({share:.2%})"


def gold_lines(facts: GoldFacts) -> Iterator[str]:
    if facts.own_scorers:
        yield f"{pluralize(facts.num_golds, 'problem')} with one; answers are scored by the tasks' own scorers"
        return
    if not facts.num_golds:
        yield "none: dataset.columns.answer=null; rewards that need one are refused"
    elif not facts.unusable:
        yield f"the verifier can use all {facts.num_golds:,} of them"
    else:
        yield Alarm(
            f"{len(facts.unusable):,} of {facts.num_golds:,} are of no use to the verifier; training with accuracy "
            "leaves them out:"
        )
        yield from (Alarm(f"  {text}") for text in golds_in_words(facts.unusable))
    if facts.by_text_only:
        yield f"{len(facts.by_text_only):,} hold a formula that is compared by its text alone"
        yield from (f"  {text}" for text in golds_in_words(facts.by_text_only))
    if facts.ambiguous:
        yield f"{len(facts.ambiguous):,} {COMPARED_AS_TEXT}"
        yield from (f"  {text}" for text in golds_in_words(facts.ambiguous))


def golds_in_words(golds: Sequence[DoubtfulGold]) -> Iterator[str]:
    """The reasons, the most frequent first, each with its first rows."""
    by_reason: dict[str, list[str]] = {}
    for gold in golds:
        of = f" of {gold.source}" if gold.source else ""
        by_reason.setdefault(gold.reason, []).append(f"row {gold.row_number}{of}: {gold.gold}")
    ranked = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    for reason, examples in ranked[:REASONS_SHOWN]:
        more = "; …" if len(examples) > SHOWN else ""
        yield f"{len(examples):,}: {reason} ({'; '.join(examples[:SHOWN])}{more})"
    if len(ranked) > REASONS_SHOWN:
        yield f"{sum(len(examples) for _, examples in ranked[REASONS_SHOWN:]):,}: other reasons"


def overlap_lines(facts: OverlapFacts) -> Iterator[str]:
    kinds = {
        "the same": facts.same,
        "nearly the same": facts.nearly_same,
        "nearly the same with other numbers": facts.other_numbers,
    }
    matches = sum(map(len, kinds.values()))
    if not matches:
        trained = pluralize(facts.num_trained, "training problem")
        yield f"none of {pluralize(facts.num_problems, 'problem')} is among the {trained}"
        return
    counts = ", ".join(f"{len(problems):,} {kind}" for kind, problems in kinds.items() if problems)
    yield (Alarm if facts.train_matches > 0 else str)(
        f"{matches:,} of {pluralize(facts.num_problems, 'problem')} ({matches / facts.num_problems:.1%}) found in "
        f"training: {counts}"
    )
    for kind, problems in kinds.items():
        yield from (f"  {kind}: {shared_in_words(problem)}" for problem in problems[:SHOWN])


def shared_in_words(problem: SharedProblem) -> str:
    other = "" if problem.contained == 1 else f" ({problem.contained:.0%} of it; there: {problem.train_text})"
    return f"row {problem.row_number} is row {problem.train_row_number} of training: {problem.text}{other}"


def verdict_lines(advice: Sequence[str]) -> Iterator[str]:
    if not advice:
        yield "nothing stands in the way"
    yield from (Alarm(f"{number}. {line}") for number, line in enumerate(advice, start=1))


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
    if facts.decimal_comma is not None:
        meant = with_decimal_points(facts.decimal_comma)
        yield f"answers such as {facts.decimal_comma}: if that is {meant}, set dataset.decimal=comma"
    dropped = sum(report.dropped.values())
    if dropped > MANY_DROPPED * report.rows_read:
        yield f"{dropped / report.rows_read:.0%} of the rows are left out: see above why"
    if report.train_rows < FEW_PROBLEMS:
        yield f"only {pluralize(report.train_rows, 'problem')} to train on: GRPO wants some hundreds"
    for control in facts.control_characters:
        yield f"{in_problems(control)}: take it out"
    yield from (*report.doubts, *report.missing_columns)


def repeat_advice(facts: CheckFacts) -> Iterator[str]:
    if facts.rows.report.missing_columns:  # which tell the problems apart
        return
    contradictions = [problem for problem in facts.repeated if problem.is_contradiction]
    if contradictions:
        rows = rows_in_words(sorted(row for problem in contradictions for row, _ in problem.answers))
        yield f"{pluralize(len(contradictions), 'problem')} with contradicting answers: keep the right one ({rows})"
    extra = sum(len(problem.row_numbers) - 1 for problem in facts.repeated)
    if extra > MANY_REPEATED * facts.rows.report.rows_kept:
        repeat = pluralize(extra, "row repeats", "rows repeat")
        yield f"{repeat} an earlier problem, which counts more: keep one of each"


def gold_advice(facts: CheckFacts) -> Iterator[str]:
    unusable = facts.golds.unusable
    if unusable:
        rows = rows_in_words([gold.row_number for gold in unusable])
        all_of_them = ", and accuracy has no other" * (len(unusable) == facts.golds.num_golds)
        yield (
            f"{pluralize(len(unusable), 'gold answer')} of no use to the verifier{all_of_them}: mend what can be "
            f"mended ({rows}), or take a reward of your own"
        )


def overlap_advice(facts: OverlapFacts) -> Iterator[str]:
    if not facts.train_matches:
        return
    where = "among the held-out problems in other writing" if facts.name == HELD_OUT else f"in {facts.name}"
    share = f"{facts.train_matches / facts.num_trained:.1%} of training"
    yield (
        f"{pluralize(facts.train_matches, 'training problem')} ({share}) also {where}: remove them, or accuracy there "
        "says less than it seems to"
    )


def prompt_advice(facts: PromptFacts) -> Iterator[str]:
    if facts.context_length is not None and not facts.fits:
        from rlvr_vocab.runs.prompts import limits_that_fit  # with transformers, which the prompts were read by

        yield (
            f"the longest prompt ({facts.lengths.longest:,} tokens) and a completion of up to {facts.max_completion:,} "
            f"do not fit the model's {facts.context_length:,}: "
            f"{limits_that_fit(facts.lengths.counts, facts.context_length, facts.max_completion)}"
        )
    yield from facts.doubts
