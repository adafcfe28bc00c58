"""`rlvr-vocab score`: what rewards give for completions, gold answers or samples of a model, without training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console

from rlvr_vocab.config.command_table import ScoreSettings
from rlvr_vocab.config.recorded import read_recorded
from rlvr_vocab.config.sections import ModelSettings, RewardSettings, problem_source, problem_split, prompt_style
from rlvr_vocab.data.answers import UnusableRow, cell_answer, cell_text, is_nan, plain_text, unread_marker
from rlvr_vocab.data.files import read_rows
from rlvr_vocab.data.load import build_report, read_problems, require_problems
from rlvr_vocab.data.rows import column_names
from rlvr_vocab.data.source import TRL_NAMES
from rlvr_vocab.data.table import problem_table
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write_jsonl
from rlvr_vocab.record.completions import OF_EACH_TOKEN
from rlvr_vocab.record.files import INITIAL_MODEL, is_step_file, run_folder_of, step_files
from rlvr_vocab.rewards.build import RewardContext, build_rewards, declared, required_columns
from rlvr_vocab.rewards.grader import weighted_sum
from rlvr_vocab.rewards.guard import Reward, dummy_ids, dummy_trainer
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec, Score, is_user_code, turn_text
from rlvr_vocab.runs.rewards import (
    dummy_context,
    example_turns,
    gold_forms,
    highest_reward_form,
    require_reward_columns,
)
from rlvr_vocab.terminal import make_console, print_section, progress_bar, quiet_libraries
from rlvr_vocab.text import nearest_word, pluralize, short_text, visible_text
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

FAILED = 1
_SAMPLED_PROBLEMS, _ROWS_TRIED = 8, 8
# Scored together, but never fewer than all completions of one prompt: some rewards compare those.
_BATCH = 64
_FAILURES_SHOWN, _GOLDS_SHOWN = 5, 10
_TITLES = {"lowest": "Lowest totals", "highest": "Highest totals", "file": "Rows"}
# Columns of a step's file that training passes to no function.
_NOT_PASSED_ON = ("prompt_ids", *OF_EACH_TOKEN, "advantage", "reward")


@dataclass(frozen=True)
class Rows:
    """Completions, as messages, and the columns beside them, by the names that reward functions know.

    Attributes:
        places: where each is from: {"row": 3}, or {"step": 10, "row": 3}.
        columns: `completions` and, where they are known, `prompts` and `solution` among them.
    """

    places: Sequence[Mapping[str, int | str]]
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.places)

    def prompt(self, row: int) -> Any:
        return self.columns["prompts"][row]

    def text(self, row: int) -> str:
        return turn_text(self.columns["completions"][row])


@dataclass(frozen=True)
class Scores:
    """The scores of rows: for each reward one a row."""

    rewards: Sequence[Reward]
    by_reward: Sequence[Sequence[Score]]

    def total(self, row: int) -> float | None:
        return weighted_sum(self.rewards, [scores[row].value for scores in self.by_reward])

    def pairs(self) -> Iterator[tuple[Reward, Sequence[Score]]]:
        return zip(self.rewards, self.by_reward, strict=True)


def run(settings: ScoreSettings) -> int:
    """Show and write down what the rewards give; 1 where a function failed on a row, else 0."""
    console = make_console()
    if settings.completions is not None:
        rows, scores = _score_completions(settings, settings.completions, console)
    elif settings.model is None:
        rows, scores = _score_golds(settings, console)
    else:
        rows, scores = _score_samples(settings, settings.model, console)
    _print_failures(console, rows, scores)
    if settings.out is not None:
        atomic_write_jsonl(settings.out, (_record(rows, scores, row) for row in range(len(rows))), "out")
        console.print(f"\nevery row, with all scores and reasons, is in {settings.out}", markup=False)
    return FAILED if any(score.failed for each in scores.by_reward for score in each) else 0


def _score_completions(settings: ScoreSettings, path: Path, console: Console) -> tuple[Rows, Scores]:
    rows, notes = read_completions(settings, path)
    for note in [f"{path}: {pluralize(len(rows), 'row')}", *notes]:
        console.print(note, markup=False)
    given = {*rows.columns, *dummy_trainer()}
    named_by = {"prompts": "prompt_column", "solution": "solution_column", "answer": "solution_column"}
    for spec in settings.rewards.functions:
        for column in required_columns(spec, trainer=()):
            if column not in given:
                hint = f"; name it with {named_by[column]}=…" if column in named_by else ""
                there = ", ".join(map(short_text, rows.columns))
                raise UserError(f"reward {spec.name} needs {column}; {path} has {there}{hint}")
    context = recorded_context(path.absolute())
    if settings.think_tags is not None:
        context = replace(context, think_tags=settings.think_tags)
    scores = score_rows(settings.rewards, rows, context, console)
    shown = list(range(len(rows)))
    if settings.order != "file":  # rows without any score come first: something is wrong with them
        sign = 1 if settings.order == "lowest" else -1
        totals = [scores.total(row) for row in shown]
        shown.sort(key=lambda row: -float("inf") if (total := totals[row]) is None else sign * total)
    if shown := shown[: settings.show]:
        title = f"{_TITLES[settings.order]}, {len(shown):,} of {len(rows):,}"
        print_section(console, title, (f"{_row_line(rows, scores, row)}; text: {_short(rows, row)}" for row in shown))
    print_section(console, "Rewards", _reward_lines(rows, scores))
    return rows, scores


def _score_golds(settings: ScoreSettings, console: Console) -> tuple[Rows, Scores]:
    """The problems of a set, held-out ones included, each answered by its gold answer in a made-up turn."""
    tags = settings.think_tags or THINK_TAGS
    judged = [spec for spec in settings.rewards.functions if not declared(spec).skip_gold_check]
    problems = _problems(settings, console)
    golds = problems.columns.get("solution", [None] * len(problems))

    require_reward_columns(judged, [*problems.columns, "completions"], "the problems have")
    context = dummy_context(RewardContext(tags))
    trial = [
        {name: cells[place] for name, cells in problems.columns.items()} | {"prompt": problems.prompt(place)}
        for place in range(min(_ROWS_TRIED, len(problems)))
    ]
    form = highest_reward_form(judged, context, gold_forms(tags), trial)
    texts = [text for gold in golds for text in example_turns([form], {"solution": gold})]
    turns = [[{"role": "assistant", "content": text}] for text in texts]
    rows = Rows(problems.places, {**problems.columns, "completions": turns, "completion_ids": dummy_ids(turns)})
    scores = score_rows(RewardSettings(tuple(judged)), rows, context, console) if judged else Scores((), ())
    lines = [f"judged in made-up turns like {rows.text(0)!r}"] if judged else []
    pairs = scores.pairs()
    for spec in settings.rewards.functions:
        if why := declared(spec).skip_gold_check:
            lines.append(f"{spec.name}: not judged: {why}")
        else:
            lines += _gold_lines(rows, *next(pairs), spec, min(settings.show, _GOLDS_SHOWN))
    print_section(console, "Gold answers", lines)
    return rows, scores


def _score_samples(settings: ScoreSettings, model: ModelSettings, console: Console) -> tuple[Rows, Scores]:
    """The first training problems in their seeded order, answered by a model as at the first step of training."""
    # Only here: torch and transformers take seconds to import, and the other uses do not need them.
    from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions
    from rlvr_vocab.runs.model import loading_kwargs, untrained_plan
    from rlvr_vocab.runs.prompts import asks_to_think, require_chat_template
    from rlvr_vocab.vocab.expand import write_expansion

    quiet_libraries()
    problems = _problems(settings, console)
    require_reward_columns(settings.rewards.functions, list(problems.columns), "the problems have")
    prompts = problems.columns["prompts"]
    row = {name: cells[0] for name, cells in problems.columns.items()} | {"prompt": prompts[0]}
    thinks = asks_to_think(prompts, model.think_tags, settings.rewards, row)
    plan = untrained_plan(model, settings.seed, settings.dataset, thinks)
    require_chat_template(plan)
    columns = {
        name: [cell for cell in cells for _ in range(settings.samples)] for name, cells in problems.columns.items()
    }
    sampling = SamplingSettings(
        **model.generation_kwargs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        limit_key="model.generation_kwargs.max_new_tokens",
    )
    with tempfile.TemporaryDirectory() as temporary:
        write_expansion(plan, folder := Path(temporary) / INITIAL_MODEL)
        checkpoint = load_checkpoint(folder, **loading_kwargs(model))
        with progress_bar(console, "sampling", len(columns["prompts"])) as bar:
            sampled = sample_completions(
                checkpoint, columns["prompts"], sampling, lambda done, total: bar.update(done, total=total)
            )
    places = [{**place, "sample": sample + 1} for place in problems.places for sample in range(settings.samples)]
    turns = [[{"role": "assistant", "content": each.turn}] for each in sampled]
    rows = Rows(places, {**columns, "completions": turns, "completion_ids": [each.completion_ids for each in sampled]})
    layout = checkpoint.layout
    opened, closed = checkpoint.tokenizer.convert_ids_to_tokens([layout.think_open_id, layout.think_close_id])
    limit = model.generation_kwargs["max_new_tokens"]
    context = RewardContext((opened, closed), layout.standard_size, layout.think_open_id, layout.think_close_id, limit)
    scores = score_rows(settings.rewards, rows, context, console)
    for number in range(min(settings.show, len(rows))):
        print_section(console, _row_line(rows, scores, number), _turn_lines(rows, number))
    if len(rows) > settings.show:
        console.print(f"\n{len(rows) - settings.show:,} more: raise show", markup=False)
    print_section(console, "Rewards", _reward_lines(rows, scores))
    return rows, scores


def _problems(settings: ScoreSettings, console: Console) -> Rows:
    """The problems to answer: the first to train on for a model, else all."""
    dataset = settings.dataset
    assert dataset is not None
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    report = build_report(divided)
    require_problems(report, wants_eval=False)
    for line in report.lines():
        console.print(line, markup=False)
    chosen: Sequence[int] = range(len(divided.problems))[: settings.max_samples]
    if settings.model is not None:
        chosen = divided.parts.train[: settings.max_samples or _SAMPLED_PROBLEMS]
    num_train = len(divided.train_rows.problems)
    places: list[dict[str, int | str]] = []
    for index in chosen:
        split: dict[str, int | str] = {} if index < num_train else {"split": divided.source.eval_split or ""}
        places.append({**split, "row": divided.problems[index].row_number})
    columns = problem_table(divided.problems, prompt_style(dataset), divided.source.columns)[list(chosen)]
    return Rows(places, {"prompts": columns.pop("prompt"), **columns})


def read_completions(settings: ScoreSettings, path: Path) -> tuple[Rows, list[str]]:
    """The rows of a file, or of all steps of a run, and notes on what is missing in them.

    Raises:
        UserError: it cannot be read, has no rows, lacks a column, or a row holds no assistant's turn.
    """
    places: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    for file in step_files(path) if path.is_dir() else [path]:
        most = None if settings.max_samples is None else settings.max_samples - len(cells)
        if most == 0:
            break
        for number, row in enumerate(read_rows(file)[:most], start=1):
            if not isinstance(row, dict):
                raise UserError(f"{file.absolute()}: row {number} is {short_text(row, 30)}, not an object")
            in_step = is_step_file(file)
            places.append({**({"step": row["step"]} if in_step else {}), "row": number})
            cells.append({name: cell for name, cell in row.items() if not (in_step and name in _NOT_PASSED_ON)})
    if not cells:
        raise UserError(f"{path.absolute()} has no rows; it must hold at least one completion")
    names = column_names(cells)
    for key in ("completion_column", "prompt_column", "solution_column"):
        if (column := getattr(settings, key)) is not None and column not in names:
            listed, nearest = ", ".join(map(short_text, names)), nearest_word(column, names) or "…"
            raise UserError(f"{path.absolute()} has no column {column}; its columns are {listed}; set {key}={nearest}")
    columns = {name: [row.get(name) for row in cells] for name in names}
    given = columns.pop(settings.completion_column)
    notes = [f"rows without a completion, scored as empty ones: {given.count(None):,}"] if None in given else []
    known: dict[str, list[Any]] = {
        "completions": [_turn(cell, place, path) for cell, place in zip(given, places, strict=True)]
    }
    if settings.prompt_column is not None or "prompt" in columns:
        prompts = columns.pop(settings.prompt_column or "prompt")
        known["prompts"] = [
            [{"role": "user", "content": cell}] if isinstance(cell, str) else None if is_nan(cell) else cell
            for cell in prompts
        ]
    solution = settings.solution_column or next((name for name in ("solution", "answer") if name in columns), None)
    if solution is not None:
        golds: list[Any] = []
        for cell in columns[solution]:
            try:
                golds.append(cell_answer(cell, settings.solution_format))
            except UnusableRow:
                golds.append(None)
        if solution != "answer" and "answer" in columns:
            columns["raw_answer"] = columns["answer"]
        columns |= {"solution": golds, "answer": golds}  # as in training
        there = [gold for gold in golds if gold is not None]
        if len(there) < len(golds):
            notes.append(f"rows without a gold answer in the column {solution}: {len(golds) - len(there):,}")
        likelier = unread_marker(there) if settings.solution_format == "bare" else None
        if likelier is not None:
            seems = f"the gold answers in the column {solution} seem to be worked solutions"
            notes.append(f"{seems}: try solution_format={likelier}")
    # Columns of the user's that are called like what a trainer passes to every function.
    taken = frozenset(TRL_NAMES) - {"completion_ids"}
    known |= {f"raw_{name}" if name in taken else name: values for name, values in columns.items()}
    return Rows(places, known), notes


def _turn(cell: Any, place: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """A completion as the messages that training passes on."""

    def is_of_turn(message: Any) -> bool:
        content = message.get("content") if isinstance(message, dict) else 0
        is_text = content is None or isinstance(content, str)
        is_parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
        return (is_text or is_parts) and message.get("role") in ("assistant", "tool", None)

    if isinstance(cell, list) and all(map(is_of_turn, cell)):
        return cell
    text = "" if cell is None else plain_text(cell)
    if text is None:
        what = "neither text nor the messages of an assistant's turn"
        raise UserError(f"{path.absolute()}: {_name(place)}: its completion is {short_text(cell, 40)}, {what}")
    return [{"role": "assistant", "content": text}]


def recorded_context(path: Path) -> RewardContext:
    """The context of the run whose completions or evaluation results lie at the path; the usual tags without one."""
    folders = [each for each in (path, *path.parents) if each.name in ("completions", "evaluation")]
    run = run_folder_of(folders[0]) or run_folder_of(folders[0].parent) if folders else None  # a checkpoint's is within
    if run is None:
        return RewardContext(think_tags=THINK_TAGS)
    config = read_recorded(run, resolve=True)
    opened, closed = config["model"]["think_tags"]
    context = RewardContext((opened, closed), max_completion_length=config["training"].get("max_completion_length"))
    model = run / INITIAL_MODEL if run == folders[0].parent else folders[0].parent
    if not (model / LAYOUT_FILE).is_file():
        return context
    layout = VocabLayout.load(model)
    return replace(
        context,
        standard_size=layout.standard_size,
        think_open_id=layout.think_open_id,
        think_close_id=layout.think_close_id,
    )


def score_rows(rewards: RewardSettings, rows: Rows, context: RewardContext, console: Console) -> Scores:
    """Every reward of every row; a function of the library that is used wrongly raises UserError."""
    with progress_bar(console, "scoring", len(rows)) as bar:
        return _scored(build_rewards(rewards.functions, context), rows, bar.update)


def _scored(rewards: Sequence[Reward], rows: Rows, on_progress: Any = lambda done: None) -> Scores:
    scores: list[list[Score]] = [[] for _ in rewards]
    prompts = rows.columns.get("prompts")
    start = 0
    while start < len(rows):
        end = min(start + _BATCH, len(rows))
        while prompts is not None and end < len(rows) and prompts[end] == prompts[end - 1]:
            end += 1
        columns = {name: list(cells[start:end]) for name, cells in rows.columns.items()} | dummy_trainer()
        for reward, found in zip(rewards, scores, strict=True):
            found += reward.explain(**columns)
        on_progress(end)
        start = end
    return Scores(rewards, scores)


def _record(rows: Rows, scores: Scores, row: int) -> dict[str, Any]:
    """Where a row is from, prompt, completion, gold answer, total, and by reward its score."""
    columns = {"prompts": "prompt", "solution": "solution"}
    known = {name: rows.columns[column][row] for column, name in columns.items() if column in rows.columns}
    rewards = {
        reward.name: {
            "score": found[row].value,
            "reason": found[row].reason,
            "failed": found[row].failed is not None,
            **found[row].details,
        }
        for reward, found in scores.pairs()
    }
    turn = {"completion": rows.text(row)}
    return {**rows.places[row], **turn, **known, "total": scores.total(row), "rewards": rewards}


def _row_line(rows: Rows, scores: Scores, row: int) -> str:
    parts = [f"{_name(rows.places[row])}: total {_number(scores.total(row))}"]
    for reward, found in scores.pairs():
        reason = (
            "" if _is_full(reward, found[row]) or not found[row].reason else f" ({short_text(found[row].reason, 90)})"
        )
        parts.append(f"{reward.name} {_number(found[row].value)}{reason}")
    return "; ".join(parts)


def _turn_lines(rows: Rows, row: int) -> Iterator[str]:
    """The problem and the whole turn."""
    yield f"asked: {short_text(rows.prompt(row)[-1]['content'], 120)}{_shown_gold(rows, row)}"
    text = rows.text(row)
    if len(text) > 2_000:
        text = f"{text[:1_000]} … {len(text) - 2_000:,} characters … {text[-1_000:]}"
    yield from (f"│ {line}" for line in visible_text(text, "⏎\n").splitlines())


def _reward_lines(rows: Rows, scores: Scores) -> Iterator[str]:
    for reward, found in scores.pairs():
        yield _reward_line(reward, found)
    totals = [scores.total(row) for row in range(len(rows))]
    there = [total for total in totals if total is not None]
    if len(scores.rewards) > 1 and there:
        yield f"total: mean {_number(sum(there) / len(there))}"
    groups = [list(group) for _, group in groupby(range(len(rows)), rows.prompt)] if "prompts" in rows.columns else []
    if several := [group for group in groups if len(group) > 1]:
        alike = sum(len({totals[row] for row in group}) == 1 for group in several)
        groups_alike = f"of one total, so with nothing to learn from: {alike:,}"
        yield f"prompts with several completions: {len(several):,}; {groups_alike}"


def _reward_line(reward: Reward, scores: Sequence[Score]) -> str:
    values = [score.value for score in scores if score.value is not None]
    full = sum(_is_full(reward, score) for score in scores)
    mean = _number(sum(values) / len(values)) if values else "none"
    return (
        f"{reward.name}: mean {mean}, full mark {_number(reward.full_mark)}, "
        f"at full mark {full:,} of {len(scores):,} ({full / len(scores):.1%}), "
        f"without a score {len(scores) - len(values):,}, "
        f"weight {_number(reward.weight)}{' at the start' if reward.adaptive is not None else ''}"
    )


def _gold_lines(rows: Rows, reward: Reward, scores: Sequence[Score], spec: RewardSpec, show: int) -> Iterator[str]:
    """How many gold answers one reward gives full marks, and those that it does not."""
    yield _reward_line(reward, scores)
    below = [row for row, score in enumerate(scores) if not _is_full(reward, score) and not score.failed]
    for row in below[:show]:
        reason = short_text(scores[row].reason, 90)
        value = _number(scores[row].value)
        yield f"  {_name(rows.places[row])}: {value}{f', {reason}' if reason else ''}{_shown_gold(rows, row)}"
    if len(below) > show:
        yield f"  {len(below) - show:,} more"
    best = max((score.value for score in scores if score.value is not None), default=None)
    if best is not None and best < reward.full_mark and is_user_code(spec.name) and spec.full_mark is None:
        unpaid = "it may want another form of turn; " * (best == 0)
        advice = f"if {_number(best)} is its best, say full_mark: {_number(best)}"
        yield f"  no row reaches {_number(reward.full_mark)}; {unpaid}{advice}"


def _print_failures(console: Console, rows: Rows, scores: Scores) -> None:
    """The rows on which a function raised or returned no score, and what it did."""
    for reward, found in scores.pairs():
        failed = [row for row, score in enumerate(found) if score.failed]
        lines = [
            f"{_name(rows.places[row])}: {short_text(found[row].reason, 300)}; text: {_short(rows, row)}"
            for row in failed
            if found[row].failed == "row" or row == 0 or found[row] is not found[row - 1]  # one of a batch
        ]
        more = [f"{len(lines) - _FAILURES_SHOWN:,} more"] if len(lines) > _FAILURES_SHOWN else []
        if failed:
            title = f"{reward.name} failed on {len(failed):,} of {pluralize(len(rows), 'row')}"
            print_section(console, title, [*lines[:_FAILURES_SHOWN], *more], style="bold red")


def _is_full(reward: Reward, score: Score) -> bool:
    return score.value is not None and score.value >= reward.full_mark - 1e-6


def _name(place: Mapping[str, Any]) -> str:
    """`step 10, row 3`"""
    return ", ".join(f"{name} {value}" for name, value in place.items())


def _short(rows: Rows, row: int) -> str:
    """How a turn begins and ends."""
    return short_text(rows.text(row), keep_end=True)


def _shown_gold(rows: Rows, row: int) -> str:
    return f" (gold {short_text(cell_text(rows.columns['solution'][row]))})" if "solution" in rows.columns else ""


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
