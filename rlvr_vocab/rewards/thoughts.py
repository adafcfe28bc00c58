"""Does a reward read the thought? Exchange the thought, keep the answer, score again, and see which scores move.

The share of the variance within a problem that belongs to the thought is Jansen's total-effect index (1999):

    S = (mean of (r(answer, thought) - r(answer, another thought))² / 2, less that of a repeated call) / Var(r)

It is 1 for r = f(thought), 0 for r = f(answer), and Var f / (Var f + Var g) for r = f(thought) + g(answer).
"""

from __future__ import annotations

import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward, dummy_trainer
from rlvr_vocab.rewards.reward import MAY_MOVE, assistant_text, content_text, is_assistant, parameters_of
from rlvr_vocab.statistics import mean_interval, ratio_interval

# The thought of another completion of the problem, none, its words in another order, those of the gold solution.
VERSIONS = ("exchanged", "blank", "shuffled", "gold")
_EXCHANGES, _BATCH = 4, 64  # of a completion at most; completions scored together, and the rest of their problem
# Words of a thought; not those of markup, as in <answer> and \boxed{42}.
_WORD = re.compile(r"(?<![\w\\<])(?<!</)\w+")


class ThoughtIds(NamedTuple):
    """The ids of the think tags in `completion_ids`, and how a text is encoded."""

    opened: int
    closed: int
    encode: Callable[[str], list[int]]


@dataclass(frozen=True)
class RewardReading:
    """Whether one reward reads the thought, in figures and in a sentence; `reads` is None where it was not measured.

    `moved` is the share of scores that each version moves, and `again` a repeated call; None for one not tried.
    `share` of the variance within problems belongs to the thought, `low` to `high` is its 95 % interval.
    `agrees`: nothing moved that `declared` excludes.
    """

    name: str
    declared: str | None
    sentence: str
    reads: bool | None = None
    agrees: bool = True
    moved: Mapping[str, float | None] = field(default_factory=dict)
    share: float | None = None
    low: float | None = None
    high: float | None = None
    completions: int = 0
    measured: bool = False


@dataclass(frozen=True)
class ThoughtReading:
    """The readings of all rewards; in `left_out` completions no turn thinks, or one does not close a single thought."""

    completions: int
    problems: int
    left_out: int
    seconds: float
    rewards: Sequence[RewardReading]


def read_thoughts(
    rewards: Sequence[Reward],
    rows: Sequence[Mapping[str, Any]],
    problems: Sequence[Hashable],
    think_tags: tuple[str, str],
    ids: ThoughtIds | None = None,
    skipped: Mapping[str, str] = MappingProxyType({}),
    seconds: float = math.inf,
    state: Any = None,
) -> ThoughtReading:
    """Score completions with other thoughts, by each reward that is not `skipped` (name and why) for some `seconds`.

    rows: the columns that rewards take by name; problems: what each row answers, equal for those to be exchanged.
    ids: without, functions get no `completion_ids`. state: of the trainer, for functions that take it.
    All thoughts of a completion with tools are exchanged as one, the nth by the nth, or the last, of another's.
    """
    started, groups = time.monotonic(), defaultdict(list)
    for problem, row in zip(problems, rows, strict=True):
        if (case := _case(row, think_tags, ids)) is not None:
            groups[problem].append(case)
    trainer = dummy_trainer() | ({} if state is None else {"trainer_state": state})
    readings = []
    for reward in rewards:
        found: RewardReading | str = skipped.get(reward.name, "")
        if reward.name not in skipped:
            found = _reading(reward, [*groups.values()], ids, trainer, time.monotonic() + seconds)
        readings.append(_not_measured(reward, found) if isinstance(found, str) else found)
    cases = sum(map(len, groups.values()))
    return ThoughtReading(cases, len(groups), len(rows) - cases, round(time.monotonic() - started, 2), readings)


def costly(reward: Reward) -> str:
    """Why to score with a reward only where the user asks for it; empty for most."""
    traits = reward.traits
    return "it sends completions to a server" if traits.sends else "it runs programs" if traits.runs_programs else ""


def _not_measured(reward: Reward, why: str) -> RewardReading:
    """The declaration of a reward alone."""
    declares = (
        f"declares that it reads {_of_thought(reward.reads_thought)}" if reward.reads_thought else "declares nothing"
    )
    sentence = f"{reward.name} {declares}; not measured{': ' * bool(why)}{why}"
    return RewardReading(reward.name, reward.reads_thought, sentence)


def _of_thought(part: str) -> str:
    return "nothing of the thought" if part == "nothing" else f"the {part} of the thought"


# --- other versions of a completion ---


class _Thought(NamedTuple):
    """The thoughts of a completion, one for each turn that has one; no ids without `ThoughtIds`."""

    texts: Sequence[str]
    ids: Sequence[Sequence[int]] = ()


class _Case(NamedTuple):
    """A completion that takes part; `spans` are the places of its thoughts by message, `id_spans` those in its ids."""

    columns: Mapping[str, Any]
    spans: Mapping[int, slice]
    id_spans: Sequence[slice]
    thought: _Thought

    def with_thought(self, thought: _Thought) -> dict[str, Any]:
        """Its columns, the answer and all that no thought holds as they were."""
        columns, messages = dict(self.columns), _messages(self.columns["completions"])
        for number, (place, span) in enumerate(self.spans.items()):
            text, new = messages[place]["content"], thought.texts[min(number, len(thought.texts) - 1)]
            messages[place] = {**messages[place], "content": text[: span.start] + new + text[span.stop :]}
        columns["completions"] = messages if isinstance(columns["completions"], list) else messages[0]["content"]
        if self.id_spans:
            columns["completion_ids"] = list(columns["completion_ids"])
            for number, span in reversed([*enumerate(self.id_spans)]):
                columns["completion_ids"][span] = thought.ids[min(number, len(thought.ids) - 1)]
        return columns


def _messages(completion: Any) -> list[Any]:
    return [{"role": "assistant", "content": completion}] if isinstance(completion, str) else list(completion)


def _case(row: Mapping[str, Any], tags: tuple[str, str], ids: ThoughtIds | None) -> _Case | None:
    """None for a completion that takes no part, as `ThoughtReading` has it."""
    spans, messages = dict[int, slice](), _messages(row["completions"])
    for place, message in enumerate(messages):
        text = content_text(message.get("content"))
        opens, closes = map(text.count, tags)
        if is_assistant(message) and opens + closes:
            span = slice(text.find(tags[0]) + len(tags[0]) if opens else 0, text.find(tags[1]))
            if opens > 1 or closes != 1 or span.start > span.stop or text != message["content"]:
                return None
            spans[place] = span
    texts = [messages[place]["content"][span] for place, span in spans.items()]
    if ids is None or "completion_ids" not in row:
        columns = {name: cell for name, cell in row.items() if name != "completion_ids"}
        return _Case(columns, spans, (), _Thought(texts)) if spans else None
    id_spans, start = list[slice](), 0  # the prompt may open the first thought
    for place, each in enumerate(row["completion_ids"]):
        if each == ids.opened:
            start = place + 1
        elif each == ids.closed:
            id_spans.append(slice(start, place))
    thoughts = [row["completion_ids"][span] for span in id_spans]
    return _Case(row, spans, id_spans, _Thought(texts, thoughts)) if spans and len(spans) == len(id_spans) else None


_FIRST = "as it was"
_KINDS = (_FIRST, "again", *["exchanged"] * _EXCHANGES, *VERSIONS[1:])  # of what `_versions` gives


def _versions(group: Sequence[_Case], ids: ThoughtIds | None, draw: random.Random) -> list[Sequence[_Thought | None]]:
    """The thoughts of a problem's completions as they were, twice, and other ones; None where there is none."""
    own = [case.thought for case in group]
    shifts = draw.sample(range(1, len(own)), min(len(own) - 1, _EXCHANGES))
    exchanged: list[Sequence[_Thought | None]] = [[*own[shift:], *own[:shift]] for shift in shifts]
    exchanged += [[None] * len(own)] * (_EXCHANGES - len(shifts))
    blank, gold = [_Thought([""], [[]])] * len(own), [_gold(case, ids) for case in group]
    return [own, own, *exchanged, blank, [_shuffled(thought, draw) for thought in own], gold]


def _shuffled(thought: _Thought, draw: random.Random) -> _Thought:
    """Words change places with words of their length: a function of form and length gives what it gave."""

    def shuffled(text: str) -> str:
        by_length = defaultdict(list)
        for word in _WORD.findall(text):
            by_length[len(word)].append(word)
        for words in by_length.values():
            draw.shuffle(words)
        return _WORD.sub(lambda word: by_length[len(word[0])].pop(), text)

    return _Thought([*map(shuffled, thought.texts)], [draw.sample(each, len(each)) for each in thought.ids])


def _gold(case: _Case, ids: ThoughtIds | None) -> _Thought | None:
    """The worked solution of the row, else its gold answer; None without."""
    worked = case.columns.get("reasoning")
    text = assistant_text(worked) if isinstance(worked, str | list) else ""
    text = text or cell_text(case.columns.get("solution")) or ""
    return _Thought([text], [] if ids is None else [ids.encode(text)]) if text else None


# --- one reward ---

# The scores of a completion by kind; one is left out where a deadline, or a mistake in the whole batch, decided it.
_Scores = Mapping[str, Sequence[Any]]


def _reading(
    reward: Reward, groups: Sequence[Sequence[_Case]], ids: ThoughtIds | None, trainer: dict[str, Any], end: float
) -> RewardReading | str:
    """The reading of a reward, or why there is none."""
    if not groups:
        return "no completion closes its thought"
    if ids is None and "completion_ids" in parameters_of(reward.function)[0]:
        return "it takes completion_ids, and their think tags are known only for runs and models"
    draw, scored, count = random.Random(0), list[list[_Scores]](), max(1, _BATCH // max(map(len, groups)))
    reasons = Counter[str]()
    for start in range(0, len(groups), count):
        try:
            scored += _scored(reward, groups[start : start + count], ids, trainer, draw, reasons)
        except UserError as error:
            return str(error)
        if time.monotonic() > end:
            break
    kept = [of_problem for group in scored if (of_problem := [each for each in group if each[_FIRST]])]
    return _judged(reward, kept) if kept else f"it gives no score ({reasons.most_common(1)[0][0]})"


def _scored(
    reward: Reward,
    groups: Sequence[Sequence[_Case]],
    ids: ThoughtIds | None,
    trainer: dict[str, Any],
    draw: random.Random,
    reasons: Counter[str],
) -> list[list[_Scores]]:
    """The scores of whole problems under every version, and the reasons where there is none as they were."""
    cases = [case for group in groups for case in group]
    scores = [dict[str, list[Any]]((kind, []) for kind in _KINDS) for _ in cases]
    for kind, *by_group in zip(_KINDS, *(_versions(group, ids, draw) for group in groups), strict=True):
        thoughts = [thought for group in by_group for thought in group]
        if not any(thoughts):
            continue
        rows = [case.with_thought(new or case.thought) for case, new in zip(cases, thoughts, strict=True)]
        columns = {name: [row[name] for row in rows] for name in rows[0]} | trainer
        for of_case, thought, score in zip(scores, thoughts, reward.explain(**columns), strict=True):
            if kind == _FIRST and score.value is None:
                reasons[score.reason] += 1
            elif thought is not None and not score.timed_out and score.failed != "batch":
                of_case[kind].append(score.value)
    found = iter(scores)
    return [[next(found) for _ in group] for group in groups]


def _judged(reward: Reward, groups: Sequence[Sequence[_Scores]]) -> RewardReading:
    """The reading by the scores of completions that have one as they were."""
    cases, declared = [case for group in groups for case in group], reward.reads_thought
    moves = {kind: [_differ(case[_FIRST][0], each) for case in cases for each in case[kind]] for kind in _KINDS[1:]}
    moved = {kind: sum(each) / len(each) if each else None for kind, each in moves.items()}
    reading = [kind for kind in VERSIONS if moved[kind] and (not moved["again"] or _beyond_noise(groups, kind))]
    agrees = set(reading) <= set(VERSIONS if declared is None else MAY_MOVE[declared])
    share, low, high = _total_effect(groups)

    def percent(value: float) -> str:
        return f"{100 * value:.0f}" if value == 0 or value >= 0.01 else f"{100 * value:.1g}"

    noise = f"; a repeated call moves {percent(moved['again'])} %" if moved["again"] else ""
    alike = len({case[_FIRST][0] for case in cases}) == 1
    told = f"nothing of the thought{' (all scores are alike)' * alike}"
    if reading:
        told = _of_thought(declared) if agrees and declared in ("form", "length") else "the thought"
        told += "" if agrees else f", although it declares to read {_of_thought(str(declared))}"
        interval = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
        first, *more = [f"{kind} {percent(moved[kind] or 0)} %" for kind in reading]
        told += ": " if share is None else f": {percent(share)} % of its variance{interval}, "
        told += ", ".join([f"{first.replace(' ', ' thoughts move ', 1)} of scores", *more])
    sentence = f"{reward.name} reads {told}{noise}"
    reads = bool(reading) if any(moves[kind] for kind in VERSIONS) else None
    return RewardReading(
        reward.name, declared, sentence, reads, agrees, moved, share, low, high, len(cases), measured=True
    )


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)  # scores may be float32


def _excess(group: Sequence[_Scores], kind: str) -> float:
    """The mean square by which a version moves the scores of a problem, less that of a repeated call."""

    def square(case: _Scores, kind: str) -> float:
        return float(np.mean([(case[_FIRST][0] - each) ** 2 for each in case[kind] if each is not None] or [0.0]))

    return float(np.mean([square(case, kind) - square(case, "again") for case in group]))


def _beyond_noise(groups: Sequence[Sequence[_Scores]], kind: str) -> bool:
    """Whether a version moves random scores more than a repeated call does, by some four standard errors."""
    found = mean_interval([_excess(group, kind) for group in groups])
    return found is not None and len(groups) > 1 and found.estimate > 2 * (found.high - found.estimate)


def _total_effect(groups: Sequence[Sequence[_Scores]]) -> tuple[float | None, float | None, float | None]:
    """The index S with its interval over problems, cut off at 0 and 1; None where no score varies within a problem."""
    effects, variances = [], []
    for group in groups:
        several = [case for case in group if case["exchanged"]]
        if len(several) > 1:
            values = np.array([case[_FIRST][0] for case in several])
            effects.append(len(several) * _excess(several, "exchanged") / 2)
            variances.append(len(several) * float(np.var(values - values[0], ddof=1)))
    found = ratio_interval(effects, variances, ends=(0.0, 1.0))
    if found is None:
        return None, None, None
    share, (low, high) = min(max(float(found.estimate), 0.0), 1.0), map(float, (found.low, found.high))
    return (share, low, high) if len(effects) > 1 else (share, None, None)
