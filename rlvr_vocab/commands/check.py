"""`rlvr-vocab check`: what is in a problem set, as the model will see it, without training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

import numpy as np
from rich.console import Console

from rlvr_vocab.config.command_table import CheckSettings, other_sets
from rlvr_vocab.config.sections import ModelSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.answers import cell_text, decimal_comma, gold_text, unread_marker, with_decimal_points
from rlvr_vocab.data.duplicates import find_overlap, repeated_problems
from rlvr_vocab.data.load import DividedProblems, ProblemSets, lay_out, read_problems, read_usable_rows
from rlvr_vocab.data.reasoning_gym.tasks import GymProblems
from rlvr_vocab.data.rows import Problem
from rlvr_vocab.data.source import Columns
from rlvr_vocab.data.warnings import missing_columns
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write_json
from rlvr_vocab.rewards.library.answers import whole_text_number
from rlvr_vocab.terminal import Alarm, make_console, print_section, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize, rows_in_words, short_text, visible_text
from rlvr_vocab.verify import check_golds
from rlvr_vocab.verify.golds import COMPARED_AS_TEXT, read_gold

SHOWN, ANSWERS_SHOWN = 3, 5
MOST_KINDS = 20
FEW_PROBLEMS, MANY_DROPPED, MANY_REPEATED = 100, 0.05, 0.01
QUANTILES = (0.5, 0.9, 0.95, 0.99)
LIMIT_STEP, LIMIT_KEEPS = 64, 0.99
FORMATS = {"bare": "the whole cell", "hash": "the text after the last ####", "boxed": r"the last \boxed{}"}
OPENED_BY = {
    "template": "the template opens the thinking with {tag}",
    "model": "the model has to open the thinking with {tag}",
    "nobody": "the template opens the thinking and closes it again: the model begins with its answer",
}


@dataclass
class Section:
    """One part of the screen, its facts for the JSON file, and advice: what to change before training."""

    name: str
    title: str
    lines: list[str] = field(default_factory=list)
    facts: Any = None
    advice: list[str] = field(default_factory=list)


def run(settings: CheckSettings) -> int:
    """Show the set section by section, and last the changes to make before training."""
    console, dataset = make_console(), settings.dataset
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    problems = lay_out(divided, prompt_style(dataset))
    facts: dict[str, Any] = {"overlaps": []}
    advice: list[str] = []
    for section in _sections(settings, divided, problems, console):
        print_section(console, section.title, section.lines)
        if section.name == "overlaps":
            facts["overlaps"].append(section.facts)
        else:
            facts[section.name] = section.facts
        advice += section.advice
    numbered = [Alarm(f"{number}. {line}") for number, line in enumerate(advice, start=1)]
    print_section(console, "Before training", numbered or ["nothing stands in the way"])
    if settings.out is not None:
        atomic_write_json(settings.out, {**facts, "before_training": advice}, "out")
        console.print(f"the same facts are in {settings.out}", markup=False)
    return 0


def _sections(
    settings: CheckSettings, divided: DividedProblems, problems: ProblemSets, console: Console
) -> Iterator[Section]:
    yield _rows(divided, problems)
    yield _repeats(divided)
    if settings.model is None:
        line = "no model named, so no tokens counted: add model=qwen3_0.6b or model.name=…"
        yield Section("prompts", "Prompts", [line])
    else:
        yield _prompts(settings, settings.model, divided, problems, console)
    yield _golds(divided, console)
    yield distribution(divided.train_rows.problems, divided.source.columns)
    # Problems of a generator are worded alike by design: only the same ones count, which training leaves out.
    if divided.parts.held_out and not isinstance(divided.source.generator, GymProblems):
        where = "among the held-out problems in other writing"
        yield _overlap("the held-out problems", where, divided, divided.reserved, console)
    for other in other_sets(settings):
        measured = read_usable_rows(other, settings.seed).problems
        if not measured:
            raise UserError(f'{other.name} has no problem in its column "{other.columns.problem}"')
        yield _overlap(other.name, f"in {other.name}", divided, measured, console)


def _rows(divided: DividedProblems, problems: ProblemSets) -> Section:
    source, report, columns = divided.source, problems.report, divided.source.columns
    names, first = divided.train_rows.columns, divided.trained[0]
    mapped = {meaning: name for meaning, name in asdict(columns).items() if name is not None}
    golds = [problem.solution for problem in divided.train_rows.problems]
    read_as = ", ".join(f"{meaning} = {name}" for meaning, name in mapped.items())
    if columns.answer is None:
        read_as += "; dataset.columns.answer=null: without gold answers"
        answer = ""
    else:
        read_as += f"; answer_format={source.answer_format}: {FORMATS[source.answer_format]} is the answer"
        answer = f" -> {short_text(cell_text(first.solution))}"
    summary, *exceptions = replace(report, duplicates=0, warnings=()).lines()
    section = Section("rows", "Rows", [summary, f"columns: {', '.join(map(visible_text, names))}"])
    section.lines += [f"read as: {read_as}", f"row {first.row_number}, for example: {short_text(first.text)}{answer}"]
    section.lines += exceptions
    section.facts = {
        "columns": names, "mapped": mapped, "answer_format": source.answer_format, "report": asdict(report)
    }  # fmt: skip
    dropped = sum(report.dropped.values())
    if likelier := unread_marker(golds):
        section.advice.append(f"nearly all answers are worked solutions: set dataset.answer_format={likelier}")
    if example := decimal_comma(golds):
        meant = with_decimal_points(example)
        section.advice.append(f"answers such as {example}: if that is {meant}, set dataset.decimal=comma")
    if dropped > MANY_DROPPED * report.rows_read:
        section.advice.append(f"{dropped / report.rows_read:.0%} of the rows are left out: see above why")
    if report.train_rows < FEW_PROBLEMS:
        few = pluralize(report.train_rows, "problem")
        section.advice.append(f"only {few} to train on: GRPO needs some hundreds")
    section.advice += report.warnings
    return section


def _repeats(divided: DividedProblems) -> Section:
    problems = divided.train_rows.problems
    repeated = repeated_problems(problems)
    section = Section("repeated", "Repeated problems", facts=[asdict(problem) for problem in repeated])
    if not repeated:
        section.lines = ["no problem stands in the set twice"]
        return section
    rows = sum(len(problem.row_numbers) for problem in repeated)
    extra, in_rows = rows - len(repeated), pluralize(rows, "row")
    section.lines.append(
        f"{pluralize(len(repeated), 'problem')} in {in_rows}: {pluralize(extra, 'row')} more than one each"
    )
    for problem in [each for each in repeated if not each.is_contradiction][:SHOWN]:
        section.lines.append(f"{rows_in_words(problem.row_numbers)}: {short_text(problem.text)}")
    contradictions = [problem for problem in repeated if problem.is_contradiction]
    if contradictions:
        number = pluralize(len(contradictions), "problem")
        section.lines.append(Alarm(f"{number} with answers that contradict each other:"))
        for problem in contradictions[:SHOWN]:
            answers = "; ".join(f"row {row}: {short_text(answer, 30)}" for row, answer in problem.answers[:SHOWN])
            section.lines.append(Alarm(f"  {short_text(problem.text)} ({answers})"))
    if missing_columns(problems, divided.source.columns):  # without which different problems look the same
        return section
    if contradictions:
        where = rows_in_words(sorted(row for problem in contradictions for row, _ in problem.answers))
        section.advice.append(f"{number} with contradicting answers: keep the right one ({where})")
    if extra > MANY_REPEATED * len(divided.problems):
        repeat = pluralize(extra, "row repeats", "rows repeat")
        section.advice.append(f"{repeat} an earlier problem, which counts more: keep one of each")
    return section


def _prompts(
    settings: CheckSettings, model: ModelSettings, divided: DividedProblems, problems: ProblemSets, console: Console
) -> Section:
    """One prompt as the model sees it, and the lengths of all.

    Raises:
        UserError: the model cannot be had, has no chat template, or its template refuses a prompt.
    """
    # These import torch and transformers, which take seconds.
    from rlvr_vocab.runs.model import untrained_plan
    from rlvr_vocab.runs.prompts import (
        asks_to_think,
        limits_that_fit,
        opening_warning,
        prompt_warnings,
        require_chat_template,
        thinking_opener,
    )
    from rlvr_vocab.vocab.chat import chat_ids, chat_texts

    quiet_libraries()
    trained = problems.train["prompt"][:]
    prompts = trained if problems.eval is None else [*trained, *problems.eval["prompt"]]
    rows = [divided.problems[index].row_number for index in (*divided.parts.train, *divided.parts.held_out)]
    thinks = asks_to_think(prompts, model.think_tags, None, None)
    plan = untrained_plan(model, settings.seed, settings.dataset, thinks)
    require_chat_template(plan)
    with progress_bar(console, "counting tokens", len(prompts)) as display:
        ids = chat_ids(plan.tokenizer, prompts, rows)
        display.update(len(prompts), total=len(prompts))
    [text] = chat_texts(plan.tokenizer, prompts[:1])
    opener, tag = thinking_opener(ids[0], plan.layout), model.think_tags[0]
    section = Section("prompts", "One prompt, as the model sees it")
    section.lines.append(f"{len(ids[0])} tokens, of row {rows[0]}; ⏎ is a line break:")
    section.lines += [f"│ {line}" for line in visible_text(text).splitlines()]
    section.lines.append((Alarm if opener == "nobody" else str)(OPENED_BY[opener].format(tag=tag)))
    if opener == "model" and plan.layout.think_open_id in plan.tag_pieces:
        section.lines.append(Alarm(f"{tag} is new to this model: it will not open it by itself"))
    lengths = length_facts([len(each) for each in ids[: len(trained)]])
    section.lines.append(_length_line(lengths))
    warnings = [*prompt_warnings(prompts, plan, rows), opening_warning(plan, ids[0], opener)]
    section.advice = [line for line in warnings if line is not None]
    longest, context, max_completion = (
        max(lengths["counts"]),
        plan.context_length,
        model.generation_kwargs["max_new_tokens"],
    )
    if context is not None and longest + max_completion > context:
        limits = limits_that_fit(lengths["counts"], context, max_completion)
        section.advice.append(
            f"the longest prompt ({longest:,} tokens) and a completion of up to {max_completion:,} do not fit the "
            f"model's {context:,}: {limits}"
        )
    section.facts = {
        "model": model.name, "text": text, "tokens": len(ids[0]), "row_number": rows[0], "opener": opener,
        "context_length": context, "max_completion": max_completion, "lengths": lengths,
    }  # fmt: skip
    return section


def length_facts(lengths: Sequence[int]) -> dict[str, Any]:
    """Prompts by their number of tokens, quantiles, and the smallest limit that keeps nearly all of at least one."""
    quantiles = np.quantile(lengths, [*QUANTILES, LIMIT_KEEPS], method="inverted_cdf").tolist()
    limit = ceil(quantiles.pop() / LIMIT_STEP) * LIMIT_STEP
    return {
        "counts": dict(sorted(Counter(lengths).items())),
        "quantiles": dict(zip(QUANTILES, quantiles, strict=True)),
        "suggested_limit": limit,
        "left_out": sum(length > limit for length in lengths),
    }


def _length_line(lengths: dict[str, Any]) -> str:
    counts, quantiles, left_out = lengths["counts"], lengths["quantiles"], lengths["left_out"]
    shares = ", ".join(f"{share:.0%}: {length}" for share, length in quantiles.items() if share != 0.5)
    effect = f"leave out {pluralize(left_out, 'problem')}" if left_out else "keep every prompt"
    return (
        f"tokens a prompt: shortest {min(counts)}, median {quantiles[0.5]}, {shares}, longest {max(counts)}; "
        f"training.max_prompt_length={lengths['suggested_limit']} would {effect}"
    )


def _golds(divided: DividedProblems, console: Console) -> Section:
    section, source = Section("golds", "Gold answers"), divided.source
    problems = divided.problems if source.columns.answer is not None else ()
    if isinstance(source.generator, GymProblems):
        number = sum(problem.solution is not None for problem in problems)
        section.lines = [f"{pluralize(number, 'problem')} with one; answers are scored by the tasks' own scorers"]
        section.facts = {"num_golds": number, "own_scorers": True}
        return section
    with progress_bar(console, "reading gold answers", len(problems)) as display:
        found = check_golds(
            [gold_text(problem.solution) for problem in problems],
            lambda done, total: display.update(done, total=total),
        )

    def facts(reasons: dict[int, str]) -> list[dict[str, Any]]:
        return [
            {
                "row_number": problems[index].row_number,
                "source": None if index < len(divided.train_rows.problems) else source.eval_split,
                "gold": short_text(cell_text(problems[index].solution)),
                "reason": short_text(reason, 100),
            }
            for index, reason in sorted(reasons.items())
        ]

    number, unusable = len(problems), facts(found.unusable)
    by_text_only, ambiguous = facts(found.by_text_only), facts(found.ambiguous)
    section.facts = {
        "num_golds": number, "own_scorers": False, "unusable": unusable, "by_text_only": by_text_only,
        "ambiguous": ambiguous,
    }  # fmt: skip
    if not number:
        section.lines = ["none: dataset.columns.answer=null; rewards that need one are refused"]
    elif not unusable:
        section.lines = [f"the verifier can use all {number:,} of them"]
    else:
        head = f"{len(unusable):,} of {number:,} are of no use to the verifier"
        section.lines = [Alarm(f"{head}; training with accuracy leaves them out:")]
        section.lines += [Alarm(line) for line in _gold_lines(unusable)]
        none_left = ", and accuracy has no other" * (len(unusable) == number)
        rows = rows_in_words([gold["row_number"] for gold in unusable])
        section.advice = [
            f"{pluralize(len(unusable), 'gold answer')} of no use to the verifier{none_left}: mend what can be "
            f"mended ({rows}), or take a reward of your own"
        ]
    for golds, what in (
        (by_text_only, "hold a formula that is compared by its text alone"),
        (ambiguous, COMPARED_AS_TEXT),
    ):
        if golds:
            section.lines += [f"{len(golds):,} {what}", *_gold_lines(golds)]
    return section


def _gold_lines(golds: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The reasons, the most frequent first, each with its first rows."""
    by_reason: dict[str, list[str]] = {}
    for gold in golds:
        of = f" of {gold['source']}" if gold["source"] else ""
        by_reason.setdefault(gold["reason"], []).append(f"row {gold['row_number']}{of}: {gold['gold']}")
    for reason, examples in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = "; …" if len(examples) > SHOWN else ""
        yield f"  {len(examples):,}: {reason} ({'; '.join(examples[:SHOWN])}{more})"


def distribution(problems: Sequence[Problem], columns: Columns) -> Section:
    """The distribution of the answers, and of the kinds of problems by any column with few different values."""
    section = Section("distribution", "Distribution")
    answers = [text.strip() for problem in problems if (text := cell_text(problem.solution)) and text.strip()]
    counts = Counter(answers)
    numbers = [number for text in answers if (number := _as_number(text)) is not None]
    quartiles = np.quantile(numbers, (0, 0.25, 0.5, 0.75, 1)).tolist() if numbers else []
    names = dict.fromkeys(name for problem in problems for name in problem.row if name not in columns.names)
    kinds = {name: found for name in names if (found := _kinds([problem.row.get(name) for problem in problems]))}
    section.facts = {
        "num_answers": len(answers), "different": len(counts), "most_frequent": counts.most_common(ANSWERS_SHOWN),
        "numbers": len(numbers), "quartiles": quartiles, "kinds": kinds,
    }  # fmt: skip
    if counts:
        section.lines += [
            f"{pluralize(len(answers), 'answer')}, {len(counts):,} different: {_frequent(counts)}",
            f"the same answer to every problem would be right for {max(counts.values()) / len(answers):.1%}",
        ]
    else:
        section.lines.append("no problem has an answer")
    if len(numbers) > len(answers) / 2:
        low, first, median, third, high = (f"{value:,.6g}" for value in quartiles)
        share = f"{len(numbers) / len(answers):.0%} are numbers"
        section.lines.append(f"{share}: smallest {low}, quartiles {first}, {median} and {third}, largest {high}")
    section.lines += [f"{short_text(name, 30)}: {_frequent(found)}" for name, found in kinds.items()]
    return section


def _as_number(text: str) -> float | None:
    """A number as the verifier and `numeric` read it; None for other text, and for one that no float holds."""
    number = whole_text_number(text, read_gold)
    try:
        return None if number is None else float(number.value)
    except OverflowError:
        return None


def _kinds(values: Sequence[Any]) -> Counter[str]:
    """How many problems have each value; none for a column with one value, or with too many for kinds."""
    if not all(value is None or isinstance(value, str | int) for value in values):
        return Counter()
    counts = Counter("(missing)" if value is None else str(value) for value in values)
    return counts if 2 <= len(counts) <= min(MOST_KINDS, len(values) / 2) else Counter()


def _frequent(counts: Counter[str]) -> str:
    shown = [
        f"{short_text(text, 30)} ({number:,}, {number / counts.total():.1%})"
        for text, number in counts.most_common(ANSWERS_SHOWN)
    ]
    return ", ".join(shown) + (", …" if len(counts) > ANSWERS_SHOWN else "")


def _overlap(name: str, where: str, divided: DividedProblems, measured: Sequence[Problem], console: Console) -> Section:
    with progress_bar(console, "comparing with training", len(divided.trained)) as display:
        overlap = find_overlap(divided.trained, measured, lambda done, total: display.update(done, total=total))
    section = Section("overlaps", f"Shared with {name}", facts={"name": name, **asdict(overlap)})
    kinds = {
        "the same": [each for each in overlap.shared if each.same],
        "nearly the same": [each for each in overlap.shared if each.same_numbers and not each.same],
        "nearly the same with other numbers": [each for each in overlap.shared if not each.same_numbers],
    }
    of, trained = pluralize(len(measured), "problem"), pluralize(overlap.num_trained, "training problem")
    if not overlap.shared:
        section.lines = [f"none of {of} is among the {trained}"]
        return section
    counts = ", ".join(f"{len(problems):,} {kind}" for kind, problems in kinds.items() if problems)
    share = f"{len(overlap.shared):,} of {of} ({len(overlap.shared) / len(measured):.1%})"
    section.lines = [(Alarm if overlap.train_matches else str)(f"{share} found in training: {counts}")]
    for kind, problems in kinds.items():
        for each in problems[:SHOWN]:
            other = "" if each.contained == 1 else f" ({each.contained:.0%} of it; there: {each.train_text})"
            section.lines.append(
                f"  {kind}: row {each.row_number} is row {each.train_row_number} of training: {each.text}{other}"
            )
    if overlap.train_matches:
        also = (
            f"{pluralize(overlap.train_matches, 'training problem')} ({overlap.train_matches / overlap.num_trained:.1%}"
        )
        section.advice = [f"{also} of training) also {where}: remove them, or accuracy there is too high"]
    return section
