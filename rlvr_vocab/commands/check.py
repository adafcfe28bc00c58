"""`rlvr-vocab check`: a problem set as the model will see it; each section prints its part and returns advice."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict

from rich.console import Console

from rlvr_vocab.config.command_settings import CheckSettings
from rlvr_vocab.config.sections import ModelSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.answers import cell_at, cell_text, gold_text, unread_marker, with_decimal_points
from rlvr_vocab.data.duplicates import repeated_problems, shared_problems
from rlvr_vocab.data.generators import GymProblems
from rlvr_vocab.data.load import DividedProblems, ProblemSets, lay_out, read_problems, read_usable_rows
from rlvr_vocab.data.source import ProblemSource, PromptStyle
from rlvr_vocab.data.warnings import missing_columns
from rlvr_vocab.errors import UserError
from rlvr_vocab.terminal import Alarm, make_console, print_section, progress_bar, quiet_libraries
from rlvr_vocab.text import pluralize, rows_in_words, short_text, visible_text
from rlvr_vocab.verify import check_golds

_SHOWN = 3
_FEW_PROBLEMS = 100  # which a model memorises within an epoch or two
_OPENED_BY = {
    "template": "the template opens the thinking with {tag}",
    "model": "the model must open the thinking with {tag}",
    "nobody": "the template opens and closes the thinking: the model starts with its answer",
}


def run(settings: CheckSettings) -> int:
    console, dataset = make_console(), settings.dataset
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    problems = lay_out(divided, prompt_style(dataset))
    advice = [*_show_rows(divided, prompt_style(dataset), console), *_show_repeats(divided, console)]
    if settings.model is None:
        hint = "tokens are not counted without a model: add model=qwen3_0.6b or model.name=…"
        print_section(console, "Prompts", [hint])
    else:
        advice += _show_prompts(settings, settings.model, divided, problems, console)
    advice += _show_golds(divided, console)
    for other in settings.other_sets():
        advice += _show_overlap(other, divided, console)
    if (count := len(divided.trained)) < _FEW_PROBLEMS:
        advice.append(f"only {pluralize(count, 'problem')} to train on: GRPO needs some hundreds")
    numbered = [Alarm(f"{number}. {line}") for number, line in enumerate(advice, start=1)]
    print_section(console, "Before training", numbered or ["nothing stands in the way"])
    return 0


def _show_rows(divided: DividedProblems, style: PromptStyle, console: Console) -> list[str]:
    source, columns = divided.source, divided.source.columns
    first = divided.trained[0]
    read_as = ", ".join(f"{meaning} = {name}" for meaning, name in asdict(columns).items() if name is not None)
    answer = "" if columns.answer is None else f" -> {short_text(cell_text(first.solution))}"
    summary, *exceptions = divided.account(style)
    lines = [
        summary,
        f"columns: {', '.join(map(visible_text, divided.columns))}",
        f"read as: {read_as}, with answer_format={source.answer_format}",
        f"row {first.row_number}, for example: {short_text(first.text)}{answer}",
    ]
    print_section(console, "Rows", [*lines, *exceptions])
    advice = divided.warnings()
    if likelier := unread_marker([problem.solution for problem in divided.train_rows]):
        return [f"nearly all answers are worked solutions: set dataset.answer_format={likelier}", *advice]
    return advice


def _show_repeats(divided: DividedProblems, console: Console) -> list[str]:
    problems = divided.train_rows
    repeated = repeated_problems(problems)
    extra = sum(len(each.rows) - 1 for each in repeated)
    contradictions = [each for each in repeated if len(each.answers) > 1]
    lines = ["no problem occurs twice"]
    if repeated:
        lines = [f"{pluralize(len(repeated), 'problem')} in {pluralize(extra + len(repeated), 'row')}"]
    for each in sorted(repeated, key=lambda each: len(each.answers) < 2)[:_SHOWN]:
        if len(each.answers) > 1:
            first = each.answers[:_SHOWN]
            answers = "; ".join(f"row {one.row_number}: {short_text(cell_text(one.solution), 30)}" for one in first)
            lines.append(Alarm(f"{short_text(each.rows[0].text)}: contradicting answers ({answers})"))
        else:
            rows = rows_in_words([problem.row_number for problem in each.rows])
            lines.append(f"{short_text(each.rows[0].text)} ({rows})")
    print_section(console, "Repeated problems", lines)
    # Without missing columns, different problems look the same.
    if not contradictions or missing_columns(problems, divided.source.columns):
        return []
    number = pluralize(len(contradictions), "problem")
    where = rows_in_words(sorted(one.row_number for each in contradictions for one in each.answers))
    return [f"{number} with contradicting answers: keep the right one ({where})"]


def _show_prompts(
    settings: CheckSettings, model: ModelSettings, divided: DividedProblems, problems: ProblemSets, console: Console
) -> list[str]:
    """Show one prompt as the model sees it, and the lengths of all; UserError for a model that cannot be asked."""
    # These import torch and transformers, which take seconds.
    from rlvr_vocab.runs.model import expansion_plan
    from rlvr_vocab.runs.problems import (
        asks_to_think,
        opening_warning,
        prompt_warnings,
        require_chat_template,
        thinking_opener,
    )
    from rlvr_vocab.runs.tools import ToolUse, tools_of_run
    from rlvr_vocab.tools.functions import offered_tools
    from rlvr_vocab.vocab.tokenizer import chat_ids, chat_texts

    quiet_libraries()
    trained = problems.train["prompt"][:]
    prompts = trained if problems.eval is None else [*trained, *problems.eval["prompt"]]
    rows = [divided.problems[index].row_number for index in (*divided.parts.train, *divided.parts.held_out)]
    thinks = asks_to_think(prompts, model.think_tags)
    plan = expansion_plan(model, settings.seed, settings.dataset, thinks=thinks)
    require_chat_template(plan)
    loop = ToolUse(settings.tools, settings.environment, None, "keep").loop(plan.tokenizer, plan.layout)
    with progress_bar(console, "counting tokens", len(prompts)) as display:
        ids = chat_ids(plan.tokenizer, prompts, rows, tools=offered_tools(**tools_of_run(settings)))
        display.update(len(prompts))
    [text] = chat_texts(plan.tokenizer, prompts[:1])
    if loop is not None:  # its tools, and what an environment adds
        ids[0] = loop.begin(problems.train[0]).prompt_ids
        text = plan.tokenizer.decode(ids[0])
    opener, tag = thinking_opener(ids[0], plan.layout), model.think_tags[0]
    lengths = sorted(len(each) for each in ids[: len(trained)])
    lines = [
        f"{len(ids[0])} tokens, of row {rows[0]}; ⏎ is a line break:",
        *(f"│ {line}" for line in visible_text(text, "⏎\n").splitlines()),
        (Alarm if opener == "nobody" else str)(_OPENED_BY[opener].format(tag=tag)),
        f"tokens a prompt: shortest {lengths[0]}, median {lengths[(len(lengths) - 1) // 2]}, longest {lengths[-1]}",
    ]
    print_section(console, "One prompt, as the model sees it", lines)
    warnings = [*prompt_warnings(prompts, plan, rows), opening_warning(plan, ids[0], opener)]
    return [line for line in warnings if line is not None]


def _show_golds(divided: DividedProblems, console: Console) -> list[str]:
    source, title, problems = divided.source, "Gold answers", divided.problems
    if isinstance(source.generator, GymProblems):
        print_section(console, title, ["each task scores answers with its own scorer"])
        return []
    if (columns := source.columns).answer is None:
        none = "none: dataset.columns.answer=null; rewards that need one raise an error"
        tests = [f"programs have tests in {columns.tests}: train with 'rewards=[code_tests]'"] if columns.tests else []
        print_section(console, title, [none, *tests])
        return []
    with progress_bar(console, "reading gold answers", len(problems)) as display:
        golds = [gold_text(problem.solution) for problem in problems]
        found = check_golds(golds, display.update)
    lines = [] if found.unusable else [f"the verifier can use all {len(problems):,} of them"]
    if columns.choices is not None:
        shares = ", ".join(f"{letter} {count / len(golds):.0%}" for letter, count in sorted(Counter(golds).items()))
        lines = [f"letters of choices ({shares}): train with 'rewards=[multiple_choice]'"]
    for reasons, kind in (
        (found.unusable, f"of {len(problems):,} unusable for the verifier; training with accuracy leaves them out:"),
        (found.by_text_only, "hold a formula that is compared only as text"),
        (found.ambiguous, "compared as text, since nothing marks them as mathematics: write mathematics as $…$"),
    ):
        line = Alarm if reasons is found.unusable else str
        lines += [line(f"{len(reasons):,} {kind}")] if reasons else []
        for index, reason in sorted(reasons.items())[:_SHOWN]:
            of = "" if index < divided.num_train_rows else f" of {source.eval_split}"
            gold = short_text(cell_text(problems[index].solution))
            lines.append(line(f"  row {problems[index].row_number}{of}: {gold} ({short_text(reason, 100)})"))
    print_section(console, title, [*lines, *_notation(divided)])
    if not found.unusable:
        return []
    unusable = pluralize(len(found.unusable), "gold answer")
    rows = rows_in_words([problems[index].row_number for index in sorted(found.unusable)])
    return [f"{unusable} unusable for the verifier: fix those that can be fixed ({rows}), or write your own reward"]


def _notation(divided: DividedProblems) -> list[str]:
    """How one gold answer with a comma was read, and the key that changes this."""
    source = divided.source
    for problem in divided.train_rows if source.columns.choices is None else ():
        answer = cell_at(problem.row, source.columns.answer or "")
        read, cell = cell_text(problem.solution) or "", cell_text(answer) or ""
        place = f"row {problem.row_number}: {short_text(cell, 30)} is read as"
        if source.decimal == "comma" and source.answer_format == "bare" and cell.strip() != read:
            return [f"{place} {short_text(read, 30)}; accuracy and numeric take answers in both notations"]
        if source.decimal == "point" and re.fullmatch(r"[-+]?\d{1,3},\d{3}", read):
            other = f"if that means {with_decimal_points(read)}, set dataset.decimal=comma"
            return [f"{place} {read.replace(',', '')}; {other}"]
    return []


def _show_overlap(other: ProblemSource, divided: DividedProblems, console: Console) -> list[str]:
    measured = read_usable_rows(other, divided.split.seed).problems
    if not measured:
        raise UserError(f'{other.name} has no problem in its column "{other.columns.problem}"')
    shared, trained = shared_problems(divided.trained, measured), len(divided.trained)
    of = pluralize(len(measured), "problem")
    lines = [f"none of {of} is among the {pluralize(trained, 'training problem')}"]
    if shared:
        lines = [Alarm(f"{len(shared):,} of {of} ({len(shared) / len(measured):.1%}) found in training")]
    for problem, rows in shared[:_SHOWN]:
        where = rows_in_words([row.row_number for row in rows])
        lines.append(f"  row {problem.row_number} is {where} of training: {short_text(problem.text)}")
    print_section(console, f"Shared with {other.name}", lines)
    matches = pluralize(len({row.row_number for _, rows in shared for row in rows}), "training problem")
    return [f"{matches} also in {other.name}: remove them, or accuracy there is too high"] if shared else []
