"""Samples thoughts, exchanges their ids for others of the same text, and samples the answers that follow.

Random numbers belong to a problem, sample and draw, and are the same in all arms: arms that leave the model's
distributions unchanged give the same answers, whatever the batch. Where a completion calls tools, ids are exchanged in
the thought before its first call; what followed is replayed as recorded, up to the answer of its last turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.evaluation.evaluate import grades_of
from rlvr_vocab.evaluation.sampling import Checkpoint, Continuations, SamplingSettings
from rlvr_vocab.record.results import ARMS, PermutedThought, ProbeAnswer, SampledThought, is_right
from rlvr_vocab.rewards.grader import Grade, Grader
from rlvr_vocab.tools.transcripts import Request, SampledTurn
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.regions import THINKING, regions_after, scored_regions
from rlvr_vocab.vocab.tokenizer import assistant_turn, think_tags

_OF_THOUGHTS, _OF_ANSWERS, _OF_ARMS, _OF_CHOICES = range(4)  # purposes of random numbers
_BEYOND_DRAWS = 1_000_000  # where the random numbers of further permutations begin
_DONORS = 4  # candidates for each transplant; the one with the most similar likelihood of choices is taken


@dataclass(frozen=True)
class Thought:
    """A completion up to the end of its thinking.

    The sampled `ids` include the closing tag. At the indices `places` another id of the same text was open. With calls
    `replayed` is what followed up to the answer, and `segments` are those of the completion.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    places: tuple[int, ...]
    replayed: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()


class CopyExchange:
    """Exchanges ids of thoughts for open ids of the same text: a reader sees the same, the model does not."""

    def __init__(self, policy: RegionPolicy) -> None:
        rows = torch.arange(policy.layout.rows)
        self._policy = policy
        self._text_of = policy.surface_ids(rows).tolist()
        self._open_ids: dict[int, list[int]] = defaultdict(list)
        for each in torch.isfinite(policy.bias[THINKING])[: len(rows)].nonzero().squeeze(1).tolist():
            self._open_ids[self._text_of[each]].append(each)

    def thought(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], segments: Sequence[int] = ()
    ) -> Thought | None:
        """The thought of a completion; None where thinking does not begin or end, or where calls end it."""
        ids, length, layout = torch.tensor([[*prompt_ids, *completion_ids]]), len(prompt_ids), self._policy.layout
        thinking = (scored_regions(ids, layout)[0, length:] == THINKING).tolist()
        closed = (regions_after(ids, layout)[0, length:] != THINKING).tolist()
        ends = [place + 1 for place, chosen in enumerate(thinking) if chosen and closed[place]]
        first, last = (segments or [len(thinking)])[0], sum(segments[:-1])
        if not ends or ends[0] > first or (segments and len(segments) % 2 == 0):
            return None
        kept, answer = tuple(completion_ids[: ends[0]]), ends[0]
        if last:
            answer = next((end for end in ends if end > last), last)
            if answer == last and any(thinking[last:]):
                return None
        places = tuple(place for place in range(len(kept)) if thinking[place] and len(self.open_ids(kept[place])) > 1)
        return Thought(tuple(prompt_ids), kept, places, tuple(completion_ids[len(kept) : answer]), tuple(segments))

    def open_ids(self, token: int) -> list[int]:
        """The ids of a token's text that are open while thinking, the standard one first where it is."""
        return self._open_ids.get(self._text_of[token], [])

    def texts(self, thought: Thought) -> list[int]:
        """The text of each id, as standard tokens."""
        return [self._text_of[token] for token in thought.ids]

    def permuted(self, thoughts: Sequence[Thought], random: np.random.Generator) -> list[Thought]:
        """The ids of each text permuted over all thoughts: each keeps its rate, and loses its place."""
        where: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, thought in enumerate(thoughts):
            for place in thought.places:
                where[self._text_of[thought.ids[place]]].append((number, place))
        ids = [list(thought.ids) for thought in thoughts]
        for places in where.values():
            dealt = random.permutation([ids[number][place] for number, place in places]).tolist()
            for (number, place), token in zip(places, dealt, strict=True):
                ids[number][place] = token
        return [replace(thought, ids=tuple(each)) for thought, each in zip(thoughts, ids, strict=True)]

    def transplanted(self, thought: Thought, donor: Thought, random: np.random.Generator) -> Thought:
        """The nth token of a text as the nth of that text in the donor; by chance where the donor has fewer."""
        given: dict[int, list[int]] = defaultdict(list)
        for place in reversed(donor.places):
            given[self._text_of[donor.ids[place]]].append(donor.ids[place])

        ids = list(thought.ids)
        for place in thought.places:
            left = given[self._text_of[ids[place]]]
            ids[place] = left.pop() if left else int(random.choice(self.open_ids(ids[place])))
        return replace(thought, ids=tuple(ids))


@dataclass(frozen=True)
class RecordedThought:
    """A sampled thought on the problem `row`, and the text of the answer that followed; `place`: problem, sample."""

    place: tuple[int, int]
    row: Mapping[str, Any]
    thought: Thought
    answer_text: str
    answer: str | None

    @property
    def gold(self) -> str | None:
        return cell_text(self.row.get("solution"))


@dataclass(frozen=True)
class _Version:
    """A thought in an arm; a transplant has the choices of `donor`, `without_donor` is the thought permuted."""

    of: RecordedThought
    thought: Thought
    draw: int
    donor: RecordedThought | None = None
    without_donor: Thought | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """The key of its random numbers."""
        return *self.of.place, self.draw

    @property
    def donor_gold(self) -> str | None:
        return None if self.donor is None else self.donor.gold

    @property
    def exchanged(self) -> float:
        """The share of places with a choice whose id is another than the sampled one."""
        own, now, places = self.of.thought.ids, self.thought.ids, self.thought.places
        return sum(own[place] != now[place] for place in places) / len(places) if places else 0.0


class Prober:
    """Samples, exchanges and grades thoughts of a model with copies, at a temperature above 0."""

    def __init__(self, checkpoint: Checkpoint, grader: Grader, sampling: SamplingSettings) -> None:
        self._tokenizer, self._layout, self._chat = checkpoint.tokenizer, checkpoint.layout, checkpoint
        self._grader, self._sampling = grader, sampling
        self._continuations = Continuations(checkpoint, sampling.temperature)
        self._exchange = CopyExchange(self._continuations.policy)

    def think(
        self, rows: Sequence[Mapping[str, Any]], samples: int, on_progress: Callable[[int], None]
    ) -> list[SampledThought]:
        """Completions for each problem."""
        questions = [(problem, sample) for problem in range(len(rows)) for sample in range(samples)]
        found: list[SampledThought] = []
        for part in self._batches(len(questions)):
            batch = questions[part]
            asked, generate = [rows[problem] for problem, _ in batch], partial(self._turns, batch)
            completions = self._chat.completions(asked, generate, self._sampling.max_new_tokens, None)
            grades = grades_of(self._grader, asked, completions)
            found += [
                SampledThought(*place, each.prompt_ids, each.completion_ids, grade.answer, each.segments)
                for place, each, grade in zip(batch, completions, grades, strict=True)
            ]
            on_progress(len(found))
        return found

    def _turns(self, places: Sequence[tuple[int, int]], requests: Sequence[Request]) -> list[SampledTurn]:
        uniforms = [
            self._uniforms(_OF_THOUGHTS, *places[each.row], *[each.turn] * (each.turn > 0), count=each.room)
            for each in requests
        ]
        sampled = self._continuations.sample([each.context_ids for each in requests], uniforms)
        return [SampledTurn(ids, finished=True) for ids in sampled]

    def recorded(self, sampled: Sequence[SampledThought], rows: Sequence[Mapping[str, Any]]) -> list[RecordedThought]:
        """Those that hold a closed thought."""
        found = []
        for each in sampled:
            thought = self._exchange.thought(each.prompt_ids, each.completion_ids, each.segments)
            if thought is not None:
                text = self._text(each.completion_ids[len(thought.ids) + len(thought.replayed) :])
                place = each.problem, each.sample
                found.append(RecordedThought(place, rows[each.problem], thought, text, each.answer))
        return found

    def answers(
        self, arm: str, thoughts: Sequence[RecordedThought], draws: int, on_progress: Callable[[int], None]
    ) -> list[ProbeAnswer]:
        """Answers after the thoughts of an arm of `ARMS`, `draws` times each."""
        versions, found = self._versions(arm, thoughts, draws), list[ProbeAnswer]()
        for part in self._batches(len(versions)):
            batch = self._redrawn(versions[part]) if arm == "redrawn" else versions[part]
            found += self._scored(batch, self._answered(batch))
            on_progress(len(found))
        return found

    def permuted_golds(
        self, thoughts: Sequence[RecordedThought], permutations: int, on_progress: Callable[[int], None]
    ) -> list[PermutedThought]:
        """Log-probabilities of the gold answer after permutations, other than those of the arm, by thought."""
        by_thought: list[list[float]] = [[] for _ in thoughts]
        for deal in range(permutations):
            dealt = zip(thoughts, self._permuted(thoughts, _BEYOND_DRAWS + deal), strict=True)
            asked = [(each, each.gold, thought) for each, thought in dealt]
            logps = [logp for part in self._batches(len(asked)) for logp in self._logps_in_place(asked[part])]
            for found, logp in zip(by_thought, logps, strict=True):
                found += [] if logp is None else [logp]
            on_progress(deal + 1)
        pairs = zip(thoughts, by_thought, strict=True)
        return [PermutedThought(*each.place, logps) for each, logps in pairs if logps]

    # --- the thoughts of an arm ---

    def _versions(self, arm: str, thoughts: Sequence[RecordedThought], draws: int) -> list[_Version]:
        if arm not in ("permuted", "transplanted"):
            return [_Version(each, each.thought, draw) for each in thoughts for draw in range(draws)]
        dealt = [self._permuted(thoughts, draw) for draw in range(draws)]
        if arm == "transplanted":
            return self._transplants(thoughts, dealt)
        return [_Version(each, dealt[draw][n], draw) for n, each in enumerate(thoughts) for draw in range(draws)]

    def _permuted(self, thoughts: Sequence[RecordedThought], deal: int) -> list[Thought]:
        return self._exchange.permuted([each.thought for each in thoughts], self._random("permuted", deal))

    def _transplants(self, thoughts: Sequence[RecordedThought], dealt: Sequence[Sequence[Thought]]) -> list[_Version]:
        """Each thought with the choices of donors: thoughts with another gold answer, and of a similar likelihood."""
        plain, versions = [each.thought for each in thoughts], list[_Version]()
        logps: list[float] = []
        for part in self._batches(len(plain)):
            prompts = [each.prompt_ids for each in plain[part]]
            logps += self._continuations.logps(prompts, [each.ids for each in plain[part]], "copy_log_probs")
        sureness = [logp / max(1, len(each.places)) for logp, each in zip(logps, plain, strict=True)]
        golds = [each.gold for each in thoughts]
        for own, each in enumerate(thoughts):
            others = [number for number, gold in enumerate(golds) if gold != golds[own]]
            random = self._random("transplanted", *each.place)
            tried = [others[number] for number in random.permutation(len(others))[: _DONORS * len(dealt)]]
            tried.sort(key=lambda number: abs(sureness[number] - sureness[own]))
            for draw, number in enumerate(tried[: len(dealt)]):
                thought = self._exchange.transplanted(each.thought, plain[number], random)
                versions.append(_Version(each, thought, draw, thoughts[number], dealt[draw][own]))
        return versions

    def _redrawn(self, versions: Sequence[_Version]) -> list[_Version]:
        texts = [self._exchange.texts(each.thought) for each in versions]
        uniforms = [
            self._uniforms(_OF_CHOICES, *each.place, count=len(text))
            for each, text in zip(versions, texts, strict=True)
        ]
        drawn = self._continuations.sample([each.thought.prompt_ids for each in versions], uniforms, texts)
        pairs = zip(versions, drawn, strict=True)
        return [replace(each, thought=replace(each.thought, ids=tuple(ids))) for each, ids in pairs]

    # --- the answers after them ---

    def _answered(self, versions: Sequence[_Version]) -> list[list[int]]:
        """The ids of the answers; an empty list where the thought has used up `max_new_tokens`."""
        thoughts = [each.of.thought for each in versions]
        rooms = [self._sampling.max_new_tokens - len(each.ids) - len(each.replayed) for each in thoughts]
        asked = [number for number, room in enumerate(rooms) if room > 0]
        prompts = [self._context_ids(versions[number].thought) for number in asked]
        uniforms = [self._uniforms(_OF_ANSWERS, *versions[each].place, count=rooms[each]) for each in asked]
        answers = dict(zip(asked, self._continuations.sample(prompts, uniforms), strict=True)) if asked else {}
        return [answers.get(number, []) for number in range(len(versions))]

    def _context_ids(self, thought: Thought) -> list[int]:
        """What the answer follows."""
        if self._chat.tools is None:
            return [*thought.prompt_ids, *thought.ids]
        return self._chat.tools.context_ids(thought.prompt_ids, [*thought.ids, *thought.replayed], thought.segments)

    def _scored(self, versions: Sequence[_Version], answers: Sequence[list[int]]) -> list[ProbeAnswer]:
        thoughts = [each.thought for each in versions]
        prompts = [list(each.prompt_ids) for each in thoughts]
        figures = zip(
            versions,
            answers,
            self._grades([each.of.row for each in versions], thoughts, answers),
            self._logps_in_place([(each.of, each.of.gold, each.thought) for each in versions]),
            self._logps_in_place([(each.of, each.donor_gold, each.thought) for each in versions]),
            self._logps_in_place([(each.of, each.donor_gold, each.without_donor) for each in versions]),
            self._continuations.logps(prompts, [each.ids for each in thoughts], "copy_log_probs"),
            strict=True,
        )
        return [
            ProbeAnswer(
                problem=each.place[0],
                sample=each.place[1],
                draw=each.draw,
                score=grade.score,
                right=is_right(grade.score, self._grader.spec.threshold),
                gold_logp=gold_logp,
                donor_logp=donor_logp,
                permuted_donor_logp=permuted_donor_logp,
                donor=None if each.donor is None else each.donor.place[0],
                copies_logp=copies_logp,
                exchanged=each.exchanged,
                answer=self._text(answer),
            )
            for each, answer, grade, gold_logp, donor_logp, permuted_donor_logp, copies_logp in figures
        ]

    def _logps_in_place(
        self, asked: Sequence[tuple[RecordedThought, str | None, Thought | None]]
    ) -> list[float | None]:
        """Log-probabilities of answers in the place of the model's own; None without answer, thought or place."""
        placed: dict[int, tuple[list[int], list[int]]] = {}
        for number, (recorded, answer, thought) in enumerate(asked):
            if answer is not None and thought is not None and (in_place := self._in_place(answer, recorded)):
                placed[number] = [*self._context_ids(thought), *in_place[0]], in_place[1]
        prompts, ids = ([pair[part] for pair in placed.values()] for part in (0, 1))
        logps = dict(zip(placed, self._continuations.logps(prompts, ids), strict=True))
        return [logps.get(number) for number in range(len(asked))]

    def _in_place(self, answer: str, recorded: RecordedThought) -> tuple[list[int], list[int]] | None:
        """The ids before an answer in the place of the model's own, and its ids with the one that ends it."""
        before, after = _around_answer(recorded)
        if think_tags(self._tokenizer, self._layout)[0] in before:  # under other rules
            return None
        head, through, whole = (
            self._tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (before, before + answer, before + answer + after)
        )
        same = next((place for place, (a, b) in enumerate(zip(head, whole, strict=False)) if a != b), len(head))
        return whole[:same], whole[same : max(len(through), same) + 1]

    def _text(self, answer: Sequence[int]) -> str:
        return str(self._tokenizer.decode([token for token in answer if token not in self._continuations.end_ids]))

    def _grades(
        self, rows: Sequence[Mapping[str, Any]], thoughts: Sequence[Thought], answers: Sequence[list[int]]
    ) -> list[Grade]:
        completions, turns = list[list[int]](), list[Any]()
        for thought, answer in zip(thoughts, answers, strict=True):
            completions.append([*thought.ids, *thought.replayed, *answer])
            if thought.replayed and self._chat.tools is not None:
                turns.append([self._chat.tools.tool_format.message(self._context_ids(thought), answer)])
            else:
                ids = list(thought.prompt_ids), completions[-1]
                turns.append(assistant_turn(self._tokenizer, self._layout, *ids))
        return self._grader.grades(rows, turns, completions)

    def _uniforms(self, purpose: int, *place: int, count: int) -> np.ndarray:
        return np.random.default_rng([self._sampling.seed, purpose, *place]).random((count, 2))

    def _random(self, arm: str, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._sampling.seed, _OF_ARMS, [*ARMS].index(arm), *place])

    def _batches(self, count: int) -> Iterator[slice]:
        size = self._sampling.batch_size
        return (slice(start, start + size) for start in range(0, count, size))


def _around_answer(recorded: RecordedThought) -> tuple[str, str]:
    """The text around the model's own answer: in its box, else where it stands last."""
    text, answer = recorded.answer_text, recorded.answer
    for form in ("\\boxed{%s}", "%s"):
        if answer and (found := form % answer) in text:
            before, _, after = text.rpartition(found)
            opened, closed = form.split("%s")
            return before + opened, closed + after
    return "\\boxed{", "}"
