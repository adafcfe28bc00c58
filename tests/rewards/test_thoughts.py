"""What a reward reads of the thought: the library against its declarations, functions with known answers, the index."""

import itertools
import json
import random
import re
import statistics
from types import SimpleNamespace

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.guard import Reward
from rlvr_vocab.rewards.library import LIBRARY, judge
from rlvr_vocab.rewards.reward import RewardSpec, Score, reward
from rlvr_vocab.rewards.thoughts import ThoughtIds, read_thoughts
from tests.rewards.test_library import ENTRY, NEEDED, needs_gym

TAGS = ("<think>", "</think>")
IDS = ThoughtIds(1, 2, lambda text: list(map(ord, text)))  # an id a character; each tag is one


def ids_of(text):
    parts = re.findall(r"</?think>|.", text, re.DOTALL)
    return [{"<think>": 1, "</think>": 2}.get(part) or ord(part) for part in parts]


def row(problem, text, **columns):
    turn = [{"role": "assistant", "content": text}]
    return {"prompts": problem, "completions": turn, "completion_ids": ids_of(text), **columns}


def readings(functions, rows, ids=IDS, tags=TAGS, **more):
    rewards = [each if isinstance(each, Reward) else Reward(each, each.__name__) for each in functions]
    found = read_thoughts(rewards, rows, [each["prompts"] for each in rows], tags, ids, **more)
    by_name = {each["name"]: SimpleNamespace(**each) for each in found["rewards"]}
    return SimpleNamespace(**found), by_name


def parts_of(turn):
    """Thought and answer of a turn of these tests."""
    return turn[-1]["content"].removeprefix("<think>").split("</think>")


# --- the library ---

PIECES = (
    *("so 3 + 4 = 7", "wait", "\\boxed{7}", "<answer> 5 </answer> and more", "no no no no no", "(C)", '{"age": 7}'),
    *("<tool_call>", "```python\ndef f(): return 7\n```", "<reasoning>", "The answer is 7.", "12 21 34 43"),
)
ANSWERS = (
    *("\\boxed{7}", "<answer>7</answer>", "\\boxed{C}", '{"age": 7}', "```python\ndef f(): return 7\n```"),
    *("```python\ndef f(): return 8\n```", "\\boxed{8} <tool_call>", "7", "\\boxed{C} or \\boxed{D}"),
)
SLOW = [pytest.mark.slow]
MARKS = {"reasoning_gym": [*SLOW, needs_gym], "code_tests": SLOW, "json_format": SLOW}
PARAMS = {"length": {"longest": 60, "falloff": 90}, "overlong": {"max_completion_length": 160, "cache": 150}}
PARAMS |= {"cosine_length": {"max_completion_length": 160}, "diversity": {"threshold": 0.3}}
VARIANTS = [
    *(("length", {**PARAMS["length"], "unit": unit, "longest": 5}) for unit in ("words", "characters")),
    *(("repetition", {"unit": "words"}), ("llm_judge", {"sees": "turn"})),
    ("cosine_length", {"grader": "boxed"}),
]
CASES = [
    pytest.param(name, {**NEEDED.get(name, {}), **PARAMS.get(name, {}), **more}, marks=MARKS.get(name, ()))
    for name, more in [*((name, {}) for name in LIBRARY if LIBRARY[name].__name__ == name), *VARIANTS]
]


@pytest.mark.parametrize(("name", "params"), CASES)
def test_every_reward_of_the_library_reads_what_it_declares(name, params, monkeypatch):
    async def ask(asked, *_):
        return {key: Score(len(answer) % 11 / 10, "") for key, (_, answer, _) in asked.items()}

    monkeypatch.setattr(judge, "_ask", ask)
    params = {**params, "budget": 10**6} if name == "llm_judge" else params
    draw, found = random.Random(2), []
    for opened, closed in (TAGS, ("<reasoning>\n", "\n</reasoning>\n")):  # the second as XML wants it
        rows = []
        for problem, answer in itertools.product(range(4), ANSWERS):
            thought = " ".join(draw.choices(PIECES, k=draw.randint(0, 6))).replace(opened.strip(), "")
            solution = "C" if name == "multiple_choice" else "7"
            columns = {"solution": solution, "tests": "assert f() == 7", "entry": ENTRY}
            rows.append(row(str(problem), f"{opened}{thought}{closed}{answer}", **columns))
        tags = opened.strip(), closed.strip()
        ids = IDS if opened == TAGS[0] else None
        [built] = build_rewards([RewardSpec(name, params=params)], RewardContext(tags))
        found += readings([built], rows, ids, tags, costly=True)[1].values()
    assert found[0].declared is not None and any(each.measured for each in found)
    assert all(each.agrees for each in found), found
    # think_format looks at the tags, which no version touches.
    assert any(each.reads for each in found) == (found[0].declared != "nothing" and name != "think_format"), found


def test_a_declaration_that_is_wrong_or_misspelt_is_told():
    @reward(reads_thought="nothing")
    def keyword(completions, **columns):
        return [float("wait" in parts_of(turn)[0]) for turn in completions]

    rows = [row("p", f"<think>{word}</think>7") for word in ("wait", "so")]
    _, found = readings([keyword], rows)
    assert found["keyword"].reads and not found["keyword"].agrees
    assert "although it declares to read nothing" in found["keyword"].sentence
    with pytest.raises(UserError, match="reads_thought=word: should be nothing, form, length or words"):
        reward(reads_thought="word")(lambda completions: [])


# --- functions of one's own ---

noise = random.Random(7)


def by_turn(name, score):
    """A reward function of the thought and the answer of each turn."""
    return Reward(lambda completions: [score(*parts_of(turn)) for turn in completions], name)


async def judge_stub(completions, prompts):
    return [turn[-1]["content"].count("a") / 10 for turn in completions]


def distinct_ids(completions, completion_ids):
    return [len(set(ids)) for ids in completion_ids]


ANSWER_ALONE = by_turn("answer_alone", lambda thought, answer: float(len(answer)))
OWN = {
    judge_stub: True,
    distinct_ids: True,
    by_turn("total_length", lambda thought, answer: len(thought + answer)): True,
    by_turn("keyword", lambda thought, answer: "wait" in thought): True,
    by_turn("noisy_keyword", lambda thought, answer: ("wait" in thought) + 0.1 * noise.random()): True,
    by_turn("across_the_tag", lambda *turn: bool(re.search(r"(\d)</think>\D*\1", "</think>".join(turn)))): True,
    by_turn("thought_fits_answer", lambda thought, answer: thought.endswith(answer)): True,
    by_turn("flaky_form", lambda thought, answer: bool(thought) and noise.random() > 0.02): True,
    by_turn("at_random", lambda *turn: noise.random()): False,
    ANSWER_ALONE: False,
}


def test_functions_of_ones_own_are_named_rightly():
    draw, words = random.Random(0), ("wait", "a", "so 3", "banana 12", "7 + 8", "thus")
    thoughts = [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(128)]
    answers = [draw.choice(("3", "12", "8", "7", "so it is 8")) for _ in thoughts]
    turns = map("<think>{}</think>{}".format, thoughts, answers)
    found, by_name = readings(OWN, [row(str(number // 8), turn) for number, turn in enumerate(turns)])
    assert {name: each.reads for name, each in by_name.items()} == {each.__name__: reads for each, reads in OWN.items()}
    assert (found.completions, found.problems, found.left_out) == (128, 16, 0)
    assert json.loads(json.dumps(vars(found))) == vars(found)
    assert by_name["at_random"].share == pytest.approx(0, abs=0.2) and by_name["at_random"].moved["again"] == 1
    assert by_name["answer_alone"].sentence == "answer_alone reads nothing of the thought"
    number = r"[\d.]+"
    assert re.fullmatch(
        rf"keyword reads the thought: {number} % of its variance \({number} to 100\), exchanged thoughts move {number} "
        rf"% of scores, blank thoughts move {number} % of scores",
        by_name["keyword"].sentence,
    )


@pytest.mark.parametrize("weight", [0.0, 1.0, 3.0])
def test_the_share_is_the_index_by_its_definition(weight):
    draw = random.Random(1)
    pairs = {str(problem): [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(5)] for problem in range(6)}

    def score(thought, answer):
        return weight * float(thought or 0) + float(answer)

    squares, variances = [], []
    for group in pairs.values():
        for (own, answer), (other, _) in itertools.permutations(group, 2):
            squares.append((score(own, answer) - score(other, answer)) ** 2 / 2)
        variances.append(statistics.variance(score(*pair) for pair in group))
    rows = [row(name, "<think>{}</think>{}".format(*pair)) for name, group in pairs.items() for pair in group]
    found = readings([by_turn("additive", score)], rows)[1]["additive"]
    expected = min(statistics.mean(squares) / statistics.mean(variances), 1.0)
    assert found.share == pytest.approx(expected) and found.low <= found.share <= found.high


# --- what a function is asked ---


def test_only_the_thought_changes_in_texts_and_ids_and_messages():
    asked = []

    def spy(completions, completion_ids):
        asked.append(
            [(turn[0]["content"], turn[1:], ids) for turn, ids in zip(completions, completion_ids, strict=True)]
        )
        return [0.0] * len(completions)

    texts = {"p": ("ab cd <b> 12\nef", "x y", "z"), "q": ("alone",)}
    result = [{"role": "tool", "content": "<think>7</think>"}, {"role": "assistant", "content": "<think>!</think> 4 "}]
    rows = [row(name, f"Hm <think>{text}</think> 4 ", solution="gold 4") for name in texts for text in texts[name]]
    rows[0]["completions"] += result
    rows[0]["completion_ids"] = [*rows[0]["completion_ids"], 9, 9, *ids_of("<think>!</think> 4 ")]
    readings([spy], rows)
    as_it_was, again, *others = asked
    assert (
        as_it_was
        == again
        == [(each["completions"][0]["content"], each["completions"][1:], each["completion_ids"]) for each in rows]
    )
    own = [text for group in texts.values() for text in group]
    seen = [[text.removeprefix("Hm <think>").removesuffix("</think> 4 ") for text, *_ in call] for call in others]
    assert all(text.startswith("Hm <think>") and text.endswith("</think> 4 ") for call in others for text, *_ in call)
    *exchanged, blank, shuffled, gold = seen
    assert sorted(exchanged) == [[*own[1:3], own[0], "alone"], [own[2], *own[:2], "alone"]]
    assert blank == [""] * 4 and gold == ["gold 4"] * 4
    assert sorted(shuffled[0]) == sorted(own[0]) and "<b>" in shuffled[0] and shuffled[0][2] == " "
    for call in [*others[:-2], others[-1]]:
        first, *rest = call
        last = first[1][1]["content"]
        assert last == f"<think>{first[0][10:-11]}</think> 4 " and first[1][0] == result[0]
        assert first[2] == [*ids_of(first[0]), 9, 9, *ids_of(last)]
        assert [ids for *_, ids in rest] == [ids_of(text) for text, *_ in rest]


def test_completions_without_one_closed_thought_take_no_part():
    texts = ("<think>a", "b", "<think>a</think>b<think>c</think>d", "<think>a</think>1", "a</think>2")
    found, _ = readings([ANSWER_ALONE], [row("p", text) for text in texts])
    assert (found.completions, found.left_out) == (2, 3)


def test_what_cannot_be_measured_says_why():
    def fails(completions):
        raise KeyError("tests")

    @reward(sends=True)
    def sends(completions):
        return [0.0] * len(completions)

    rows = [row("p", "<think>a</think>1"), row("q", "<think>b</think>2")]
    _, found = readings([fails, distinct_ids, sends], rows, ids=None)
    assert [each.reads for each in found.values()] == [None] * 3 and not any(each.measured for each in found.values())
    sentences = [each.sentence.partition("not measured: ")[2] for each in found.values()]
    assert (
        sentences[0].startswith("it gives no score (raised KeyError: 'tests'") and "score thoughts=true" in sentences[2]
    )
    assert sentences[1].startswith("it takes completion_ids")
    _, found = readings([ANSWER_ALONE], rows, seconds=-1.0)
    assert found["answer_alone"].reads is None and "were late" in found["answer_alone"].sentence
    _, found = readings([ANSWER_ALONE], rows)
    assert found["answer_alone"].moved["exchanged"] is None and found["answer_alone"].reads is False
