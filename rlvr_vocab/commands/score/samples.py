"""A few problems answered by a model as at the first step of training, to try rewards on what it writes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jinja2 import TemplateError
from rich.console import Console

from rlvr_vocab.commands.score.rows import ScoredRows
from rlvr_vocab.config.command_sections import ScoreSettings, expanded_folder
from rlvr_vocab.config.problem_source import problem_source, problem_split, prompt_style
from rlvr_vocab.config.sections import DatasetSettings, ModelSettings
from rlvr_vocab.data import read_problems
from rlvr_vocab.data.load import build_report, require_problems
from rlvr_vocab.data.table import problem_table
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, load_checkpoint, sample_completions
from rlvr_vocab.progress import stage
from rlvr_vocab.rewards.build import RewardContext
from rlvr_vocab.runs.base_model import loading_kwargs, planned, tiny_model
from rlvr_vocab.runs.prompts import require_chat_template
from rlvr_vocab.runs.rewards import require_reward_columns
from rlvr_vocab.terminal import quiet_libraries
from rlvr_vocab.vocab.expand import write_expansion

_DEFAULT_PROBLEMS = 8


def sampled_rows(
    settings: ScoreSettings, model: ModelSettings, dataset: DatasetSettings, console: Console
) -> tuple[ScoredRows, RewardContext]:
    """The first training problems in their seeded order, each answered `samples` times, and what rewards may ask for.

    Raises:
        UserError: the problems cannot be read or lack a column, or the model cannot be had or has no chat template.
    """
    quiet_libraries()
    problems = _problems(settings, dataset, console)
    require_reward_columns(settings.rewards, list(problems.columns), "the problems have")
    with _checkpoint(settings, model, dataset) as checkpoint:
        rows = _answered(checkpoint, problems, settings, model, console)
    layout = checkpoint.layout
    opened, closed = checkpoint.tokenizer.convert_ids_to_tokens([layout.think_open_id, layout.think_close_id])
    limit = model.generation_kwargs["max_new_tokens"]
    context = RewardContext((opened, closed), layout.standard_size, layout.think_open_id, layout.think_close_id, limit)
    return rows, context


def _problems(settings: ScoreSettings, dataset: DatasetSettings, console: Console) -> ScoredRows:
    """The problems, without completions."""
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    table = problem_table(divided.problems, prompt_style(dataset), divided.source.columns.reasoning)
    report = build_report(divided, table.notes)
    require_problems(report, wants_eval=False)
    for line in report.lines():
        console.print(line, markup=False)
    chosen = divided.parts.train[: settings.max_samples or _DEFAULT_PROBLEMS]
    columns = {name: cells.take(chosen).to_pylist() for name, cells in table.columns.items()}
    places = [{"row": divided.problems[index].row_number} for index in chosen]
    return ScoredRows(places, (), columns.pop("prompt"), columns)


@contextmanager
def _checkpoint(settings: ScoreSettings, model: ModelSettings, dataset: DatasetSettings) -> Iterator[Checkpoint]:
    """The model as training would start from it; one that is expanded already as it is."""
    folder = expanded_folder(model)
    if folder is not None:
        yield load_checkpoint(folder, **loading_kwargs(model))
        return
    base = model.name
    if model.tiny is not None:
        base = str(tiny_model(model, dataset.system_prompt, settings.seed))
    plan = planned(base, model, settings.seed, dataset.open_thinking)
    require_chat_template(plan)
    with tempfile.TemporaryDirectory() as temporary:
        expanded = Path(temporary) / "initial_model"
        write_expansion(plan, expanded)
        yield load_checkpoint(expanded, **loading_kwargs(model))


def _answered(
    checkpoint: Checkpoint, problems: ScoredRows, settings: ScoreSettings, model: ModelSettings, console: Console
) -> ScoredRows:
    samples = settings.samples
    prompts = [prompt for prompt in problems.prompts or () for _ in range(samples)]
    sampling = SamplingSettings(
        max_new_tokens=model.generation_kwargs["max_new_tokens"],
        temperature=model.generation_kwargs["temperature"],
        batch_size=settings.batch_size,
        seed=settings.seed,
        limit_key="model.generation_kwargs.max_new_tokens",
    )
    try:
        with stage(console, "sampling", len(prompts)) as display:
            completions = sample_completions(
                checkpoint, prompts, sampling, lambda done, total: display.update(done, total=total)
            )
    except TemplateError as error:
        raise UserError(
            f"model.name={model.name}: its chat template refuses these prompts: {error}; a template that knows no "
            "system message needs dataset.system_prompt=null"
        ) from error
    columns = {name: [cell for cell in cells for _ in range(samples)] for name, cells in problems.columns.items()}
    return ScoredRows(
        places=[{**place, "sample": sample + 1} for place in problems.places for sample in range(samples)],
        completions=[[{"role": "assistant", "content": completion.turn}] for completion in completions],
        prompts=prompts,
        columns={**columns, "completion_ids": [completion.completion_ids for completion in completions]},
    )
