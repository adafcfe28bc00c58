"""The rewards of a run: held-out grader, example turns, dry runs, warnings, thought reading. Imports no torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_vocab.config.command_settings import EvaluateSettings
from rlvr_vocab.config.recorded import reward_of
from rlvr_vocab.config.sections import RunSettings, stages_of
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.rows import Messages
from rlvr_vocab.data.source import FROM_PYTHON
from rlvr_vocab.errors import UserError
from rlvr_vocab.files import atomic_write, json_text
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.record.files import COMPLETIONS, INITIAL_MODEL, THOUGHT_READING
from rlvr_vocab.record.results import is_right
from rlvr_vocab.rewards.build import RewardContext, build_rewards, declared, logged_names, required_columns
from rlvr_vocab.rewards.grader import Grader, GraderSpec, grader_spec, weighted_sum
from rlvr_vocab.rewards.guard import Reward, dry_run, trial_columns
from rlvr_vocab.rewards.library.answers import sources_of
from rlvr_vocab.rewards.reward import THINK_TAGS, RewardSpec, Score, is_user_code, parameters_of
from rlvr_vocab.rewards.thoughts import ThoughtIds, read_thoughts
from rlvr_vocab.text import short_text
from rlvr_vocab.verify.boxed_answer import SOURCES
from rlvr_vocab.vocab.layout import LAYOUT_FILE, VocabLayout

if TYPE_CHECKING:
    from datasets import Dataset
    from rich.console import Console

ROWS_TRIED = 8  # of a problem set, before training
_COMPLETIONS_READ, _SECONDS_READING = 256, 60.0  # to measure at the end of a run what a reward reads of the thought
_GOLDS_GRADED = 1_000
# The columns of the gold answers, and the remedy if a reward function lacks them.
GOLD_COLUMNS = ("solution", "answer")
NAME_GOLD_ANSWERS = "name their column with dataset.columns.answer"
_BOXED = "\\boxed{{{answer}}}"
_ANSWERS = {"box": "\\boxed{…}", "answer_tag": "<answer>…</answer>", "hash": "#### …", "phrase": "The answer is …"}


def reward_context(settings: RunSettings) -> RewardContext:
    """The facts of a run that reward functions can request."""
    limit = settings.training.grpo["max_completion_length"]
    return RewardContext(settings.model.think_tags, limit, settings.dataset.decimal)


def dummy_context(think_tags: tuple[str, str] = THINK_TAGS) -> RewardContext:
    """The facts of a run for a dry run without one."""
    return RewardContext(think_tags, max_completion_length=1_000)


def grader_of_run(
    settings: RunSettings, asked: Sequence[RewardSpec] | None = None, threshold: float | None = None
) -> GraderSpec:
    """The grader of a run's held-out answers: `asked`, `evaluation.grader`, or by its last stage."""
    if asked is None:
        asked = settings.evaluation.grader
        threshold = settings.evaluation.threshold if threshold is None else threshold
    return grader_spec(stages_of(settings)[-1].run.rewards.functions, asked, threshold)


def solved_by(settings: RunSettings) -> tuple[str, float] | None:
    """The logged name and threshold of the training reward that measures correctness; None without one."""
    functions = [replace(spec, weight=1.0, adaptive=None) for spec in settings.rewards.functions]
    grader = grader_spec(settings.rewards.functions, settings.evaluation.grader, settings.evaluation.threshold)
    if len(grader.functions) > 1 or grader.threshold is None or grader.functions[0] not in functions:
        return None
    return logged_names(functions)[functions.index(grader.functions[0])], grader.threshold


def grader_of_warmup(settings: RunSettings) -> GraderSpec:
    """The grader of worked answers: the run's, or the verifier if the run's has no threshold."""
    spec = grader_of_run(settings)
    anywhere = RewardSpec("accuracy", params={"answer_from": list(SOURCES)})
    return spec if spec.threshold is not None else GraderSpec((anywhere,), 1.0)


def grader_of_checkpoint(settings: EvaluateSettings, run: RunSettings | None) -> GraderSpec:
    """The grader of a checkpoint's answers: the requested one, else that of its run."""
    rewards = settings.rewards.functions
    if run is not None and not rewards and not rewards_in_script(run):
        return grader_of_run(run, settings.grader, settings.threshold)
    usual = (RewardSpec(reward_of(settings.dataset.name)),)
    return grader_spec(rewards or usual, settings.grader, settings.threshold)


def rewards_in_script(run: RunSettings | None) -> list[str]:
    """The rewards of a run from Python that only its script has, as `rewards=[…]` would name them."""
    functions = () if run is None else stages_of(run)[-1].run.rewards.functions
    return [each.name.removeprefix(FROM_PYTHON) for each in functions if each.name.startswith(FROM_PYTHON)]


def needs_gold_answers(functions: Sequence[RewardSpec]) -> bool:
    """Whether a function compares with the gold answer through the verifier."""
    return any(declared(spec).verifies for spec in functions)


# --- example turns ---


def example_forms(think_tags: tuple[str, str]) -> list[str]:
    """Templates of turns with fields `{reasoning}` and `{answer}`, in the formats that rewards and guides require."""
    opened, closed = (tag.replace("{", "{{").replace("}", "}}") for tag in think_tags)
    thought = f"{opened}{{reasoning}}{closed}"
    xml = "<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>"
    forms = [thought + _BOXED, f"{thought}<answer>{{answer}}</answer>", xml, xml.replace("{answer}", _BOXED)]
    one_line, on_lines = xml.replace("\n", ""), f"{thought}\n<answer>\n{{answer}}\n</answer>"
    return [*forms, *(f"{form}\n" for form in forms), one_line, on_lines]


def gold_forms(think_tags: tuple[str, str]) -> list[str]:
    """The same, and templates for the other places where `answer_from` can find an answer."""
    forms = example_forms(think_tags)
    others = [f"\n{_ANSWERS[place].replace('…', '{answer}')}" for place in ("hash", "phrase")]
    return [*forms, *(forms[0].replace(_BOXED, other) for other in others)]


def example_turns(forms: Iterable[str], row: Mapping[str, Any]) -> list[str]:
    """Correct answers to a problem; a gold answer that is not text is written as JSON, a missing one as `…`."""
    return [form.format(reasoning="Work it out.", answer=cell_text(row.get("solution")) or "…") for form in forms]


def highest_reward_form(
    functions: Sequence[RewardSpec], context: RewardContext, forms: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> str:
    """The template whose example turns have the highest weighted sum of rewards; ties go to the first."""
    rewards = [each for each in build_rewards(functions, context) if each.traits.dry_run]

    def total(form: str) -> float:
        turns = [turn for row in rows for turn in example_turns([form], row)]
        scores = [_values(reward, rows, turns) for reward in rewards]
        return sum(weighted_sum(rewards, of_turn) or 0.0 for of_turn in zip(*scores, strict=True))

    return max(forms, key=total)


def gold_errors(spec: GraderSpec, context: RewardContext, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How a grader with a threshold errs on gold answers in made-up turns like `turn`, those of the first 1,000 rows.

    rejected: for each row whether its `solution` is not right; accepted: whether that of the next row is, where it is
    another text; examples: such pairs.
    """
    rows = [row for row in rows if row["solution"] is not None][:_GOLDS_GRADED]
    form = highest_reward_form(spec.functions, context, gold_forms(context.think_tags or THINK_TAGS), rows[:ROWS_TRIED])
    grader, pairs = Grader(spec, context), [(row, row) for row in rows]
    pairs += [
        each for each in zip(rows, [*rows[1:], *rows[:1]], strict=True) if each[0]["solution"] != each[1]["solution"]
    ]
    turns = [turn for _, other in pairs for turn in example_turns([form], other)]
    grades = grader.grades([row for row, _ in pairs], turns, [[] for _ in turns])
    right = [bool(is_right(grade.score, spec.threshold)) for grade in grades]
    wrong = [pair for pair, taken in zip(pairs[len(rows) :], right[len(rows) :], strict=True) if taken]
    return {
        "rejected": [not each for each in right[: len(rows)]],
        "accepted": right[len(rows) :],
        "examples": [f"{short_text(other['solution'])} for {short_text(row['solution'])}" for row, other in wrong[:3]],
        "turn": turns[0],
    }


def _values(reward: Reward, rows: Sequence[Mapping[str, Any]], turns: Sequence[str]) -> list[float | None]:
    columns = trial_columns(rows, [[{"role": "assistant", "content": turn}] for turn in turns])
    return [score.value for score in reward.explain(**columns)]


def format_scores(
    functions: Sequence[RewardSpec], context: RewardContext, row: Mapping[str, Any]
) -> Iterator[tuple[Reward, float, float]]:
    """Each format reward with its highest scores for turns with and without thinking between the tags; NaN for none."""
    tags = context.think_tags or THINK_TAGS
    others = example_turns(["{answer}", _BOXED, "<answer>{answer}</answer>", *example_forms(THINK_TAGS)], row)
    plain = [turn for turn in others if tags[0] not in turn]
    thinking = [turn for turn in example_turns(example_forms(tags), row) if tags[0] in turn]
    thinking += [f"{tags[0]}\nWork it out.\n{tags[1]}\n{turn}" for turn in plain]
    for spec, reward in zip(functions, build_rewards(functions, context), strict=True):
        if declared(spec).is_format and declared(spec).dry_run and reward.weight > 0:
            scores = (_values(reward, [row] * len(turns), turns) for turns in (thinking, plain))
            best, best_plain = (max((each for each in part if each is not None), default=math.nan) for part in scores)
            yield reward, best, best_plain


# --- before a model is loaded ---


def dry_run_rewards(settings: RunSettings, rows: Dataset) -> None:
    """Score correct answers to the first rows of a run with its rewards; UserError if they give no valid scores."""
    functions = settings.rewards.functions
    if all(function.weight == 0 for function in functions):
        raise UserError("rewards: every weight is 0, so nothing could be learned: give a function another weight")
    scores = dry_run_functions(settings, functions, rows, "the problems have")
    unweighted = [name for name, spec in zip(logged_names(functions), functions, strict=True) if spec.weight == 0]
    tried = {name: each for name, each in scores.items() if name not in unweighted}
    if tried and all(score.value is None for each in tried.values() for score in each):
        given = "; ".join(f"{name} gave None ({each[0].reason or 'no reason'})" for name, each in tried.items())
        raise UserError(f"rewards: nothing could be learned, the first problems have no score: {given}")


def dry_run_functions(
    settings: RunSettings, functions: Sequence[RewardSpec], rows: Dataset, there: str
) -> dict[str, list[Score]]:
    """The scores of right answers to the first rows, by reward; raises UserError as `dry_run_rewards` does."""
    require_reward_columns(functions, rows.column_names, there)
    trial = [dict(row) for row in rows.select(range(min(ROWS_TRIED, len(rows))))]
    forms = example_forms(settings.model.think_tags)
    form = forms[2] if any(declared(spec).answer_in == "xml" for spec in functions) else forms[0]
    turns = [[{"role": "assistant", "content": turn}] for row in trial for turn in example_turns([form], row)]
    rewards = build_rewards(functions, reward_context(settings))
    if settings.environment is not None:  # none has acted yet
        rewards = [each for each in rewards if "environments" not in parameters_of(each.function)[0]]
    return {each.name: dry_run(each, trial, turns) for each in rewards if each.traits.dry_run}


def require_reward_columns(functions: Sequence[RewardSpec], columns: Sequence[str], there: str) -> None:
    """Raises UserError if a reward function requires a column that is missing from `columns`."""
    for spec in functions:
        for column in required_columns(spec):
            if column not in columns:
                listed = ", ".join(name for name in columns if name != "prompt") or "none"
                remedies = [NAME_GOLD_ANSWERS] if column in GOLD_COLUMNS else []
                if is_user_code(spec.name):
                    parameter = f"give the parameter as rewards=[{{name: …, params: {{{column}: …}}}}]"
                    remedies = [*(remedies or ["add the column"]), parameter]
                hint = f"; {', or '.join(remedies)}" if remedies else ""
                raise UserError(f"reward {spec.name} needs a column {column!r}; {there} {listed}{hint}")


def answer_warnings(settings: RunSettings, prompts: Sequence[Messages]) -> Iterator[str]:
    """A line for each reason why correct answers would be missed or never given; none if a warm-up shows the format."""
    if settings.warmup.max_steps:
        return
    functions = settings.rewards.functions
    if settings.model.tiny is not None and any(declared(spec).grades or declared(spec).shapes for spec in functions):
        remedy = "set warmup.max_steps=400, with worked solutions in dataset.columns.reasoning"
        yield f"model=tiny has random weights and never answers correctly: {remedy}"
    messages = [message for prompt in prompts for message in prompt]
    asked = "\n".join(each["content"] for each in messages).lower()
    # A prompt may request a box in other words; a problem that mentions a box does not request one.
    if any("box" in each["content"].lower() for each in messages if each["role"] != "user"):
        asked += _BOXED
    for spec in functions:
        is_xml = declared(spec).answer_in == "xml"
        if not (spec.weight and (declared(spec).verifies or is_xml)):  # other rewards need no marked answer
            continue
        places = ("answer_tag",) if is_xml else sources_of(spec.params.get("answer_from", "box"))
        if not any(_ANSWERS[place].partition("…")[0].rstrip("{ ").lower() in asked for place in places):
            where = " or ".join(_ANSWERS[place] for place in places)
            yield f"reward {spec.name} looks for {where}: ask for it in dataset.system_prompt"


# --- after training ---


def thought_ids(model: Path) -> ThoughtIds | None:
    """The think tags and the tokenizer of a model folder, read without Transformers; None where it has none."""
    file = model / "tokenizer.json"
    if not (file.is_file() and (model / LAYOUT_FILE).is_file()):
        return None
    from tokenizers import Tokenizer

    encode, layout = Tokenizer.from_file(str(file)).encode, VocabLayout.load(model)
    opened, closed = layout.think_open_id, layout.think_close_id
    return ThoughtIds(opened, closed, lambda text: encode(text, add_special_tokens=False).ids)


def write_thought_reading(settings: RunSettings, problems: Dataset, console: Console) -> None:
    """Write `thought_reading.json` by the last recorded completions that close a thought; a failure is only a warning.

    Rewards that declare to read nothing, or are costly, are not called.
    """
    folder, tags, rows, answered = settings.output_dir, settings.model.think_tags, list[Any](), list[tuple[int, str]]()
    rewards = build_rewards(settings.rewards.functions, reward_context(settings))
    files, recorded = CompletionFiles(folder / COMPLETIONS), list[SampledCompletion]()
    steps = files.steps if any(each.reads_thought != "nothing" for each in rewards) else []
    asked = {prompt[-1]["content"].strip(): place for place, prompt in enumerate(problems["prompt"] if steps else ())}

    @functools.cache
    def problem(prompt: str) -> dict[str, Any]:
        found = max((text for text in asked if text in prompt), key=len, default=None)
        return {} if found is None else problems[asked[found]]

    try:
        for step in reversed(steps):
            if len(recorded) < _COMPLETIONS_READ:
                recorded = [each for each in files.read(step) if each.messages or tags[1] in each.completion] + recorded
        for each in recorded[-_COMPLETIONS_READ:]:
            if columns := problem(each.prompt):
                turn = list(each.messages) or [{"role": "assistant", "content": each.completion}]
                given = {"prompts": columns["prompt"], "completions": turn, "completion_ids": list(each.completion_ids)}
                rows.append({name: cell for name, cell in columns.items() if name != "prompt"} | given)
                answered.append((each.step, each.prompt))
        ids = thought_ids(folder / INITIAL_MODEL)
        found = read_thoughts(rewards, rows, answered, tags, ids, declared_nothing=False, seconds=_SECONDS_READING)
        atomic_write(folder / THOUGHT_READING, json_text(found))
    except UserError as error:
        console.print(f"warning: what the rewards read of the thought was not measured: {error}", markup=False)
