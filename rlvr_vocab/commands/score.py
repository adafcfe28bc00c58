"""`rlvr-vocab score`: the rewards of completions, gold answers or samples of a model, without training."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.bounds import reaches
from rlvr_vocab.config.command_settings import ScoreSettings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import ModelSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.answers import UnusableRow, cell_answer, cell_text, decimal_comma, plain_text
from rlvr_vocab.data.files import read_rows
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.rows import column_names
from rlvr_vocab.data.suggest import completion_keys
from rlvr_vocab.data.table import TRL_NAMES, problem_table
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write
from rlvr_vocab.record.completions import OF_EACH_TOKEN
from rlvr_vocab.record.files import COMPLETIONS, INITIAL_MODEL, STEP_FILES, run_folder_of, step_files
from rlvr_vocab.rewards.build import RewardContext, build_rewards, declared, required_columns
from rlvr_vocab.rewards.grader import weighted_sum
from rlvr_vocab.rewards.guard import Reward, dummy_ids, dummy_trainer
from rlvr_vocab.rewards.reward import THINK_TAGS, Score, is_assistant, transcript, turn_text
from rlvr_vocab.rewards.thoughts import ThoughtIds, read_thoughts
from rlvr_vocab.runs.rewards import (
    ROWS_TRIED,
    dummy_context,
    example_turns,
    gold_forms,
    highest_reward_form,
    require_reward_columns,
    thought_ids,
)
from rlvr_vocab.terminal import make_console, print_section, progress_bar, quiet_libraries
from rlvr_vocab.text import listed, nearest_word, pluralize, short_text, visible_text

_SAMPLED_PROBLEMS, _FAILURES_SHOWN = 8, 5
# Rows scored together; all completions of one prompt share a batch, since some rewards compare them.
_BATCH = 64
_THOUGHTS_READ = 512  # rows in which thoughts are exchanged, from the end
# Columns of a step's file that training does not pass to reward functions.
_NOT_PASSED_ON = ("prompt_ids", "segments", *OF_EACH_TOKEN, "advantage", "reward")
Turn = list[dict[str, Any]]
Tags = tuple[tuple[str, str], ThoughtIds | None]  # of thoughts, in texts and in ids


@dataclass
class Row:
    """One completion, with the columns that reward functions take by name."""

    place: Mapping[str, int | str]  # its origin: {"row": 3}, or {"step": 10, "row": 3}
    columns: Mapping[str, Any]
    scores: list[Score] = field(default_factory=list)  # one for each reward

    @property
    def name(self) -> str:
        """`step 10, row 3`"""
        return ", ".join(f"{name} {value}" for name, value in self.place.items())

    @property
    def text(self) -> str:
        return turn_text(self.columns["completions"])

    def shown(self, between: str = " | ") -> str:
        """The text; with tools or several turns each part behind its author."""
        parts = transcript(self.columns["completions"])
        return self.text if len(parts) < 2 else between.join(f"{author}: {text}" for author, text in parts)

    @property
    def gold(self) -> str:
        gold = cell_text(self.columns.get("solution"))
        return "" if gold is None else f" (gold {short_text(gold)})"

    def total(self, rewards: Sequence[Reward]) -> float | None:
        return weighted_sum(rewards, [score.value for score in self.scores])


Scored = tuple[list[Reward], list[Row], Tags | None]


def run(settings: ScoreSettings) -> int:
    """Show and write the scores; returns 1 if a function failed on a row, else 0."""
    console = make_console()
    if settings.completions is not None:
        rewards, rows, tags = _recorded_completions(settings, settings.completions, console)
    elif settings.model is not None:
        rewards, rows, tags = _sampled_completions(settings, settings.model, console)
    else:
        rewards, rows, tags = _gold_completions(settings, console)
    score_rows(rewards, rows, console)
    if settings.model is not None:
        for row in rows[: settings.show]:
            asked = f"asked: {short_text(row.columns['prompts'][-1]['content'], 120)}{row.gold}"
            lines = [asked, *(f"│ {line}" for line in visible_text(row.shown("\n"), "⏎\n").splitlines())]
            print_section(console, _row_line(rewards, row), lines)
    else:
        below = [row for row in rows if settings.completions is not None or not all(map(_is_full, rewards, row.scores))]
        _print_rows(settings, rewards, below, console)
    print_section(console, "Rewards", _reward_lines(rewards, rows))
    if tags is not None and settings.thoughts is not False:
        print_section(console, "Thoughts", _thoughts(settings, rewards, rows, tags))
    _print_failures(rewards, rows, console)
    if settings.out is not None:
        written = (json.dumps(_record(rewards, row), ensure_ascii=False, default=str) for row in rows)
        atomic_write(settings.out, "".join(f"{line}\n" for line in written), "out")
        console.print(f"\nevery row, with all scores and reasons, is in {settings.out}", markup=False)
    return 1 if any(score.failed for row in rows for score in row.scores) else 0


def _recorded_completions(settings: ScoreSettings, path: Path, console: Console) -> Scored:
    rows = read_completions(settings, path)
    console.print(f"{path}: {pluralize(len(rows), 'row')}", markup=False)
    columns, specs = rows[0].columns, settings.rewards.functions
    for spec in specs:
        if missing := set(required_columns(spec, trainer=())) - {*columns, *dummy_trainer()}:
            there = ", ".join(map(short_text, columns))
            hint = "name columns with prompt_column=… and solution_column=…"
            raise UserError(f"reward {spec.name} needs {listed(sorted(missing))}; {path} has {there}; {hint}")
    context, run = recorded_context(path.absolute()), _run_of(path.absolute())
    if settings.decimal == "comma":
        context = replace(context, decimal_mark=settings.decimal)
    elif context.decimal_mark == "point" and (line := decimal_comma([row.columns.get("solution") for row in rows])):
        console.print(f"warning: {line}", markup=False)
    tags = context.think_tags or THINK_TAGS, None if run is None else thought_ids(run / INITIAL_MODEL)
    return build_rewards(specs, context), rows, tags


def _gold_completions(settings: ScoreSettings, console: Console) -> Scored:
    """The problems of a set, held-out ones included, each with its gold answer in a made-up turn."""
    problems, specs = _problems(settings, console), []
    for spec in settings.rewards.functions:
        if why := declared(spec).skip_gold_check:
            console.print(f"{spec.name}: not judged: {why}", markup=False)
        else:
            specs.append(spec)
    if not specs:
        raise UserError("rewards: none of them can score gold answers; give completions=FILE, or a model=… to answer")
    require_reward_columns(specs, [*problems[0].columns, "completions"], "the problems have")
    context = dummy_context()
    trial = [{**problem.columns, "prompt": problem.columns["prompts"]} for problem in problems[:ROWS_TRIED]]
    form = highest_reward_form(specs, context, gold_forms(THINK_TAGS), trial)
    rows = []
    for problem in problems:
        turn = [{"role": "assistant", "content": text} for text in example_turns([form], problem.columns)]
        columns = {**problem.columns, "completions": turn, "completion_ids": dummy_ids([turn])[0]}
        rows.append(Row(problem.place, columns))
    console.print(f"judged in made-up turns like {rows[0].text!r}", markup=False)
    return build_rewards(specs, context), rows, None  # its thoughts are made up


def _sampled_completions(settings: ScoreSettings, model: ModelSettings, console: Console) -> Scored:
    """The first training problems in seeded order, answered by a model as at the first training step."""
    # Imported here: torch and transformers take seconds to import, and the other inputs do not need them.
    from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions
    from rlvr_vocab.runs.model import expansion_plan, loading_kwargs
    from rlvr_vocab.runs.problems import asks_to_think, require_chat_template
    from rlvr_vocab.runs.tools import ToolUse
    from rlvr_vocab.vocab.expand import write_expansion

    quiet_libraries()
    problems = _problems(settings, console)
    first = problems[0].columns
    require_reward_columns(settings.rewards.functions, list(first), "the problems have")
    prompts = [problem.columns["prompts"] for problem in problems]
    asked = [{**each.columns, "prompt": each.columns["prompts"]} for each in problems for _ in range(settings.samples)]
    thinks = asks_to_think(prompts, model.think_tags, settings.rewards, {**first, "prompt": first["prompts"]})
    plan = expansion_plan(model, settings.seed, settings.dataset, thinks=thinks)
    require_chat_template(plan)
    sampling = SamplingSettings(
        **model.generation_kwargs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        limit_key="model.generation_kwargs.max_new_tokens",
    )
    with tempfile.TemporaryDirectory() as temporary, progress_bar(console, "sampling", len(asked)) as bar:
        write_expansion(plan, folder := Path(temporary) / INITIAL_MODEL)
        checkpoint = load_checkpoint(folder, **loading_kwargs(model))
        tools = ToolUse(settings.tools, settings.environment, settings.max_tool_calling_iterations, "keep")
        checkpoint = replace(checkpoint, tools=tools.loop(checkpoint.tokenizer, checkpoint.layout))
        sampled = sample_completions(checkpoint, asked, sampling, bar.update)
        tags = model.think_tags, thought_ids(folder)
    rows = []
    for number, each in enumerate(sampled):
        problem, sample = problems[number // settings.samples], number % settings.samples + 1
        turns = each.messages or [{"role": "assistant", "content": each.turn}]
        columns = {**problem.columns, "completions": turns, "completion_ids": each.completion_ids}
        if each.environment is not None:
            columns["environments"] = each.environment
        rows.append(Row({**problem.place, "sample": sample}, columns))
    context = RewardContext(model.think_tags, sampling.max_new_tokens, settings.decimal)
    return build_rewards(settings.rewards.functions, context), rows, tags


def _problems(settings: ScoreSettings, console: Console) -> list[Row]:
    """The problems to answer: for a model the first training problems, else all problems."""
    dataset = settings.dataset
    assert dataset is not None
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    divided.require_problems()
    console.print(*divided.account(), *(f"warning: {line}" for line in divided.warnings()), sep="\n", markup=False)
    chosen: Sequence[int] = range(len(divided.problems))[: settings.max_samples]
    if settings.model is not None:
        chosen = divided.parts.train[: settings.max_samples or _SAMPLED_PROBLEMS]
    table = problem_table(divided.problems, prompt_style(dataset), divided.source.columns)
    rows = []
    for index, columns in zip(chosen, table.select(chosen), strict=True):
        of_eval = index >= divided.num_train_rows
        place = {"split": divided.source.eval_split or ""} if of_eval else {}
        columns["prompts"] = columns.pop("prompt")
        rows.append(Row({**place, "row": divided.problems[index].row_number}, columns))
    return rows


def read_completions(settings: ScoreSettings, path: Path) -> list[Row]:
    """The rows of a file, or of all steps of a run; UserError for no rows, a missing column, or no assistant turn."""
    found = list(islice(_file_rows(path), settings.max_samples))
    if not found:
        raise UserError(f"{path.absolute()} has no rows; it must hold at least one completion")
    names = column_names(cells for _, cells in found)
    if settings.completion_column == "completion" not in names and "messages" in names:
        settings = replace(settings, completion_column="messages")
    for key in ("completion_column", "prompt_column", "solution_column"):
        if (column := getattr(settings, key)) is not None and column not in names:
            there, nearest = ", ".join(map(short_text, names)), nearest_word(column, names)
            guessed = "" if nearest or key != "completion_column" else completion_keys([cells for _, cells in found])
            advice = guessed or f"{key}={nearest or '…'}"
            raise UserError(f"{path.absolute()} has no column {column}; its columns are {there}; set {advice}")
    prompt = settings.prompt_column or ("prompt" if "prompt" in names else None)
    solution = settings.solution_column or next((name for name in ("solution", "answer") if name in names), None)
    # User columns whose names a trainer passes to every function.
    taken = frozenset(TRL_NAMES) - {"completion_ids"}
    rows = []
    for place, row in found:
        cells = {name: row.get(name) for name in names}
        asked, turn = _prompt_and_turn(completion := cells.pop(settings.completion_column))
        if turn is None:
            kinds = "neither text nor the messages of an assistant's turn"
            where = f"{path.absolute()}: {Row(place, {}).name}"
            raise UserError(f"{where}: its completion is {short_text(completion, 40)}, {kinds}")
        columns: dict[str, Any] = {"completions": turn}
        if prompt is not None:
            cell = cells.pop(prompt)
            columns["prompts"] = [{"role": "user", "content": cell}] if isinstance(cell, str) else cell
        elif asked:
            columns["prompts"] = asked
        if solution is not None:
            gold = None
            with suppress(UnusableRow):
                gold = cell_answer(cells[solution], "bare", settings.decimal)
            if solution != "answer" and "answer" in cells:
                cells["raw_answer"] = cells["answer"]
            cells |= {"solution": gold, "answer": gold}  # as in training
        columns |= {f"raw_{name}" if name in taken else name: cell for name, cell in cells.items()}
        rows.append(Row(place, columns))
    return rows


def _file_rows(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for file in step_files(path) if path.is_dir() else [path]:
        in_step = file.match(f"{COMPLETIONS}/{STEP_FILES}")
        for number, row in enumerate(read_rows(file), start=1):
            if not isinstance(row, dict):
                raise UserError(f"{file.absolute()}: row {number} is {short_text(row, 30)}, not an object")
            place = {"step": row["step"], "row": number} if in_step and "step" in row else {"row": number}
            turns = json.loads(row["messages"]) if in_step and "messages" in row else row.get("messages")
            if "completion" in row and isinstance(turns, list) and _prompt_and_turn(turns) == ([], turns):
                row["completion"] = turns  # with tools a run writes the last turn there
                del row["messages"]
            yield place, {name: cell for name, cell in row.items() if not (in_step and name in _NOT_PASSED_ON)}


def _prompt_and_turn(cell: Any) -> tuple[Turn, Turn | None]:
    """The messages before the assistant's first, and a completion as in training; None if the cell holds none."""
    if isinstance(cell, list):
        are_messages = all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str | None)
            and isinstance(message.get("content"), str | list | None)
            for message in cell
        )
        turns = [place for place, message in enumerate(cell) if are_messages and is_assistant(message)]
        return (cell[: turns[0]], cell[turns[0] :]) if turns else ([], None)
    text = "" if cell is None else plain_text(cell)
    return [], None if text is None else [{"role": "assistant", "content": text}]


def recorded_context(path: Path) -> RewardContext:
    """The context of the run that the completions or results at the path belong to; default tags without a run."""
    run = _run_of(path)
    if run is None:
        return RewardContext(think_tags=THINK_TAGS)
    config = read_recorded(run, resolve=True)
    opened, closed = config["model"]["think_tags"]
    limit, decimal_mark = config["training"].get("max_completion_length"), config["dataset"].get("decimal", "point")
    return RewardContext((opened, closed), limit, decimal_mark)


def _run_of(path: Path) -> Path | None:
    folders = [each for each in (path, *path.parents) if each.name in ("completions", "evaluation")]
    return run_folder_of(folders[0]) or run_folder_of(folders[0].parent) if folders else None  # or a checkpoint's


def score_rows(rewards: Sequence[Reward], rows: Sequence[Row], console: Console) -> None:
    """Score every row; wrong use of a built-in function raises UserError."""
    end = 0
    with progress_bar(console, "scoring", len(rows)) as bar:
        while end < len(rows):
            start, end = end, min(end + _BATCH, len(rows))
            while end < len(rows) and rows[end].columns.get("prompts", end) == rows[end - 1].columns.get("prompts"):
                end += 1
            batch = rows[start:end]
            columns = {name: [row.columns[name] for row in batch] for name in batch[0].columns} | dummy_trainer()
            for reward in rewards:
                for row, score in zip(batch, reward.explain(**columns), strict=True):
                    row.scores.append(score)
            bar.update(end)


def _record(rewards: Sequence[Reward], row: Row) -> dict[str, Any]:
    columns = {"prompts": "prompt", "solution": "solution"}
    known = {name: row.columns[column] for column, name in columns.items() if column in row.columns}
    scores = {
        reward.name: {"score": score.value, "reason": score.reason, "failed": score.failed is not None}
        for reward, score in zip(rewards, row.scores, strict=True)
    }
    if len(messages := row.columns["completions"]) > 1:
        known["messages"] = messages
    return {**row.place, "completion": row.text, **known, "total": row.total(rewards), "rewards": scores}


def _print_rows(settings: ScoreSettings, rewards: Sequence[Reward], rows: Sequence[Row], console: Console) -> None:
    """Print the rows with the lowest or highest totals; suspicious rows without any score come first."""
    sign = -1 if settings.order == "highest" else 1
    ordered = sorted(rows, key=lambda row: -math.inf if (total := row.total(rewards)) is None else sign * total)
    if shown := ordered[: settings.show]:
        lines = (
            f"{_row_line(rewards, row)}; text: {short_text(row.shown(), keep_end=True)}{row.gold}" for row in shown
        )
        print_section(console, f"{settings.order.capitalize()} totals, {len(shown):,} of {len(rows):,}", lines)


def _row_line(rewards: Sequence[Reward], row: Row) -> str:
    parts = [f"{row.name}: total {_number(row.total(rewards))}"]
    for reward, score in zip(rewards, row.scores, strict=True):
        reason = f" ({short_text(score.reason, 90)})" if score.reason and not _is_full(reward, score) else ""
        parts.append(f"{reward.name} {_number(score.value)}{reason}")
    return "; ".join(parts)


def _reward_lines(rewards: Sequence[Reward], rows: Sequence[Row]) -> Iterator[str]:
    for number, reward in enumerate(rewards):
        scores = [row.scores[number] for row in rows]
        values = [score.value for score in scores if score.value is not None]
        full = sum(_is_full(reward, score) for score in scores)
        mean = _number(sum(values) / len(values)) if values else "none"
        yield (
            f"{reward.name}: mean {mean}, full mark {_number(reward.full_mark)}, "
            f"at full mark {full:,} of {len(scores):,} ({full / len(scores):.1%}), "
            f"without a score {len(scores) - len(values):,}, "
            f"weight {_number(reward.weight)}{' at the start' if reward.adaptive is not None else ''}"
        )
    totals = [total for row in rows if (total := row.total(rewards)) is not None]
    if len(rewards) > 1 and totals:
        yield f"total: mean {_number(sum(totals) / len(totals))}"
    with_prompt = [row for row in rows if "prompts" in row.columns]
    groups = [list(group) for _, group in groupby(with_prompt, lambda row: row.columns["prompts"])]
    if several := [group for group in groups if len(group) > 1]:
        alike = sum(len({row.total(rewards) for row in group}) == 1 for group in several)
        yield f"prompts with several completions: {len(several):,}; with equal totals, so without a gradient: {alike:,}"


def _thoughts(settings: ScoreSettings, rewards: Sequence[Reward], rows: Sequence[Row], tags: Tags) -> Iterator[str]:
    """Which rewards read the thought, by the last rows; those that send completions or run programs where asked for."""
    last = rows[-_THOUGHTS_READ:]
    problems = [(row.place.get("step"), str(row.columns.get("prompts", row.name))) for row in last]
    found = read_thoughts(rewards, [row.columns for row in last], problems, *tags, costly=bool(settings.thoughts))
    yield from (reading["sentence"] for reading in found["rewards"])
    sizes = f"{pluralize(found['completions'], 'completion')} of {pluralize(found['problems'], 'problem')}"
    yield f"measured on {sizes}; left out, without one closed thought: {found['left_out']:,}"


def _print_failures(rewards: Sequence[Reward], rows: Sequence[Row], console: Console) -> None:
    """Print the rows on which a function raised or returned no score; one row stands for its batch."""
    for number, reward in enumerate(rewards):
        failed = [row for row in rows if row.scores[number].failed]
        first = {id(row.scores[number]): row for row in reversed(failed)}  # rows of a failed batch share one score
        lines = [
            f"{row.name}: {short_text(row.scores[number].reason, 300)}; text: {short_text(row.shown(), keep_end=True)}"
            for row in reversed(first.values())
        ]
        if failed:
            title = f"{reward.name} failed on {len(failed):,} of {pluralize(len(rows), 'row')}"
            print_section(console, title, lines[:_FAILURES_SHOWN], style="bold red")


def _is_full(reward: Reward, score: Score) -> bool:
    return score.value is not None and reaches(score.value, reward.full_mark)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
