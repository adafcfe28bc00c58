"""Does a reward read the thought? Exchange the thought, keep the answer, score again, and see which scores move.

The share of the variance within a problem that belongs to the thought is Jansen's total-effect index (1999), mean
(r(answer, thought) - r(answer, other thought))² / 2 over Var(r): Var f / (Var f + Var g) if r = f(thought) + g(answer).
"""

from __future__ import annotations

import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

import numpy as np

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.guard import Reward, dummy_trainer
from rlvr_vocab.rewards.reward import content_text, is_assistant, parameters_of
from rlvr_vocab.statistics import ratio_interval

# The thought of another completion of the problem, none, its words in another order, those of the gold solution.
VERSIONS = ("exchanged", "blank", "shuffled", "gold")
_EXCHANGES, _BATCH = 4, 64  # of a completion at most; completions scored together, and the rest of their problem
_KINDS = ("as it was", "again", *["exchanged"] * _EXCHANGES, *VERSIONS[1:])  # of what `_versions` gives
# The versions under which a declaration excludes that a score moves.
_EXCLUDED = {"nothing": set(VERSIONS), "form": {"shuffled"}, "length": {"shuffled"}}
_UNKNOWN = {"measured": False, "reads": None, "agrees": True, **dict.fromkeys(("share", "low", "high"))}
# Words of a thought; not those of markup, as in <answer> and \boxed{42}.
_WORD = re.compile(r"(?<![\w\\<])(?<!</)\w+")


class ThoughtIds(NamedTuple):
    """The ids of the think tags in `completion_ids`, and how a text is encoded."""

    opened: int
    closed: int
    encode: Callable[[str], list[int]]


def read_thoughts(
    rewards: Sequence[Reward],
    rows: Sequence[Mapping[str, Any]],
    problems: Sequence[Hashable],
    think_tags: tuple[str, str],
    ids: ThoughtIds | None = None,
    costly: bool = False,
    declared_nothing: bool = True,
    seconds: float = math.inf,
) -> dict[str, Any]:
    """The content of `thought_reading.json` (docs/files.md); a reward scores for some `seconds`.

    rows: the columns that rewards take by name, without `ids` no `completion_ids`; problems: what each row answers.
    costly, declared_nothing: whether also those that send completions or run programs, or declare to read nothing.
    All thoughts of a completion with tools are exchanged as one: the nth by the nth, or the last, of the other.
    """
    started, groups = time.monotonic(), defaultdict(list)
    for problem, row in zip(problems, rows, strict=True):
        if (case := _case(row, think_tags, ids)) is not None:
            groups[problem].append(case)
    readings = []
    for reward in rewards:
        reading: dict[str, Any] = {"name": reward.name, "declared": reward.reads_thought, **_UNKNOWN, "moved": {}}
        try:
            if reward.reads_thought == "nothing" and not declared_nothing:
                raise UserError("rlvr-vocab score does it")
            if (reward.traits.sends or reward.traits.runs_programs) and not costly:
                raise UserError("it sends completions or runs programs; rlvr-vocab score thoughts=true does it")
            reading |= _reading(reward, [*groups.values()], ids, time.monotonic() + seconds)
        except UserError as error:
            declares = f"that it reads {reward.reads_thought} of the thought" if reward.reads_thought else "nothing"
            reading["sentence"] = f"{reward.name} declares {declares}; not measured: {error}"
        readings.append(reading)
    count, spent = sum(map(len, groups.values())), round(time.monotonic() - started, 2)
    counts = {"completions": count, "problems": len(groups), "left_out": len(rows) - count}
    return {**counts, "seconds": spent, "rewards": readings}


# --- other versions of a completion ---


class _Thought(NamedTuple):
    """The thoughts of a completion, one for each turn that has one, as texts and as ids."""

    texts: Sequence[str]
    ids: Sequence[Sequence[int]]


class _Case(NamedTuple):
    """A completion that takes part; `spans` are the places of its thoughts by message, `id_spans` those in its ids."""

    columns: Mapping[str, Any]
    spans: Mapping[int, slice]
    id_spans: Sequence[slice]
    thought: _Thought

    def with_thought(self, thought: _Thought) -> dict[str, Any]:
        """Its columns, the answer and all that no thought holds as they were."""
        messages, ids = list(self.columns["completions"]), list(self.columns.get("completion_ids", ()))
        for number, (place, span) in enumerate(self.spans.items()):
            text, new = messages[place]["content"], thought.texts[min(number, len(thought.texts) - 1)]
            messages[place] = {**messages[place], "content": text[: span.start] + new + text[span.stop :]}
        for number, span in reversed([*enumerate(self.id_spans)]):
            ids[span] = thought.ids[min(number, len(thought.ids) - 1)]
        return {**self.columns, "completions": messages} | ({"completion_ids": ids} if self.id_spans else {})


def _case(row: Mapping[str, Any], tags: tuple[str, str], ids: ThoughtIds | None) -> _Case | None:
    """None for a completion in which no turn thinks, or one does not open and close a single thought."""
    spans, id_spans, texts, start = dict[int, slice](), list[slice](), list[str](), 0
    for place, message in enumerate(row["completions"]):
        text = content_text(message.get("content"))
        opens, closes = map(text.count, tags)
        if is_assistant(message) and opens + closes:
            span = slice(text.find(tags[0]) + len(tags[0]) if opens else 0, text.find(tags[1]))
            if opens > 1 or closes != 1 or span.start > span.stop or text != message["content"]:
                return None
            spans[place] = span
            texts.append(text[span])
    if ids is None or "completion_ids" not in row:
        columns = {name: cell for name, cell in row.items() if name != "completion_ids"}
        return _Case(columns, spans, (), _Thought(texts, ())) if spans else None
    given = row["completion_ids"]
    for place, each in enumerate(given):
        if each == ids.closed:
            id_spans.append(slice(start, place))  # the prompt may have opened the first
        start = place + 1 if each == ids.opened else start
    thought = _Thought(texts, [given[span] for span in id_spans])
    return _Case(row, spans, id_spans, thought) if spans and len(id_spans) == len(spans) else None


def _versions(group: Sequence[_Case], ids: ThoughtIds | None, draw: random.Random) -> list[Sequence[_Thought | None]]:
    """The thoughts of a problem's completions as they were, twice, and other ones; None where there is none."""
    own, order = [case.thought for case in group], draw.sample(range(len(group)), len(group))
    places, shifts = [order.index(place) for place in range(len(own))], range(1, _EXCHANGES + 1)
    exchanged = [[own[order[each - shift]] if shift < len(own) else None for each in places] for shift in shifts]
    worked = (cell_text(each.columns.get("reasoning")) or cell_text(each.columns.get("solution")) for each in group)
    gold = [_Thought([text], [ids.encode(text)] if ids else []) if text else None for text in worked]
    shuffled = [
        _Thought([_shuffled(text, draw) for text in texts], [draw.sample(each, len(each)) for each in given])
        for texts, given in own
    ]
    return [own, own, *exchanged, [_Thought([""], [[]])] * len(own), shuffled, gold]


def _shuffled(text: str, draw: random.Random) -> str:
    """Words change places with words of their length: a function of form and length gives what it gave."""
    words = _WORD.findall(text)
    draw.shuffle(words)
    by_length = {size: list(each) for size, each in groupby(sorted(words, key=len), len)}  # sorting is stable
    return _WORD.sub(lambda word: by_length[len(word[0])].pop(), text)


# --- one reward ---

# The scores of a completion by kind, without those that a deadline, or a mistake in the whole batch, decided.
_Scores = dict[str, list[Any]]


def _reading(reward: Reward, groups: list[list[_Case]], ids: ThoughtIds | None, end: float) -> dict[str, Any]:
    """What one reward reads of the thought, in figures and in a sentence; UserError where that cannot be measured."""
    if not groups:
        raise UserError("no completion closes its thought")
    if ids is None and "completion_ids" in parameters_of(reward.function)[0]:
        raise UserError("it takes completion_ids, and their think tags are known only for runs and models")
    draw, reasons, kept = random.Random(0), Counter[str](), list[list[_Scores]]()
    count = max(1, _BATCH // max(map(len, groups)))
    for start in range(0, len(groups), count):
        batch = groups[start : start + count]
        cases, versions = [*chain(*batch)], [_versions(group, ids, draw) for group in batch]
        scores = [_Scores({kind: [] for kind in _KINDS}) for _ in cases]
        for kind, *by_group in zip(_KINDS, *versions, strict=True):
            thoughts = [*chain(*by_group)]
            rows = [case.with_thought(new or case.thought) for case, new in zip(cases, thoughts, strict=True)]
            columns = {name: [row[name] for row in rows] for name in rows[0]} | dummy_trainer()
            in_time = kind == "as it was" or time.monotonic() < end
            found = reward.explain(**columns) if in_time and any(thoughts) else ()
            for of_case, thought, score in zip(scores, thoughts, found, strict=bool(found)):
                is_decided = thought is not None and not score.timed_out and score.failed != "batch"
                if is_decided and (score.value is not None or kind != "as it was"):
                    of_case[kind].append(score.value)
                reasons[score.reason] += kind == "as it was" and not of_case[kind]
        left = iter(scores)
        kept += [[each for each in islice(left, len(group)) if each["as it was"]] for group in batch]
        if time.monotonic() > end:
            break
    if not any(kept):
        raise UserError(f"it gives no score ({reasons.most_common(1)[0][0]})")
    return _judged(reward, kept)


def _judged(reward: Reward, groups: Sequence[Sequence[_Scores]]) -> dict[str, Any]:
    """The reading by the scores of completions that have one as they were."""
    cases, declared = [case for group in groups for case in group], reward.reads_thought
    moved = dict[str, float | None]()
    for kind in ("again", *VERSIONS):  # a score that is lost has moved; others may be float32
        pairs = [(case["as it was"][0], math.inf if each is None else each) for case in cases for each in case[kind]]
        moves = [not math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-9) for pair in pairs]
        moved[kind] = sum(moves) / len(moves) if moves else None
    if all(moved[kind] is None for kind in VERSIONS):
        raise UserError("its calls with other thoughts were late, or failed as a whole")
    share, low, high = _total_effect(groups)
    reading = [kind for kind in VERSIONS if moved[kind]]
    if noise := moved["again"]:  # a variance above it by four standard errors, or more than twice as many scores
        is_above = share is not None and low is not None and 2 * low > share
        reading = [kind for kind in reading if is_above or (moved[kind] or 0) > 2 * noise + 0.1]
    agrees = not _EXCLUDED.get(str(declared), set()) & set(reading)
    are_alike = len({case["as it was"][0] for case in cases}) == 1
    text = "nothing of the thought" + " (all scores are alike)" * are_alike
    if reading:
        text = f"the {declared} of the thought: " if agrees and declared in ("form", "length") else "the thought: "
        interval = "" if low is None or high is None else f" ({100 * low:.3g} to {100 * high:.3g})"
        text += "" if share is None else f"{100 * share:.3g} % of its variance{interval}, "
        text += ", ".join(f"{kind} thoughts move {100 * (moved[kind] or 0):.3g} % of scores" for kind in reading)
        text += "" if agrees else f", although it declares to read {declared}"
    text += f"; a repeated call moves {100 * noise:.3g} %" if noise else ""
    figures = {"moved": moved, "share": share, "low": low, "high": high, "measured": True}
    return {"sentence": f"{reward.name} reads {text}", "reads": bool(reading), "agrees": agrees, **figures}


def _total_effect(groups: Sequence[Sequence[_Scores]]) -> tuple[float | None, float | None, float | None]:
    """The index S with its interval over problems, cut off at 0 and 1; None where no score varies within a problem."""

    def square(case: _Scores, kind: str) -> float:
        return float(np.mean([(case["as it was"][0] - each) ** 2 for each in case[kind] if each is not None] or [0.0]))

    effects, variances = [], []
    for group in groups:
        if len(several := [case for case in group if case["exchanged"]]) > 1:
            values = np.array([case["as it was"][0] for case in several])
            effects.append(sum(square(case, "exchanged") - square(case, "again") for case in several) / 2)
            variances.append(len(several) * float(np.var(values - values[0], ddof=1)))
    if (found := ratio_interval(effects, variances)) is None:
        return None, None, None
    share, low, high = (min(max(float(each), 0.0), 1.0) for each in (found.estimate, found.low, found.high))
    return (share, low, high) if len(effects) > 1 else (share, None, None)
