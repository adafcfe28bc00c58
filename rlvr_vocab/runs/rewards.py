"""The reward functions of a run: the grader of its held-out answers, and their dry run before a model is loaded.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_vocab.config.command_table import EvaluateSettings
from rlvr_vocab.config.recorded import reward_of
from rlvr_vocab.config.sections import RewardSettings, RunSettings
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.rows import Messages
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards, find_function, logged_names, required_columns
from rlvr_vocab.rewards.grader import Grader, GraderSpec, grader_spec
from rlvr_vocab.rewards.guard import dry_run, dummy_ids
from rlvr_vocab.rewards.library.answers import sources_of
from rlvr_vocab.rewards.reward import RewardSpec, Score, traits_of
from rlvr_vocab.rewards.turns import THINK_TAGS
from rlvr_vocab.runs.record import run_of_checkpoint
from rlvr_vocab.verify.boxed_answer import SOURCES

if TYPE_CHECKING:
    from datasets import Dataset

    from rlvr_vocab.vocab.layout import VocabLayout

_ROWS = 8
# The columns of the gold answers, and what to do where a reward function lacks them.
GOLD_COLUMNS = ("solution", "answer")
NAME_GOLD_ANSWERS = "name their column with dataset.columns.answer"
_STATED = {"box": "\\boxed{%s}", "answer_tag": "<answer>%s</answer>", "hash": "#### %s", "phrase": "The answer is %s."}


def reward_context(settings: RunSettings, layout: VocabLayout | None = None) -> RewardContext:
    """The facts of a run that reward functions may ask for; without a layout, no ids of its vocabulary."""
    return RewardContext(
        think_tags=settings.model.think_tags,
        standard_size=None if layout is None else layout.standard_size,
        think_open_id=None if layout is None else layout.think_open_id,
        think_close_id=None if layout is None else layout.think_close_id,
        max_completion_length=settings.training.grpo["max_completion_length"],
    )


def dummy_context(context: RewardContext) -> RewardContext:
    """The context with values for facts that are not known before a model is loaded: a dry run takes any."""
    return RewardContext(context.think_tags or THINK_TAGS, 1_000, 1, 2, context.max_completion_length or 1_000)


def grader_of_run(settings: RunSettings) -> GraderSpec:
    """The grader of a run's held-out answers: `evaluation.grader`, else that of the rewards of its last stage."""
    last = settings.stages[-1].run if settings.stages else settings
    return grader_spec(last.rewards.functions, settings.evaluation.grader, settings.evaluation.threshold)


def solved_by(settings: RunSettings) -> tuple[str, float] | None:
    """The reward that trains and tells right from wrong, by its logged name, and its threshold; None without any."""
    functions = [replace(spec, adaptive=None) for spec in settings.rewards.functions]
    grader = grader_spec(functions, settings.evaluation.grader, settings.evaluation.threshold)
    if not grader.takes_one_as_it_is or grader.threshold is None or grader.functions[0] not in functions:
        return None
    return logged_names(functions)[functions.index(grader.functions[0])], grader.threshold


def grader_of_warmup(settings: RunSettings) -> GraderSpec:
    """The grader of worked answers: the run's, or the verifier where that calls none right."""
    spec = grader_of_run(settings)
    anywhere = RewardSpec("accuracy", params={"answer_from": list(SOURCES)})
    return spec if spec.threshold is not None else GraderSpec((anywhere,), 1.0)


def grader_of_checkpoint(settings: EvaluateSettings, checkpoint: Path) -> GraderSpec:
    """The grader of a checkpoint's answers: the one asked for, else that of its run."""
    run = run_of_checkpoint(checkpoint)
    usual = (RewardSpec(reward_of(settings.dataset.name)),) if run.rewards is None else run.rewards.functions
    rewards = settings.rewards.functions or usual
    asked, threshold = settings.grader, settings.threshold
    if run.evaluation is not None and not settings.rewards.functions and asked is None:
        asked = run.evaluation.grader
        threshold = run.evaluation.threshold if threshold is None else threshold
    return grader_spec(rewards, asked, threshold)


def needs_gold_answers(rewards: RewardSettings) -> bool:
    """Whether a function compares with the gold answer through the verifier."""
    return any(traits_of(find_function(spec.name)).verifies for spec in rewards.functions)


def dry_run_rewards(settings: RunSettings, rows: Dataset) -> None:
    """Score right answers to the first rows of a run with its rewards.

    Raises:
        UserError: a function needs a column that is not there, raises, or returns something else than scores; or none
            that has a weight gives a score.
    """
    functions = settings.rewards.functions
    if all(function.weight == 0 for function in functions):
        raise UserError("rewards: every weight is 0, so nothing could be learned: give a function another weight")
    weighted = {name for name, each in zip(logged_names(functions), functions, strict=True) if each.weight != 0}
    scores = _dry_run(settings, settings.rewards, rows, "the problems have")
    require_a_score({name: each for name, each in scores.items() if name in weighted})


def dry_run_grader(settings: RunSettings, grader: RewardSettings, rows: Dataset) -> None:
    """As `dry_run_rewards`, for the grader and the held-out problems."""
    _dry_run(settings, grader, rows, "the held-out problems have")


def _dry_run(settings: RunSettings, rewards: RewardSettings, rows: Dataset, there: str) -> dict[str, list[Score]]:
    require_reward_columns(rewards, rows.column_names, there)
    trial = [dict(row) for row in rows.select(range(min(_ROWS, len(rows))))]
    turns = [gold_completion(row.get("solution"), rewards, settings.model.think_tags) for row in trial]
    built = build_rewards(rewards.functions, dummy_context(reward_context(settings)))
    return {each.name: dry_run(each, trial, turns) for each in built if traits_of(each.function).dry_run}


def require_a_score(scores: Mapping[str, Sequence[Score]]) -> None:
    """Raises UserError where no reward, by name, scored any row of its trial."""
    if scores and all(score.value is None for each in scores.values() for score in each):
        rows = len(next(iter(scores.values())))
        reasons = {name: next((score.reason for score in each if score.reason), "") for name, each in scores.items()}
        given = "; ".join(f"{name} gave None{f' ({reason})' if reason else ''}" for name, reason in reasons.items())
        raise UserError(f"rewards: nothing could be learned, the first {rows} problems have no score: {given}")


def require_reward_columns(rewards: RewardSettings, columns: Sequence[str], there: str) -> None:
    """Raises UserError where a reward function cannot do without a column that is not among `columns`."""
    for spec in rewards.functions:
        for column in required_columns(spec):
            if column not in columns:
                listed = ", ".join(name for name in columns if name != "prompt") or "none"
                hint = f"; {NAME_GOLD_ANSWERS}" if column in GOLD_COLUMNS else ""
                raise UserError(f"reward {spec.name} needs a column {column!r}; {there} {listed}{hint}")


def answer_warnings(settings: RunSettings, prompts: Sequence[Messages]) -> Iterator[str]:
    """Why a right answer would not be found, or never be given, a line each; none where a warm-up shows the form."""
    if settings.warmup.max_steps:
        return
    traits = [traits_of(find_function(spec.name)) for spec in settings.rewards.functions]
    if settings.model.tiny is not None and any(each.grades or each.shapes for each in traits):
        yield "model=tiny has random weights and never answers right: set warmup.max_steps=400"
    messages = [message for prompt in prompts for message in prompt]
    asked = "\n".join(each["content"] for each in messages).lower()
    # A user's message may be about any box.
    if any("box" in each["content"].lower() for each in messages if each["role"] != "user"):
        asked += _mark("box")
    shown = [turn.answer.lower() for turn in settings.dataset.examples or ()]
    for spec, each in zip(settings.rewards.functions, traits, strict=True):
        if not (spec.weight and (each.verifies or each.answer_in == "xml")):  # others find it without a mark too
            continue
        places = ("answer_tag",) if each.answer_in == "xml" else sources_of(spec.params.get("answer_from", "box"))
        if not all(any(_mark(place) in text for place in places) for text in (asked, *shown)):
            where = " or ".join(_STATED[place] % "…" for place in places)
            yield f"reward {spec.name} looks for {where}: ask for it in dataset.system_prompt and dataset.examples"


def _mark(place: str) -> str:
    """The text before the answer in a place, in lower case."""
    return _STATED[place].partition("%s")[0].rstrip("{ ").lower()


def gold_completion(gold: Any, rewards: RewardSettings, think_tags: tuple[str, str]) -> list[dict[str, Any]]:
    r"""An assistant's turn that is as right as can be: some thinking, then the gold answer where rewards look for it.

    Where a reward wants XML the turn has reasoning and answer elements, else thinking and a `\boxed{…}`. A gold answer
    that is no text is written as JSON, and a missing one as `…`.
    """
    solution = cell_text(gold) or "…"
    wanted_in = [(spec, traits_of(find_function(spec.name)).answer_in) for spec in rewards.functions]
    sources = [sources_of(spec.params.get("answer_from", "box")) for spec, place in wanted_in if place == "box"]
    if any(place == "xml" for _, place in wanted_in):
        answer = _stated(solution, [each for each in sources if "answer_tag" not in each]) or solution
        text = f"<reasoning>\nWork it out.\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
    else:
        opened, closed = think_tags
        answer = _stated(solution, sources or [("box",)])
        text = f"{opened}\nWork it out.\n{closed}\n{answer}"
    return [{"role": "assistant", "content": text}]


def highest_reward_template(settings: RunSettings, rows: Dataset) -> str:
    """A turn with places for `{reasoning}` and `{answer}`, in the form that the rewards of a run pay best.

    Thinking and a box where nothing is paid better.
    """
    specs = tuple(replace(spec, adaptive=None) for spec in settings.rewards.functions)
    total = Grader(GraderSpec(specs, None), dummy_context(reward_context(settings)))
    trial = [dict(row) for row in rows.select(range(min(_ROWS, len(rows))))]

    def paid(form: str) -> float:
        turns = [form.format(reasoning="Work it out.", answer=cell_text(row.get("solution"))) for row in trial]
        return sum(grade.score or 0.0 for grade in total.grades(trial, turns, dummy_ids(turns)))

    return max(turn_forms(settings.model.think_tags), key=paid)  # the first of equals


def turn_forms(think_tags: tuple[str, str]) -> list[str]:
    """Turns with places for `{reasoning}` and `{answer}`, in the forms that rewards and guides ask for."""
    opened, closed = (tag.replace("{", "{{").replace("}", "}}") for tag in think_tags)
    thought = f"{opened}{{reasoning}}{closed}"
    xml = "<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>"
    boxed = "\\boxed{{{answer}}}"
    forms = [f"{thought}{boxed}", f"{thought}<answer>{{answer}}</answer>", xml, xml.replace("{answer}", boxed)]
    return [
        *forms,
        *(f"{form}\n" for form in forms),
        xml.replace("\n", ""),
        f"{thought}\n<answer>\n{{answer}}\n</answer>",
    ]


def _stated(solution: str, sources: Sequence[Sequence[str]]) -> str:
    """The gold answer at each place where a reward looks first."""
    return "\n".join(_STATED[place] % solution for place in dict.fromkeys(each[0] for each in sources))
