"""Samples thoughts, exchanges their ids for others of the same text, and samples what is answered then.

Everything is drawn from random numbers of its own problem, sample and draw, in all arms from the same: those that leave
the model's distributions as they are answer alike, and up to rounding the batch makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, chat_ids
from rlvr_vocab.record.probe import ARMS, ProbeAnswer, SampledThought
from rlvr_vocab.rewards.grader import Grade, Grader
from rlvr_vocab.vocab.chat import assistant_turn
from rlvr_vocab.vocab.head import attach_region_head
from rlvr_vocab.vocab.interventions import CopyExchange, Thought
from rlvr_vocab.vocab.policy import RegionPolicy
from rlvr_vocab.vocab.sampling import RegionSampler, TextFirstDraw

_OF_THOUGHTS, _OF_ANSWERS, _OF_ARMS = range(3)  # what random numbers are for
_DONORS = 4  # tried for each transplant; the one whose choices are as likely as the model's own is taken


@dataclass(frozen=True)
class RecordedThought:
    """A thought as it was sampled, and the text of the answer that followed; `row` is its problem."""

    problem: int
    sample: int
    row: Mapping[str, Any]
    thought: Thought
    answer_text: str
    answer: str | None

    @property
    def gold(self) -> str | None:
        return cell_text(self.row.get("solution"))


@dataclass(frozen=True)
class _Version:
    """A thought as an arm has it.

    Attributes:
        donor: what a transplant has its choices from; `without_donor`: the same thought permuted, to compare with.
    """

    of: RecordedThought
    thought: Thought
    draw: int
    donor: RecordedThought | None = None
    without_donor: Thought | None = None


class Prober:
    """A model with copies, and how it is asked and graded.

    Args:
        checkpoint: as `load_checkpoint` gives it; its layout has copies.
        sampling: with a temperature above 0.
    """

    def __init__(self, checkpoint: Checkpoint, grader: Grader, sampling: SamplingSettings) -> None:
        self._checkpoint, self._grader, self._sampling = checkpoint, grader, sampling
        self._model, self._tokenizer, layout = checkpoint.model, checkpoint.tokenizer, checkpoint.layout
        sampler: Any = checkpoint.model.generate
        assert isinstance(sampler, RegionSampler) and layout.size and sampling.temperature > 0
        self._sampler, self._policy = sampler, RegionPolicy(layout)
        self._exchange = CopyExchange(self._policy)
        attach_region_head(checkpoint.model, policy=self._policy, temperature=sampling.temperature)
        ends = checkpoint.model.generation_config.eos_token_id
        self._end_ids = {ends} if isinstance(ends, int) else set(ends or ())

    def think(
        self, rows: Sequence[Mapping[str, Any]], samples: int, on_progress: Callable[[int], None]
    ) -> list[SampledThought]:
        """Completions for each problem."""
        questions = [(problem, sample) for problem in range(len(rows)) for sample in range(samples)]
        prompts = chat_ids(self._tokenizer, [rows[problem]["prompt"] for problem, _ in questions])
        limit, found = self._sampling.max_new_tokens, list[SampledThought]()
        for start, end in self._batches(len(questions)):
            uniforms = [self._uniforms(_OF_THOUGHTS, *each, count=limit) for each in questions[start:end]]
            completions = self._sample(prompts[start:end], uniforms, [limit] * (end - start))
            grades = self._grades(
                [rows[problem] for problem, _ in questions[start:end]], prompts[start:end], completions
            )
            found += [
                SampledThought(problem, sample, prompt, ids, grade.answer)
                for (problem, sample), prompt, ids, grade in zip(
                    questions[start:end], prompts[start:end], completions, grades, strict=True
                )
            ]
            on_progress(end)
        return found

    def recorded(self, sampled: Sequence[SampledThought], rows: Sequence[Mapping[str, Any]]) -> list[RecordedThought]:
        """Those that hold a thought which ends."""
        found = []
        for each in sampled:
            thought = self._exchange.thought(each.prompt_ids, each.completion_ids)
            if thought is not None:
                text = self._tokenizer.decode(self._without_end(each.completion_ids[len(thought.ids) :]))
                found.append(RecordedThought(each.problem, each.sample, rows[each.problem], thought, text, each.answer))
        return found

    def answers(
        self, arm: str, thoughts: Sequence[RecordedThought], draws: int, on_progress: Callable[[int], None]
    ) -> list[ProbeAnswer]:
        """What is answered after the thoughts as an arm of `ARMS` has them, `draws` times each."""
        versions, found = self._versions(arm, thoughts, draws), []
        for start, end in self._batches(len(versions)):
            found += self._answered(versions[start:end], redraw=arm == "redrawn")
            on_progress(end)
        return found

    def _versions(self, arm: str, thoughts: Sequence[RecordedThought], draws: int) -> list[_Version]:
        if arm == "permuted":
            return [
                _Version(each, thought, draw)
                for each, dealt in zip(thoughts, self._permuted(thoughts, draws), strict=True)
                for draw, thought in enumerate(dealt)
            ]
        if arm == "transplanted":
            return self._transplants(thoughts, draws)
        return [_Version(each, self._version(arm, each, draw), draw) for each in thoughts for draw in range(draws)]

    def _permuted(self, thoughts: Sequence[RecordedThought], draws: int) -> list[tuple[Thought, ...]]:
        """For each thought its permutations, one for each draw."""
        plain = [each.thought for each in thoughts]
        dealt = (self._exchange.permuted(plain, self._random("permuted", draw)) for draw in range(draws))
        return list(zip(*dealt, strict=True))

    def _version(self, arm: str, recorded: RecordedThought, draw: int) -> Thought:
        thought, exchange = recorded.thought, self._exchange
        random = self._random(arm, draw, recorded.problem, recorded.sample)
        kind, _, share = arm.partition("_")
        if kind == "sources":
            thought = exchange.sources(thought)
        elif kind == "copies":
            thought = exchange.copies(thought, random)
        elif kind == "coin":
            thought = exchange.coin(thought, random)
        elif kind == "dose":
            thought = exchange.dose(thought, int(share) / 100, random)
        elif kind == "cut":
            thought = exchange.cut(thought, int(share) / 100)
        return thought

    def _transplants(self, thoughts: Sequence[RecordedThought], draws: int) -> list[_Version]:
        """From thoughts on problems with another gold answer, those whose choices are as likely as the own ones."""
        wanted, candidates = self._copies_logps([each.thought for each in thoughts]), []
        golds = [each.gold for each in thoughts]
        for each, own_gold in zip(thoughts, golds, strict=True):
            others = [other for other, gold in zip(thoughts, golds, strict=True) if gold != own_gold]
            random = self._random("transplanted", each.problem, each.sample)
            chosen = random.permutation(len(others))[: _DONORS * draws]
            donors = [others[number] for number in chosen]
            candidates.append(
                [(donor, self._exchange.transplanted(each.thought, donor.thought, random)) for donor in donors]
            )
        logps = iter(self._copies_logps([thought for tried in candidates for _, thought in tried]))
        versions = []
        for each, own, tried, dealt in zip(thoughts, wanted, candidates, self._permuted(thoughts, draws), strict=True):
            away = sorted((abs(next(logps) - own), number) for number in range(len(tried)))
            for draw, (_, number) in enumerate(away[:draws]):
                donor, thought = tried[number]
                versions.append(_Version(each, thought, draw, donor, dealt[draw]))
        return versions

    def _answered(self, versions: Sequence[_Version], redraw: bool) -> list[ProbeAnswer]:
        limits = [max(1, self._sampling.max_new_tokens - len(each.of.thought.ids)) for each in versions]
        of_answers = [
            self._uniforms(_OF_ANSWERS, each.of.problem, each.of.sample, each.draw, count=limit)
            for each, limit in zip(versions, limits, strict=True)
        ]
        if redraw:
            texts = [self._exchange.texts(each.thought) for each in versions]
            drawing = [
                self._uniforms(_OF_ARMS, each.of.problem, each.of.sample, each.draw, count=len(text))
                for each, text in zip(versions, texts, strict=True)
            ]
            prompts = [list(each.thought.prompt_ids) for each in versions]
            uniforms = [np.concatenate(both) for both in zip(drawing, of_answers, strict=True)]
            lengths = [len(text) + limit for text, limit in zip(texts, limits, strict=True)]
            sampled = self._sample(prompts, uniforms, lengths, texts)
            versions = [
                replace(each, thought=replace(each.thought, ids=tuple(ids[: len(text)])))
                for each, ids, text in zip(versions, sampled, texts, strict=True)
            ]
            answers = [ids[len(text) :] for ids, text in zip(sampled, texts, strict=True)]
        else:
            prompts = [[*each.thought.prompt_ids, *each.thought.ids] for each in versions]
            answers = self._sample(prompts, of_answers, limits)
        return self._scored(versions, answers)

    def _scored(self, versions: Sequence[_Version], answers: Sequence[list[int]]) -> list[ProbeAnswer]:
        grades = self._grades(
            [each.of.row for each in versions],
            [list(each.thought.prompt_ids) for each in versions],
            [[*each.thought.ids, *answer] for each, answer in zip(versions, answers, strict=True)],
        )
        donors = [None if each.donor is None else each.donor.gold for each in versions]
        own, without = [each.thought for each in versions], [each.without_donor or each.thought for each in versions]
        gold = self._gold_logps(versions, own, [each.of.gold for each in versions])
        of_donors, of_others = self._gold_logps(versions, own, donors), self._gold_logps(versions, without, donors)
        copies = self._copies_logps([each.thought for each in versions])
        threshold = self._grader.spec.threshold
        return [
            ProbeAnswer(
                each.of.problem,
                each.of.sample,
                each.draw,
                grade.score,
                None if grade.score is None or threshold is None else grade.score >= threshold - 1e-9,
                of_gold,
                of_donor,
                of_other,
                None if each.donor is None else each.donor.problem,
                of_copies,
                _exchanged(each),
                self._tokenizer.decode(self._without_end(answer)),
            )
            for each, answer, grade, of_gold, of_donor, of_other, of_copies in zip(
                versions, answers, grades, gold, of_donors, of_others, copies, strict=True
            )
        ]

    def _gold_logps(
        self, versions: Sequence[_Version], thoughts: Sequence[Thought], golds: Sequence[str | None]
    ) -> list[float | None]:
        """Of a gold answer in the place of the model's own, the words before it given; None where it has no place."""
        found: list[float | None] = [None] * len(versions)
        prefixes, ids, places = [], [], []
        for place, (version, thought, gold) in enumerate(zip(versions, thoughts, golds, strict=True)):
            in_place = None if gold is None else self._in_place(gold, version.of)
            if in_place is not None:
                prefixes.append([*thought.prompt_ids, *thought.ids, *in_place[0]])
                ids.append(in_place[1])
                places.append(place)
        for place, scores in zip(places, self._scores(prefixes, ids, "log_probs"), strict=True):
            found[place] = float(scores.sum())
        return found

    def _in_place(self, gold: str, recorded: RecordedThought) -> tuple[list[int], list[int]] | None:
        """The ids before a gold answer that stands where the model's own did, and its own with the one that ends it."""
        before, after = _around_answer(recorded)
        if self._tokenizer.convert_ids_to_tokens(self._policy.layout.think_open_id) in before:  # under other rules
            return None
        head, through, whole = (
            self._tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (before, before + gold, before + gold + after)
        )
        same = next((place for place, (a, b) in enumerate(zip(head, whole, strict=False)) if a != b), len(head))
        return whole[:same], whole[same : max(len(through), same) + 1]

    def _copies_logps(self, thoughts: Sequence[Thought]) -> list[float]:
        found: list[float] = []
        for start, end in self._batches(len(thoughts)):
            part = thoughts[start:end]
            prompts = [list(each.prompt_ids) for each in part]
            found += [
                float(each.sum()) for each in self._scores(prompts, [each.ids for each in part], "copy_log_probs")
            ]
        return found

    @torch.no_grad()
    def _scores(self, prefixes: Sequence[Sequence[int]], ids: Sequence[Sequence[int]], name: str) -> list[np.ndarray]:
        """What the region head says of the ids that follow each prefix."""
        if not prefixes:
            return []
        device, longest = self._model.device, max(len(a) + len(b) for a, b in zip(prefixes, ids, strict=True))
        inputs = torch.zeros(len(ids), longest, dtype=torch.long)
        mask, labels = torch.zeros_like(inputs), torch.full_like(inputs, -100)
        for row, (prefix, own) in enumerate(zip(prefixes, ids, strict=True)):
            begin = longest - len(prefix) - len(own)
            inputs[row, begin:] = torch.tensor([*prefix, *own])
            mask[row, begin:] = 1
            labels[row, longest - len(own) :] = torch.tensor(own)
        given = {"input_ids": inputs, "attention_mask": mask, "labels": labels}
        found = self._model(**{key: each.to(device) for key, each in given.items()}, fused_lm_head=True)[name]
        return [row[len(row) - len(own) :].double().cpu().numpy() for row, own in zip(found, ids, strict=True)]

    @torch.no_grad()
    def _sample(
        self,
        prompts: Sequence[Sequence[int]],
        uniforms: Sequence[np.ndarray],
        limits: Sequence[int],
        texts: Sequence[Sequence[int]] | None = None,
    ) -> list[list[int]]:
        """What follows each prompt, up to its own limit; the first texts of each are given, or none."""
        device, longest, steps = self._model.device, max(map(len, prompts)), max(limits)
        inputs, mask = torch.zeros(2, len(prompts), longest, dtype=torch.long)
        numbers = torch.zeros(len(prompts), steps, 2, dtype=torch.float64)
        given = torch.full((len(prompts), steps), -1)
        for row, prompt in enumerate(prompts):
            inputs[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = torch.tensor(prompt), 1
            numbers[row, : len(uniforms[row])] = torch.from_numpy(uniforms[row])
            if texts is not None:
                given[row, : len(texts[row])] = torch.tensor(texts[row])
        draw = TextFirstDraw(self._policy, self._sampling.temperature, numbers.to(device), given.to(device))
        with self._sampler.drawing(draw):
            output = self._model.generate(
                input_ids=inputs.to(device), attention_mask=mask.to(device), max_new_tokens=steps, do_sample=True
            )
        return [self._cut(ids, limit) for ids, limit in zip(output[:, longest:].tolist(), limits, strict=True)]

    def _cut(self, ids: list[int], limit: int) -> list[int]:
        """What was sampled up to the end of the turn."""
        ended = next((place + 1 for place, token in enumerate(ids) if token in self._end_ids), len(ids))
        return ids[: min(ended, limit)]

    def _without_end(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token not in self._end_ids]

    def _grades(
        self, rows: Sequence[Mapping[str, Any]], prompts: Sequence[list[int]], completions: Sequence[list[int]]
    ) -> list[Grade]:
        turns = [
            assistant_turn(self._tokenizer, self._checkpoint.layout, prompt, ids)
            for prompt, ids in zip(prompts, completions, strict=True)
        ]
        return self._grader.grades(rows, turns, completions)

    def _uniforms(self, purpose: int, *place: int, count: int) -> np.ndarray:
        return np.random.default_rng([self._sampling.seed, purpose, *place]).random((count, 2))

    def _random(self, arm: str, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._sampling.seed, _OF_ARMS, [*ARMS].index(arm), *place])

    def _batches(self, count: int) -> list[tuple[int, int]]:
        size = self._sampling.batch_size
        return [(start, min(start + size, count)) for start in range(0, count, size)]


def _exchanged(version: _Version) -> float:
    places = version.thought.places
    own, now = version.of.thought.ids, version.thought.ids
    return sum(own[place] != now[place] for place in places) / len(places) if places else 0.0


def _around_answer(recorded: RecordedThought) -> tuple[str, str]:
    """The model's own answer without what it found: where that stands in a box, else where it stands last."""
    text, answer = recorded.answer_text, recorded.answer
    for form in ("\\boxed{%s}", "%s"):
        if answer and (found := form % answer) in text:
            before, _, after = text.rpartition(found)
            opened, closed = form.split("%s")
            return before + opened, closed + after
    return "\\boxed{", "}"
