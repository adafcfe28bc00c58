"""The problems of a run and of its stages: loaded, checked, recorded in `problems.json`, and rendered as prompts.

The record holds fingerprints. They ensure that a run resumes with the same problems, and that an evaluation warns of
problems that the run trained on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from datasets import Dataset
from rich.console import Console

from rlvr_vocab.config.sections import (
    DatasetSettings,
    RewardSettings,
    RunSettings,
    TrainingSettings,
    problem_source,
    problem_split,
    prompt_style,
    stage_error_context,
    stages_of,
)
from rlvr_vocab.data.answers import cell_text, gold_text
from rlvr_vocab.data.load import ProblemSets, lay_out, read_problems
from rlvr_vocab.data.problem_key import hashes, problem_key
from rlvr_vocab.data.rows import Messages, conversation_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, fingerprint_of, json_text, read_json_if_there
from rlvr_vocab.record.files import INITIAL_MODEL, PROBLEMS, SYSTEM_PROMPT_USED, run_folder_of
from rlvr_vocab.record.results import GraderRecord
from rlvr_vocab.runs.folder import Run, RunOfCheckpoint
from rlvr_vocab.runs.rewards import (
    ROWS_TRIED,
    answer_warnings,
    dry_run_functions,
    dry_run_rewards,
    dummy_context,
    example_forms,
    format_scores,
    grader_of_run,
    highest_reward_form,
    needs_gold_answers,
    reward_context,
)
from rlvr_vocab.runs.tools import tools_of_run
from rlvr_vocab.terminal import progress_bar
from rlvr_vocab.text import pluralize, rows_in_words, short_text
from rlvr_vocab.tools.functions import offered_tools
from rlvr_vocab.training.settings import completions_together
from rlvr_vocab.verify.verifier import check_golds
from rlvr_vocab.vocab.expand import ExpansionPlan
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.regions import THINKING, region_of_next
from rlvr_vocab.vocab.tokenizer import begins_answer, chat_ids, chat_texts, prefilled_ids, think_tags

_PROMPTS_CHECKED = 1_000
_FINGERPRINT = "sha256"
ThinkingOpener = Literal["template", "model", "nobody"]


@dataclass(frozen=True)
class RunProblems:
    """The problems of a run, also for a warm-up, and of each stage; none of `held_out` is in a stage."""

    train: Dataset
    held_out: Dataset | None
    by_stage: tuple[Dataset, ...]
    report: dict[str, Any]  # the part of `problems.json` that is known before a model is loaded


def load_run_problems(settings: RunSettings, console: Console) -> RunProblems:
    """Load the problem sets of a run and its stages, each once; UserError for one that it cannot train on or resume."""
    own = _load(settings, console)
    held_out = _measured_on(settings, own.eval, console)
    loaded, usable = {settings.dataset: own.train}, dict[DatasetSettings, Dataset]()
    by_stage: list[Dataset] = []
    training: list[dict[str, Any]] = []
    for stage in stages_of(settings):
        with stage_error_context(stage.name):
            dataset = stage.run.dataset
            if dataset not in loaded:
                loaded[dataset] = _never_held_out(_load(stage.run, console).train, own.reserved_keys, console)
            train = loaded[dataset]
            fingerprint = fingerprint_of(_pairs(train))
            training.append({"stage": stage.name, "dataset": dataset.name, _FINGERPRINT: fingerprint})
            if needs_gold_answers(stage.run.rewards.functions):
                if dataset not in usable:
                    usable[dataset] = usable_problems(train, "to train on", console)
                train = usable[dataset]
            require_a_batch(train, stage.run.training)
            dry_run_rewards(stage.run, train)
            by_stage.append(train)
    measured = [] if held_out is None else _pairs(held_out)
    used = [loaded[stage.run.dataset] for stage in stages_of(settings)] + [own.train] * (settings.warmup.max_steps > 0)
    trained = {problem_key(text) for train in used for text in train["problem"]}
    report = {
        "held_out": {"measured_on": len(measured), _FINGERPRINT: fingerprint_of(measured)},
        "training": training,
        "keys": {"held_out": hashes(own.reserved_keys), "trained": hashes(trained)},
    }
    _require_same_problems(settings, report)
    return RunProblems(own.train, held_out, tuple(by_stage), report)


def _load(settings: RunSettings, console: Console) -> ProblemSets:
    dataset = settings.dataset
    divided = read_problems(problem_source(dataset), problem_split(dataset, settings.seed))
    sets = lay_out(divided, prompt_style(dataset))
    console.print(*sets.account, sep="\n", markup=False)
    return sets


def held_out_problems(settings: RunSettings, console: Console) -> Dataset | None:
    """The held-out problems of a run alone."""
    return _measured_on(settings, _load(settings, console).eval, console)


def _measured_on(settings: RunSettings, held_out: Dataset | None, console: Console) -> Dataset | None:
    """The held-out problems that the grader of the run can grade."""
    if held_out is None:
        return None
    functions = grader_of_run(settings).functions
    usable = usable_problems(held_out, "held out", console) if needs_gold_answers(functions) else held_out
    if not len(usable):
        raise UserError(
            f"{functions[0].name} can read no held-out gold answer: hold out others, or set dataset.max_eval_samples=0"
        )
    dry_run_functions(settings, functions, usable, "the held-out problems have")
    return usable


def _never_held_out(train: Dataset, reserved_keys: frozenset[str], console: Console) -> Dataset:
    """Drop the problems that the run holds out: a stage may use the same set with another split."""
    kept = [index for index, text in enumerate(train["problem"]) if problem_key(text) not in reserved_keys]
    if len(kept) < len(train):
        console.print(f"left out {len(train) - len(kept):,} more problems, which the run holds out")
    return train.select(kept)


def usable_problems(rows: Dataset, which: str, console: Console) -> Dataset:
    """The problems whose gold answer the verifier can use, or all where there is none; `which` names the set."""
    if "solution" not in rows.column_names:
        return rows
    golds = list(rows["solution"])
    with progress_bar(console, f"gold answers {which}", len(golds)) as display:
        found = check_golds(list(map(gold_text, golds)), display.update)
    if not found.unusable:
        return rows
    index, why = next(iter(found.unusable.items()))
    console.print(
        f"left out {pluralize(len(found.unusable), 'problem')} {which} with gold answers that the verifier cannot use "
        f"(such as {(cell_text(golds[index]) or '')[:40]!r}: {why})",
        markup=False,
    )
    return rows.select([index for index in range(len(rows)) if index not in found.unusable])


def require_a_batch(train: Dataset, training: TrainingSettings) -> None:
    """Reject a set smaller than one generation batch: the trainer would take no step and report success."""
    at_once, steps = completions_together(training.grpo)
    group = training.grpo["num_generations"]
    have, needed = len(train), at_once * steps // group
    if have < needed:
        raise UserError(
            f"dataset: {pluralize(have, 'usable problem is', 'usable problems are')} fewer than one batch, which needs "
            f"{needed} ({needed * group} completions, {group} for each problem): add problems, or take a smaller "
            "training.per_device_train_batch_size or training.steps_per_generation"
        )


# --- problems.json ---


def _pairs(rows: Dataset) -> list[tuple[str, str | None]]:
    """Each problem and its solution as text; None without solutions."""
    solutions = rows["solution"] if "solution" in rows.column_names else [None] * len(rows)
    return [(problem, cell_text(solution)) for problem, solution in zip(rows["problem"], solutions, strict=True)]


def write_problems_record(run: Run, problems: RunProblems, num_fitting: Sequence[int], grader: GraderRecord) -> None:
    """Write `problems.json`: fingerprints and numbers of problems, their grader, and the use of the system prompt."""
    used = False
    for stage, rows in zip(stages_of(run.settings), problems.by_stage, strict=True):
        configured = {"role": "system", "content": stage.run.dataset.system_prompt}
        prompts = rows["prompt"][:_PROMPTS_CHECKED]
        used |= any(prompt[0]["role"] != "system" or prompt[0] == configured for prompt in prompts)
    pairs = zip(problems.report["training"], num_fitting, strict=True)
    training = [{**each, "trained_on": count} for each, count in pairs]
    report = {**problems.report, "training": training, "grader": grader, SYSTEM_PROMPT_USED: used}
    atomic_write(run.folder / PROBLEMS, json_text(report))


def _require_same_problems(settings: RunSettings, report: Mapping[str, Any]) -> None:
    """Reject a resume with other problems: the run would be evaluated on problems that it has trained on."""
    if settings.overwrite or not (settings.output_dir / INITIAL_MODEL).exists():
        return
    recorded = read_json_if_there(settings.output_dir / PROBLEMS)  # written before the first step
    if recorded is None:
        return
    try:
        parts = [("held out", recorded["held_out"], report["held_out"])]
        pairs = zip(recorded["training"], report["training"], strict=False)
        parts += [(now["stage"] or "training", then, now) for then, now in pairs]
        changes = [part for part, then, now in parts if then[_FINGERPRINT] != now[_FINGERPRINT]]
    except (KeyError, TypeError) as error:
        raise UserError(f"{settings.output_dir / PROBLEMS} is damaged: it is no record of problems") from error
    if changes:
        raise UserError(
            f"output_dir={settings.output_dir}: the problems or their split changed since this run started "
            f"({', '.join(changes)}): restore its problem set, or resume with the version of rlvr_vocab that started "
            "it, or choose another exp_name or output_dir, or add overwrite=true"
        )


def problems_line(dataset: str, keys: Collection[str], run: RunOfCheckpoint) -> str:
    """A line on the problems of an evaluation, by their keys; a warning if the run may have trained on them."""
    if run.folder is None:
        return f"problems of {dataset}; the checkpoint is not in the folder of a run"
    recorded = (read_json_if_there(run.folder / PROBLEMS) or {}).get("keys")
    if recorded is None:
        return f"warning: {run.folder} does not record its problems ({PROBLEMS}): it may have trained on these"
    asked = set(hashes(keys).split())
    known = len(asked.intersection(recorded["trained"].split()))
    if known:
        return f"warning: the run in {run.folder} trained on {known:,} of these {pluralize(len(asked), 'problem')}"
    if asked.issubset(recorded["held_out"].split()):
        return f"problems held out by the run in {run.folder}"
    return f"problems of {dataset}; the run in {run.folder} trained on none of them"


# --- prompts ---


def fitting_prompts(
    train: Dataset, plan: ExpansionPlan, settings: RunSettings, console: Console
) -> tuple[Dataset, list[int]]:
    """The problems whose prompts are short enough, and their numbers of tokens; UserError past the model's context."""
    training, tools = settings.training, offered_tools(**tools_of_run(settings))
    lengths = [len(ids) for ids in chat_ids(plan.tokenizer, train["prompt"][:], tools=tools)]
    limit = training.max_prompt_length
    kept = [index for index, length in enumerate(lengths) if limit is None or length <= limit]
    if len(kept) < len(lengths):
        left_out = f"{len(lengths) - len(kept)} of {pluralize(len(train), 'problem')}"
        console.print(f"left out {left_out} whose prompt is longer than training.max_prompt_length={limit}")
        train, lengths = train.select(kept), [lengths[index] for index in kept]
    context, completion = plan.context_length, training.grpo["max_completion_length"]
    longest = max(lengths, default=0)
    if context is not None and longest + completion > context:
        text = train[lengths.index(longest)]["prompt"][-1]["content"]
        raise UserError(
            f"dataset: a prompt of {longest} tokens ({short_text(text)!r}) and a completion of up to {completion} do "
            f"not fit the model's context of {context}: lower training.max_prompt_length or max_completion_length"
        )
    return train, lengths


def require_chat_template(plan: ExpansionPlan) -> None:
    """Raises UserError if the tokenizer has no chat template."""
    if plan.tokenizer.chat_template is None:
        raise UserError(
            f"model.name={plan.base}: no chat template; set model.chat_template=FILE, or an instruction-tuned model"
        )


def print_prompt_warnings(stages: Iterable[tuple[RunSettings, Dataset]], plan: ExpansionPlan, console: Console) -> None:
    """Print warnings on prompts, template and rewards of each stage that may be incompatible, each once."""
    found: list[str] = []
    for settings, train in stages:
        found += [*thinking_warnings(settings, train, plan), *prompt_warnings(train["prompt"][:], plan)]
        found += answer_warnings(settings, train[:ROWS_TRIED]["prompt"])
    for line in dict.fromkeys(found):
        console.print(f"warning: {line}", style="yellow", markup=False)


def prompt_warnings(
    prompts: Sequence[Messages], plan: ExpansionPlan, row_numbers: Sequence[int] | None = None
) -> Iterator[str]:
    """A line for each reason why the rendered prompts may be wrong; `row_numbers` are those of their rows."""
    tokenizer, tags = plan.tokenizer, think_tags(plan.tokenizer, plan.layout)
    if not begins_answer(tokenizer, tags):
        yield "the prompt opens no turn for the answer: add one under add_generation_prompt to the chat template"
    shown = zip(chat_texts(tokenizer, prompts[:ROWS_TRIED]), prompts, strict=False)
    messages = ((text, each) for text, prompt in shown for each in prompt if each["role"] != "assistant")
    left_out = (each for text, each in messages if _unspaced(each["content"]) not in _unspaced(text))
    if (message := next(left_out, None)) is not None:
        shown_message = f"the {message['role']}'s message {short_text(message['content'])!r}"
        yield f"the chat template leaves out {shown_message}: use another template"
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special} - set(tags)
    pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")
    matches = enumerate(pattern.search(conversation_text(prompt)) for prompt in prompts)
    found = {index: match[0] for index, match in matches if match is not None}
    if found:
        problems = pluralize(len(found), "problem holds", "problems hold")
        where = "" if row_numbers is None else f" ({rows_in_words(sorted(row_numbers[index] for index in found))})"
        token = next(iter(found.values()))
        yield f"{problems} special tokens of the model{where}, such as {token}, which end or begin a turn: remove them"


def _unspaced(text: str) -> str:
    return "".join(text.split())


def thinking_warnings(settings: RunSettings, rows: Dataset, plan: ExpansionPlan) -> Iterator[str]:
    """A line for each reason why a stage with reasoning tokens, or an open think tag in its prompt, would not think."""
    opened, closed = settings.model.think_tags
    prompt_ids = chat_ids(plan.tokenizer, rows[:ROWS_TRIED]["prompt"])
    openers = [thinking_opener(ids, plan.layout) for ids in prompt_ids]
    if plan.layout.size:
        found = [opening_warning(plan, ids, opener) for ids, opener in zip(prompt_ids, openers, strict=True)]
        shown = settings.warmup.max_steps > 0 and opened in warmup_form(settings, rows)  # with tags that are tokens
        from_a_run = run_folder_of(Path(settings.model.name)) is not None
        shown |= from_a_run and plan.layout.think_open_id not in plan.tag_pieces
        if None not in found and (not shown or "nobody" in openers):
            yield f"model.reasoning_vocab_size: {found[0]}"
    if plan.layout.size or "template" in openers:
        other = "its tags as model.think_tags" if plan.layout.size else "dataset.open_thinking=model"
        for reward, thinking, plain in format_scores(settings.rewards.functions, reward_context(settings), rows[0]):
            if thinking <= 0 and thinking < plain:
                yield (
                    f"reward {reward.name} gives {thinking:g} to all turns that think between {opened} and {closed}: "
                    f"use a format reward that allows thinking, such as think_format, or {other}"
                )


def warmup_form(settings: RunSettings, rows: Dataset) -> str:
    """The template of the worked answers of a warm-up, with fields `{reasoning}` and `{answer}`."""
    trial = [dict(row) for row in rows.select(range(min(ROWS_TRIED, len(rows))))]
    forms = example_forms(settings.model.think_tags)
    return highest_reward_form(settings.rewards.functions, reward_context(settings), forms, trial)


def asks_to_think(
    prompts: Sequence[Messages], tags: tuple[str, str], rewards: RewardSettings | None = None, row: Any = None
) -> bool:
    """Whether a run without copies should think: a prompt has the opening tag, or a reward favours it in a `row`."""
    if any(tags[0] in message["content"] for prompt in prompts[:ROWS_TRIED] for message in prompt):
        return True
    scores = format_scores(rewards.functions, dummy_context(tags), row) if rewards is not None else ()
    return any(thinking > plain for _, thinking, plain in scores)


def thinking_opener(prompt_ids: list[int], layout: VocabLayout) -> ThinkingOpener:
    """Who opens the thinking of a completion; "nobody" if the template closes it at once."""
    if region_of_next(torch.tensor([prompt_ids]), layout)[0] == THINKING:
        return "template"
    return "nobody" if layout.think_close_id in prefilled_ids(prompt_ids, layout) else "model"


def opening_warning(plan: ExpansionPlan, prompt_ids: list[int], opener: ThinkingOpener) -> str | None:
    """Why nothing opens the thinking after a prompt, and a remedy; None if something does."""
    (tag, _), layout = think_tags(plan.tokenizer, plan.layout), plan.layout
    if opener == "nobody":
        return "the chat template closes the thinking at once: set another template with model.chat_template"
    is_new = layout.think_open_id in plan.tag_pieces
    mentioned = layout.think_open_id in prompt_ids or tag in str(plan.tokenizer.chat_template)
    if opener == "template" or not (is_new or (layout.size and not mentioned)):
        return None
    why = f"{tag} is new to this model" if is_new else f"no prompt and no template mentions {tag}"
    return f"nothing opens the thinking: {why}; set dataset.open_thinking=prefill"
