"""What `rlvr-vocab check` finds out, as plain data: the screen and the JSON file show the same facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rlvr_vocab.commands.check.distribution import Distribution
from rlvr_vocab.config.command_table import CheckSettings
from rlvr_vocab.config.sections import ModelSettings
from rlvr_vocab.data.answers import cell_text, decimal_comma, gold_text, unread_marker
from rlvr_vocab.data.duplicates import RepeatedProblem
from rlvr_vocab.data.load import DividedProblems, LoadReport
from rlvr_vocab.data.overlap import Match, NumberedText, OtherSet, find_overlap, read_other_set
from rlvr_vocab.data.reasoning_gym.tasks import GymProblems
from rlvr_vocab.data.rows import Problem, short_text
from rlvr_vocab.terminal import quiet_libraries
from rlvr_vocab.text import hidden_characters, visible_text
from rlvr_vocab.verify import check_golds, verify

if TYPE_CHECKING:
    from rlvr_vocab.runs.thinking import ThinkingOpener
    from rlvr_vocab.vocab.expand import ExpansionPlan

OnProgress = Callable[[int, int], None]
Messages = list[dict[str, str]]
HELD_OUT = "the held-out problems"
REASON_WIDTH = 100
QUANTILES = (0.5, 0.9, 0.95, 0.99)
LIMIT_STEP, LIMIT_KEEPS = 64, 0.99


@dataclass(frozen=True)
class ControlCharacter:
    """What a program should have read, rather than a space or a mark of typesetting, and the rows that hold it."""

    shown: str
    row_numbers: tuple[int, ...]


@dataclass(frozen=True)
class RowFacts:
    """`example`: row number, problem and answer, if any, of the first training problem, shortened; `likelier_format`:
    the answer format that nearly all answers seem to have instead of the one given; `decimal_comma`: an answer, where
    those of the column seem to have decimal commas."""

    columns: tuple[str, ...]
    mapped: dict[str, str | None]
    answer_format: str
    likelier_format: str | None
    decimal_comma: str | None
    example: tuple[int, str, str | None]
    report: LoadReport
    control_characters: tuple[ControlCharacter, ...]


@dataclass(frozen=True)
class DoubtfulGold:
    """A gold answer that the verifier has trouble with; `source` names its set where that is a separate eval set."""

    row_number: int
    source: str | None
    gold: str
    reason: str


@dataclass(frozen=True)
class GoldFacts:
    """`num_golds`: 0 in a set without answers; `unusable`: no answer can be compared with them; `by_text_only`: an
    answer must be written alike; `ambiguous`: they do not say whether they are mathematics, so the same holds;
    `own_scorers`: the tasks score answers themselves, and no verifier looks at these."""

    num_golds: int
    unusable: tuple[DoubtfulGold, ...]
    by_text_only: tuple[DoubtfulGold, ...]
    ambiguous: tuple[DoubtfulGold, ...]
    own_scorers: bool = False


@dataclass(frozen=True)
class SharedProblem:
    """A problem of an evaluation set that training has too, by the row numbers of both and their texts, shortened."""

    row_number: int
    train_row_number: int
    contained: float
    text: str
    train_text: str


@dataclass(frozen=True)
class OverlapFacts:
    """What training has of one evaluation set; `train_matches` counts the training problems behind the first two."""

    name: str
    num_problems: int
    num_trained: int
    train_matches: int
    same: tuple[SharedProblem, ...]
    nearly_same: tuple[SharedProblem, ...]
    other_numbers: tuple[SharedProblem, ...]


@dataclass(frozen=True)
class LengthFacts:
    """Tokens per prompt.

    Args:
        counts: Length -> number of prompts of that length, the shortest first.
        quantiles: Share of the prompts -> the length that so many do not exceed.
        suggested_limit: The smallest multiple of 64 that keeps at least 99 % of the prompts.
        left_out: How many it leaves out.
    """

    counts: dict[int, int]
    quantiles: dict[float, int]
    suggested_limit: int
    left_out: int

    @property
    def shortest(self) -> int:
        return next(iter(self.counts))

    @property
    def longest(self) -> int:
        return max(self.counts)


@dataclass(frozen=True)
class PromptFacts:
    """The first training prompt, rendered, and the lengths of all.

    Args:
        row_number: Of the problem whose prompt is shown.
        opener: Who opens the thinking: the template, the model, or nobody, as the template closes it at once.
        knows_tag: Whether the base model's tokenizer has the opening tag.
        doubts: Why prompts may not reach the model as they are meant, or nothing would open the thinking.
        context_length: Most positions that the model takes, where its configuration says so.
        max_completion: `model.generation_kwargs.max_new_tokens`, the completion limit of training.
    """

    model: str
    text: str
    tokens: int
    row_number: int
    opener: ThinkingOpener
    think_tag: str
    knows_tag: bool
    doubts: tuple[str, ...]
    context_length: int | None
    max_completion: int
    lengths: LengthFacts

    @property
    def fits(self) -> bool:
        """Whether the longest prompt leaves room for a whole completion."""
        return self.context_length is None or self.lengths.longest + self.max_completion <= self.context_length


@dataclass(frozen=True)
class CheckFacts:
    rows: RowFacts
    repeated: tuple[RepeatedProblem, ...]
    prompts: PromptFacts | None
    golds: GoldFacts
    overlaps: tuple[OverlapFacts, ...]
    distribution: Distribution


def row_facts(divided: DividedProblems, report: LoadReport) -> RowFacts:
    source, train_rows = divided.source, divided.train_rows
    columns, first = source.columns, divided.trained[0]
    answer = None if columns.answer is None else short_text(cell_text(first.solution))
    return RowFacts(
        columns=train_rows.columns,
        mapped={"problem": columns.problem, "answer": columns.answer, "reasoning": columns.reasoning},
        answer_format=source.answer_format,
        likelier_format=unread_marker([problem.solution for problem in train_rows.problems]),
        decimal_comma=decimal_comma([problem.solution for problem in train_rows.problems]),
        example=(first.row_number, short_text(first.text), answer),
        report=report,
        control_characters=tuple(control_characters(train_rows.problems)),
    )


def control_characters(problems: Sequence[Problem]) -> list[ControlCharacter]:
    """Controls of C0 and C1 in the problems, the most frequent first."""
    rows: dict[str, list[int]] = {}
    for problem in problems:
        for character in hidden_characters(problem.text):
            if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0:
                rows.setdefault(character, []).append(problem.row_number)
    found = [ControlCharacter(visible_text(character), tuple(numbers)) for character, numbers in rows.items()]
    return sorted(found, key=lambda control: (-len(control.row_numbers), control.shown))


def same_answers(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether the verifier takes either answer of each pair for the other."""
    there = verify([one for one, _ in pairs], [other for _, other in pairs])
    back = verify([other for _, other in pairs], [one for one, _ in pairs])
    return [bool(verdict.correct or reverse.correct) for verdict, reverse in zip(there, back, strict=True)]


def gold_facts(divided: DividedProblems, on_progress: OnProgress) -> GoldFacts:
    if isinstance(divided.source.generator, GymProblems):
        there = sum(problem.solution is not None for problem in divided.problems)
        return GoldFacts(there, (), (), (), own_scorers=True)
    has_answers, num_train = divided.source.columns.answer is not None, len(divided.train_rows.problems)
    problems = divided.problems if has_answers else ()
    golds = [gold_text(problem.solution) for problem in problems]
    found = check_golds(golds, on_progress)

    def doubtful(reasons: dict[int, str]) -> tuple[DoubtfulGold, ...]:
        return tuple(
            DoubtfulGold(
                row_number=problems[index].row_number,
                source=None if index < num_train else divided.source.eval_split,
                gold=short_text(cell_text(problems[index].solution)),
                reason=short_text(reason, REASON_WIDTH),
            )
            for index, reason in sorted(reasons.items())
        )

    return GoldFacts(len(golds), doubtful(found.unusable), doubtful(found.by_text_only), doubtful(found.ambiguous))


def held_out_overlap(divided: DividedProblems, on_progress: OnProgress) -> OverlapFacts:
    texts = [NumberedText(problem.row_number, problem.text) for problem in divided.reserved]
    return overlap_facts(HELD_OUT, divided.trained, texts, on_progress)


def other_set_overlap(divided: DividedProblems, other: OtherSet, on_progress: OnProgress) -> OverlapFacts:
    """Raises UserError where the other set cannot be read."""
    return overlap_facts(other.name, divided.trained, read_other_set(other), on_progress)


def overlap_facts(
    name: str, trained: Sequence[Problem], measured: Sequence[NumberedText], on_progress: OnProgress
) -> OverlapFacts:
    overlap = find_overlap([problem.text for problem in trained], [text for _, text in measured], on_progress)

    def shared(match: Match) -> SharedProblem:
        row_number, text = measured[match.measured]
        problem = trained[match.trained]
        return SharedProblem(
            row_number=row_number,
            train_row_number=problem.row_number,
            contained=round(match.contained, 4),
            text=short_text(text),
            train_text=short_text(problem.text),
        )

    return OverlapFacts(
        name=name,
        num_problems=overlap.num_measured,
        num_trained=overlap.num_trained,
        train_matches=len(overlap.trained),
        same=tuple(map(shared, overlap.same)),
        nearly_same=tuple(map(shared, overlap.nearly_same)),
        other_numbers=tuple(map(shared, overlap.other_numbers)),
    )


# The next two import torch and transformers, which take seconds, where they are called: a check without a model does
# not need them.
def prompt_plan(model: ModelSettings, settings: CheckSettings, prompts: Sequence[Messages]) -> ExpansionPlan:
    """What training would render these prompts with.

    Raises:
        UserError: the model cannot be had, or its tokenizer has no chat template.
    """
    from rlvr_vocab.runs.model import untrained_plan
    from rlvr_vocab.runs.prompts import require_chat_template
    from rlvr_vocab.runs.thinking import asks_to_think

    quiet_libraries()
    thinks = asks_to_think(prompts, model.think_tags, None, None)
    plan = untrained_plan(model, settings.seed, settings.dataset, thinks)
    require_chat_template(plan)
    return plan


def prompt_facts(
    model: ModelSettings, plan: ExpansionPlan, prompts: Sequence[Messages], row_numbers: Sequence[int], trained: int
) -> PromptFacts:
    """Render all prompts, count the tokens of the first `trained` ones, and show the first.

    Raises:
        UserError: the chat template refuses one of them.
    """
    from rlvr_vocab.runs.prompts import prompt_warnings
    from rlvr_vocab.runs.thinking import opening_warning, thinking_opener
    from rlvr_vocab.vocab.chat_template import chat_ids, chat_texts

    ids = chat_ids(plan.tokenizer, prompts, row_numbers)
    opener = thinking_opener(ids[0], plan.layout)
    doubts = [*prompt_warnings(prompts, plan, row_numbers), opening_warning(plan, ids[0], opener)]
    return PromptFacts(
        model=model.name,
        text=chat_texts(plan.tokenizer, prompts[:1])[0],
        tokens=len(ids[0]),
        row_number=row_numbers[0],
        opener=opener,
        think_tag=model.think_tags[0],
        knows_tag=plan.layout.think_open_id not in plan.tag_pieces,
        doubts=tuple(doubt for doubt in doubts if doubt is not None),
        context_length=plan.context_length,
        max_completion=model.generation_kwargs["max_new_tokens"],
        lengths=length_facts([len(each) for each in ids[:trained]]),
    )


def length_facts(lengths: Sequence[int]) -> LengthFacts:
    """Facts about at least one length."""
    quantiles = np.quantile(lengths, [*QUANTILES, LIMIT_KEEPS], method="inverted_cdf").tolist()
    limit = ceil(quantiles.pop() / LIMIT_STEP) * LIMIT_STEP
    return LengthFacts(
        counts=dict(sorted(Counter(lengths).items())),
        quantiles=dict(zip(QUANTILES, quantiles, strict=True)),
        suggested_limit=limit,
        left_out=sum(length > limit for length in lengths),
    )
