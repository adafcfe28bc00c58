"""Samples thoughts, exchanges their ids for others of the same text, and samples what is answered then.

Everything is drawn from random numbers of its own problem, sample and draw: the same answer comes out in whatever
batch, and in all arms by the same numbers, so that arms which leave the model's distributions as they are answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.evaluation.sampling import Checkpoint, SamplingSettings, chat_ids
from rlvr_vocab.record.probe import ARMS, ProbeAnswer
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
    """A thought as it was sampled, and the answer that followed; `row` is its problem."""

    problem: int
    sample: int
    row: Mapping[str, Any]
    thought: Thought
    answer_text: str
    answer: str | None


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
    ) -> tuple[list[RecordedThought], int]:
        """Thoughts on each problem, and how many completions had none that ended."""
        questions = [(problem, sample) for problem in range(len(rows)) for sample in range(samples)]
        prompts = chat_ids(self._tokenizer, [rows[problem]["prompt"] for problem, _ in questions])
        limit, found = self._sampling.max_new_tokens, []
        for start, end in self._batches(len(questions)):
            uniforms = [self._uniforms(_OF_THOUGHTS, *each, count=limit) for each in questions[start:end]]
            completions = self._sample(prompts[start:end], uniforms, [limit] * (end - start))
            grades = self._grades(
                [rows[problem] for problem, _ in questions[start:end]], prompts[start:end], completions
            )
            for (problem, sample), prompt, ids, grade in zip(
                questions[start:end], prompts[start:end], completions, grades, strict=True
            ):
                thought = self._exchange.thought(prompt, ids)
                if thought is not None:
                    text = self._tokenizer.decode(self._without_end(ids[len(thought.ids) :]))
                    found.append(RecordedThought(problem, sample, rows[problem], thought, text, grade.answer))
            on_progress(end)
        return found, len(questions) - len(found)

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
            dealt = self._permuted(thoughts, draws)
            return [
                _Version(each, *of_draw) for each, of_each in zip(thoughts, dealt, strict=True) for of_draw in of_each
            ]
        if arm == "transplanted":
            return self._transplants(thoughts, draws)
        return [_Version(each, self._version(arm, each, draw), draw) for each in thoughts for draw in range(draws)]

    def _permuted(self, thoughts: Sequence[RecordedThought], draws: int) -> list[list[tuple[Thought, int]]]:
        """For each thought its permutations with the number of their draw."""
        plain = [each.thought for each in thoughts]
        dealt = (self._exchange.permuted(plain, self._random("permuted", draw)) for draw in range(draws))
        return [[(thought, draw) for draw, thought in enumerate(of_each)] for of_each in zip(*dealt, strict=True)]

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
        golds = list(map(_gold, thoughts))
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
                versions.append(_Version(each, thought, draw, donor, dealt[draw][0]))
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
        gold = self._answer_logps([(each.of, each.thought, _gold(each.of)) for each in versions])
        of_donors, without = (
            self._answer_logps(
                [
                    (each.of, getattr(each, name) or each.thought, None if each.donor is None else _gold(each.donor))
                    for each in versions
                ]
            )
            for name in ("thought", "without_donor")
        )
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
                self._tokenizer.decode(self._without_end(answer)),
            )
            for each, answer, grade, of_gold, of_donor, of_other, of_copies in zip(
                versions, answers, grades, gold, of_donors, without, copies, strict=True
            )
        ]

    def _answer_logps(self, asked: Sequence[tuple[RecordedThought, Thought, str | None]]) -> list[float | None]:
        """Of a gold answer after a thought, in the words of the model's own answer, to the end of the turn."""
        texts = [None if gold is None else _answer_with(gold, recorded) for recorded, _, gold in asked]
        places = [place for place, text in enumerate(texts) if text is not None]
        end = [min(self._end_ids)] if self._end_ids else []
        prefixes = [[*asked[place][1].prompt_ids, *asked[place][1].ids] for place in places]
        answers = [[*self._tokenizer(texts[place], add_special_tokens=False)["input_ids"], *end] for place in places]
        found: list[float | None] = [None] * len(asked)
        for place, scores in zip(places, self._scores(prefixes, answers, "log_probs"), strict=True):
            found[place] = float(scores.sum())
        return found

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


def _gold(recorded: RecordedThought) -> str | None:
    return cell_text(recorded.row.get("solution"))


def _answer_with(gold: str, recorded: RecordedThought) -> str:
    """The model's own answer with a gold one in the place of what it found; a box where it found nothing."""
    before, found, after = recorded.answer_text.rpartition(recorded.answer) if recorded.answer else ("", "", "")
    return f"{before}{gold}{after}" if found else f"\\boxed{{{gold}}}"
