"""`rlvr-vocab check`: what is in a problem set, as the model will see it, without training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial

from rich.console import Console

from rlvr_vocab.commands.check.distribution import distribution, distribution_lines
from rlvr_vocab.commands.check.facts import (
    CheckFacts,
    OnProgress,
    OverlapFacts,
    PromptFacts,
    gold_facts,
    held_out_overlap,
    other_set_overlap,
    prompt_facts,
    prompt_plan,
    row_facts,
    same_answers,
)
from rlvr_vocab.commands.check.screen import (
    gold_lines,
    length_lines,
    overlap_lines,
    prompt_lines,
    repeat_lines,
    row_lines,
    verdict,
    verdict_lines,
)
from rlvr_vocab.config.command_table import CheckSettings, other_sets
from rlvr_vocab.config.sections import problem_source, problem_split, prompt_style
from rlvr_vocab.data.duplicates import repeated_problems
from rlvr_vocab.data.load import DividedProblems, ProblemSets, lay_out, read_problems
from rlvr_vocab.data.reasoning_gym.tasks import GymProblems
from rlvr_vocab.files import atomic_write_json
from rlvr_vocab.terminal import ProgressBar, make_console, print_section, progress_bar


def run(settings: CheckSettings) -> int:
    """Show what the set holds, section by section, and last what to change in it; 0 where it can be trained on."""
    console, dataset = make_console(), settings.dataset
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    problems = lay_out(divided, prompt_style(dataset))
    rows = row_facts(divided, problems.report)
    print_section(console, "Rows", row_lines(rows))
    repeated = tuple(repeated_problems(divided.train_rows.problems, same_answers))
    print_section(console, "Repeated problems", repeat_lines(repeated))
    prompts = _prompts(settings, divided, problems, console)
    with progress_bar(console, "reading gold answers", len(divided.problems)) as display:
        golds = gold_facts(divided, _updating(display))
    print_section(console, "Gold answers", gold_lines(golds))
    spread = distribution(divided.train_rows.problems, divided.source.columns)
    print_section(console, "Distribution", distribution_lines(spread))
    overlaps = tuple(_overlaps(settings, divided, console))
    facts = CheckFacts(rows, repeated, prompts, golds, overlaps, spread)
    advice = verdict(facts)
    print_section(console, "Before training", verdict_lines(advice))
    if settings.out is not None:
        atomic_write_json(settings.out, {**asdict(facts), "before_training": list(advice)}, "out")
        console.print(f"the same facts are in {settings.out}", markup=False)
    return 0


def _prompts(
    settings: CheckSettings, divided: DividedProblems, problems: ProblemSets, console: Console
) -> PromptFacts | None:
    if settings.model is None:
        print_section(
            console, "Prompts", ["no model named, so no tokens counted: add model=qwen3_0.6b or model.name=…"]
        )
        return None
    trained = problems.train["prompt"][:]
    prompts = trained if problems.eval is None else [*trained, *problems.eval["prompt"]]
    rows = [divided.problems[index].row_number for index in (*divided.parts.train, *divided.parts.held_out)]
    plan = prompt_plan(settings.model, settings, prompts)
    with progress_bar(console, "counting tokens", len(prompts)) as display:
        facts = prompt_facts(settings.model, plan, prompts, rows, len(trained))
        display.update(len(prompts), total=len(prompts))
    print_section(console, "One prompt, as the model sees it", prompt_lines(facts))
    print_section(console, "Prompt lengths", length_lines(facts))
    return facts


def _overlaps(settings: CheckSettings, divided: DividedProblems, console: Console) -> Iterator[OverlapFacts]:
    """What training shares with the held-out problems and with each set of `against`, shown as it is found.

    Problems that a generator words all alike are nearly the same by design: of these only the same ones count, which
    are left out of training.
    """
    searches: list[Callable[[OnProgress], OverlapFacts]] = []
    if divided.parts.held_out and not isinstance(divided.source.generator, GymProblems):
        searches.append(partial(held_out_overlap, divided))
    searches += [partial(other_set_overlap, divided, other) for other in other_sets(settings)]
    for search in searches:
        with progress_bar(console, "comparing with training", len(divided.parts.train)) as display:
            facts = search(_updating(display))
        print_section(console, f"Shared with {facts.name}", overlap_lines(facts))
        yield facts


def _updating(display: ProgressBar) -> OnProgress:
    return lambda done, total: display.update(done, total=total)
