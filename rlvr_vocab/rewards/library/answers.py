"""Rewards that compare the final answer with the gold answer: by value, letter by letter, as a number, as a choice."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, NonNegativeFloat

from rlvr_vocab.data.answers import gold_text, with_decimal_points
from rlvr_vocab.data.source import DecimalMark
from rlvr_vocab.rewards.reward import THINK_TAGS, Score, Tags, after_thinking, reward, turn_text
from rlvr_vocab.verify.boxed_answer import boxes_opened, final_answer, last_box
from rlvr_vocab.verify.cleaning import LETTER, ascii_latex
from rlvr_vocab.verify.quantities import DENIALS, PERCENT, UNITS_OF_TWO_LETTERS, changes_number
from rlvr_vocab.verify.reader import read, read_gold
from rlvr_vocab.verify.readings import Equality, Number, Reading
from rlvr_vocab.verify.scanning import TooLarge, Unreadable
from rlvr_vocab.verify.verifier import DEADLINE_SECONDS, TIMEOUT, verify

T = TypeVar("T")
Source = Literal["box", "answer_tag", "hash", "phrase"]  # a place where an answer may stand
AnswerFrom = Source | Annotated[Sequence[Source], Field(min_length=1)]
Deadline = Annotated[float, Field(ge=0.01)]
_NAMES_OF_TRL = ("accuracy_reward", "reasoning_accuracy_reward")
_NOT_TEXT = "the gold answer is a list or an object, which cannot be compared as text"


@reward(grades=True, verifies=True, answer_in="box", reads_thought="nothing", aliases=_NAMES_OF_TRL)
def accuracy(
    completions: Sequence[Any],
    solution: Sequence[Any],
    *,
    think_tags: Tags = THINK_TAGS,
    answer_from: AnswerFrom = "box",
    deadline: Deadline = DEADLINE_SECONDS,
    decimal_mark: DecimalMark = "point",
    **_columns: Any,
) -> list[Score]:
    r"""1 for a right answer, 0 for a wrong or missing one, None where the gold answer cannot be used.
    The answer is compared by value (`docs/rewards.md`, The verifier) and never accepted on doubt.

    >>> accuracy(["<think>6 * 7</think>\\boxed{42}", r"<think>\boxed{42}"], solution=["42", "42"])
    [1.0, 0.0]
    >>> accuracy.explain([r"\boxed{\frac24}", r"\boxed{0.6}"], solution=["1/2", "1/2"])
    [Score(value=1.0, reason='equal'), Score(value=0.0, reason='different: 0.6 is not 1/2')]
    """
    answers = [extracted_answer(turn_text(turn), think_tags, answer_from, decimal_mark) for turn in completions]
    verdicts = verify([gold_text(gold) for gold in solution], answers, deadline)
    return [Score(each.score, str(each), timed_out=each.reason == TIMEOUT) for each in verdicts]


def sources_of(answer_from: str | Sequence[str]) -> Sequence[str]:
    """The places where an answer may stand, the first place first; one may be named without a list."""
    return [answer_from] if isinstance(answer_from, str) else answer_from


def extracted_answer(
    turn: str, think_tags: Tags = THINK_TAGS, answer_from: AnswerFrom = "box", decimal_mark: DecimalMark = "point"
) -> str | None:
    """The final answer of a turn as `accuracy` finds it; None where there is none, or thinking was never closed."""
    text = _answering(turn, think_tags, decimal_mark)
    return None if text is None else final_answer(text, sources_of(answer_from))


def _answering(turn: str, think_tags: tuple[str, str], decimal_mark: DecimalMark) -> str | None:
    """The part of a turn after its thinking, with decimal points: with commas, boxes would look like lists."""
    text = after_thinking(turn, think_tags)
    return with_decimal_points(text) if text and decimal_mark == "comma" else text


@reward(grades=True, answer_in="box", reads_thought="nothing")
def exact_match(
    completions: Sequence[Any],
    solution: Sequence[Any],
    *,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer reads like the gold answer, letter by letter; 0 where not; None without a gold answer.

    >>> exact_match(["It is \\boxed{Paris}", "<think>Rome?</think>\nparis", "Paris!"], solution=["Paris"] * 3)
    [1.0, 0.0, 0.0]
    >>> exact_match(["<think>Rome?</think>\nparis."], ["Paris"], ignore_case=True, ignore_punctuation=True)
    [1.0]
    """

    def normal(text: str) -> str:
        if ignore_punctuation:
            text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
        return " ".join((text.casefold() if ignore_case else text).split())

    def judge(answer: str, in_box: bool, expected: str) -> Score:
        return Score(1.0, "equal") if normal(answer) == expected else Score(0.0, "differs from the gold answer")

    return _scores(completions, solution, think_tags, lambda gold: normal(gold) or None, "no gold answer", judge)


@reward(grades=True, answer_in="box", reads_thought="nothing")
def numeric(
    completions: Sequence[Any],
    solution: Sequence[Any],
    *,
    absolute_tolerance: NonNegativeFloat = 0.0,
    relative_tolerance: NonNegativeFloat = 0.0,
    think_tags: Tags = THINK_TAGS,
    decimal_mark: DecimalMark = "point",
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer is the gold number, within a tolerance; 0 where not; None where the gold is no number.

    >>> numeric(["\\boxed{\\frac{3}{4}}", "3 of 4, so 0.75.", "\\boxed{3\\sqrt{2}}"], solution=["0.75", "3/4", "3"])
    [1.0, 1.0, 0.0]
    >>> numeric(["\\boxed{3.14}", "\\boxed{3.1}"], solution=["3.14159"] * 2, absolute_tolerance=0.01)
    [1.0, 0.0]
    """
    absolute, relative = Fraction(str(absolute_tolerance)), Fraction(str(relative_tolerance))

    def judge(answer: str, in_box: bool, expected: Number) -> Score:
        given = whole_text_number(answer) if in_box else last_number(answer)
        if given is None:
            return Score(0.0, "the box is not a number" if in_box else "no number in the answer")
        distance = _distance(given, expected)
        if distance <= max(absolute, relative * abs(expected.value)):
            return Score(1.0, "within the tolerance" if distance else "equal")
        return Score(0.0, "another number")

    no_gold, gold_number = "the gold answer is not a number", partial(whole_text_number, read=read_gold)
    return _scores(completions, solution, think_tags, gold_number, no_gold, judge, decimal_mark)


@reward(grades=True, answer_in="box", reads_thought="nothing")
def multiple_choice(
    completions: Sequence[Any],
    solution: Sequence[Any],
    *,
    letters: Annotated[str, Field(pattern="^[A-Z]+$")] = "ABCDEFGHIJ",
    think_tags: Tags = THINK_TAGS,
    **_columns: Any,
) -> list[Score]:
    r"""1 where the answer names the right choice and no other; 0 where not; None where the gold names not one letter.

    >>> turns = ["<think>A? B?</think>\\boxed{\\text{(C)}}", "The answer is C.", "\\boxed{B or C}", "\\boxed{A}"]
    >>> multiple_choice(turns, solution=["C"] * 4)
    [1.0, 1.0, 0.0, 0.0]
    """

    def gold_letter(gold: str) -> set[str] | None:
        label = _Patterns(letters).label.match(_without_markup(gold))  # its text aside
        named = letters_named(gold, letters) or ({label[1]} if label else set())
        return named if len(named) == 1 else None

    def judge(answer: str, in_box: bool, expected: set[str]) -> Score:
        given = letters_named(answer, letters) if in_box else letters_concluded(answer, letters)
        if len(given) != 1:
            return Score(0.0, f"{len(given)} different letters" if given else "no letter")
        return Score(1.0, "the right letter") if given == expected else Score(0.0, f"{given.pop()} is wrong")

    return _scores(completions, solution, think_tags, gold_letter, "the gold answer is not one letter", judge)


def _scores(
    completions: Sequence[Any],
    solution: Sequence[Any],
    think_tags: tuple[str, str],
    read_gold: Callable[[str], T | None],
    no_gold: str,
    judge: Callable[[str, bool, T], Score],
    decimal_mark: DecimalMark = "point",
) -> list[Score]:
    """Each answer judged against its gold answer as `read_gold` reads it; None, with `no_gold`, where it reads none.

    `judge` gets the contents of the last box and True, or without a box all that follows the thinking and False.
    """

    def score(completion: Any, gold: Any) -> Score:
        text = gold_text(gold)
        expected = None if text is None else read_gold(text if (box := last_box(text)) is None else box)
        if expected is None:
            return Score(None, _NOT_TEXT if text is None else no_gold)
        answer = _answering(turn_text(completion), think_tags, decimal_mark)
        if answer is None:
            return Score(0.0, "thinking never closed")
        if (box := last_box(answer)) is not None:
            return judge(box, True, expected)
        # A box that is cut off may hold another answer.
        return Score(0.0, "the box is not closed") if boxes_opened(answer) else judge(answer, False, expected)

    return [score(completion, gold) for completion, gold in zip(completions, solution, strict=True)]


def _distance(given: Number, expected: Number) -> Fraction:
    """How far apart two numbers are, in the units of the expected one.

    A percent sign on one side alone is left out where the gold number is above 1: 50 % is 50, and it is 1/2, but 0.5 %
    is not 1/2. Of a gold answer in per cent the fraction is right too.
    """
    values, is_large = [given.value], abs(expected.value) > 1
    if given.unit == PERCENT != expected.unit and not is_large:
        values = [given.value / 100]
    if given.unit != PERCENT == expected.unit:
        values = [given.value * 100, given.value] if is_large else [given.value * 100]
    return min(abs(value - expected.value) for value in values)


_WRAPPING = re.compile(r"\\(?:text(?:bf|it|rm|sf)?|math(?:bf|rm|sf|it)|mbox|boxed|fbox|bf|rm|q?quad)(?![A-Za-z])")
_MARKUP_SIGNS = str.maketrans("", "", "{}$*`\"'\\")
_LONGEST_NAMED = 300  # characters of a box, or of an answer that is nothing but a choice and its text
_SEARCHED = 20_000  # characters, from the end, in which a named choice or the last number is looked for


def letters_named(text: str, letters: str) -> set[str]:
    r"""The different letters of `letters` that a box or a short answer names, lower case only where it stands alone.

    A choice may be followed by its text where a sign (`(C)`, `C.`, `C:`) sets it apart, unless that takes it back.
    """
    if len(text) > _LONGEST_NAMED:
        return set()
    plain, patterns = _without_markup(text), _Patterns(letters)
    for form in (patterns.alone, patterns.several, patterns.labelled):
        if found := form.fullmatch(plain):
            return {letter.upper() for letter in patterns.bare.findall(found["named"])}
    return set()


def letters_concluded(answer: str, letters: str) -> set[str]:
    """The different letters that an answer without a box concludes: of `Option A is too small, so it is C.` C alone."""
    lines = re.sub(r"(?<=[^\s:])[^\S\n]*\n\s*", " ⏎ ", answer[-_SEARCHED:].strip())
    plain, patterns = _without_markup(lines), _Patterns(letters)
    for sentence in (patterns.concluded, patterns.option):
        found = [match for match in sentence.finditer(plain) if not _is_denied(plain, match)]
        named = {letter for match in found for letter in patterns.bare.findall(match["named"])}
        if named:
            return named
    return letters_named(answer, letters) if patterns.opening.match(plain) else set()


def _is_denied(plain: str, choice: re.Match[str]) -> bool:
    """Whether the words before a choice, in its clause, or those behind it take it back."""
    clause = _CLAUSE.split(plain[max(0, choice.start() - _LONGEST_NAMED) : choice.start()])[-1]
    behind = _SENTENCE_END.split(plain[choice.end() : choice.end() + _LONGEST_NAMED])[0]
    last = choice["named"].rstrip()[-1]
    takes_back = _GOES_ON if last.isalpha() else _TAKES_BACK
    return _DENIED.search(clause) is not None or (last != "." and takes_back.match(behind) is not None)


def _without_markup(text: str) -> str:
    return " ".join(_WRAPPING.sub(" ", text.replace("’", "'")).replace("n't", " not").translate(_MARKUP_SIGNS).split())


_DENY = rf"(?:{'|'.join(sorted(DENIALS))}|(?:exclud|eliminat|reject|discard)\w*|rul\w+ out|but|if|unlikely)"
_DENIED = re.compile(rf"\b{_DENY}\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!]\s")
_CLAUSE = re.compile(r"[.,;:!?⏎]\s|\b(?:so|thus|hence|therefore|then)\b")
_RIGHT = r"is (?:the |most likely )?(?:correct|right|best|answer|only)"
_VERBS = r"is|was|are|were|can|could|may|might|must|does|did|would|should|seems|looks|has"
# A letter without a sign may be followed by its verb and reasons; other words make it a part of something else.
_GOES_ON = re.compile(
    rf"\s?(?:(?:{_VERBS})? ?\b(?:{_DENY})\b|[A-Z]\b|\?|[A-Z][a-z]"
    rf"|(?!(?:{_VERBS}|because|since|as|which|for|due|given|where|with|here|by)\b)[a-z])"
)
# A text behind a choice that takes it back.
_TAKES_BACK = re.compile(
    rf"\s?(?i:(?!{_RIGHT})(?:{_VERBS}|or|and|but|if)\b"
    r"|.*\b(?:wrong|incorrect|invalid|instead|rather|actually|wait|maybe|perhaps|possibly|probably|unsure|guess|except"
    r"|excluded|eliminated|rejected|discarded|not (?:the )?(?:correct|right|answer))\b|\W*(?:not?|never|nope)\W*\Z)"
)


@lru_cache(maxsize=8)
class _Patterns:
    """The ways to name one of a set of letters."""

    def __init__(self, letters: str) -> None:
        letter, word = f"[{letters}](?![A-Za-z0-9+#])", "(?i:option|choice|answer)"
        one, joint = rf"[(\[]?\s?{letter}\s?[)\]]?[.:]?", r"(?:\s?(?:[,;/&]|(?i:or|and|also|maybe|perhaps|possibly)\b))"
        lead = rf"(?i:(?:so|thus|hence|therefore|final|correct|right|best|the),? )*(?:{word}(?:\s?(?i:is|[:=]))*\s?)?"
        is_right = r"(?: is (?:the )?(?:correct|right)?(?: ?(?:answer|option|choice))?)?"
        self.alone = re.compile(rf"{lead}(?P<named>[(\[]?\s?(?i:{letter})\s?[)\]]?){is_right}[.:,]?")
        self.several = re.compile(rf"{lead}(?:(?i:both|either)\s)?(?P<named>{one}(?:{joint}*+\s?{one})++)")
        another = rf"\({letter}\)|(?<![A-Za-z(]){letter}[.):]|(?:\b(?:or|and|not|is)|[,;:/&=–—-])\s?\(?{letter}"
        content = rf"(?!{_TAKES_BACK.pattern})(?!\W*{letter}\W*\Z)(?:(?!{another}).)*"
        set_apart = rf"\(\s?{letter}\s?\)|\[{letter}\]|{letter}(?=\s?[.):,=–—-]|\s\(|[^A-Za-z?]*\Z)"
        self.labelled = re.compile(rf"{lead}(?P<named>{set_apart})[\s.):,=–—-]*{content}")
        self.bare = re.compile(rf"(?<![A-Za-z])(?:{letter}|(?i:{letter})(?=\W*\Z))")
        several = rf"(?P<named>{one}(?:{joint}*+\s?{one})*+)"
        self.concluded = re.compile(rf"\b{word}(?:\s?(?i:is|[:=⏎]))+\s?(?:{word}\s?)?{several}")
        self.option = re.compile(rf"\b(?i:option|choice)\s?{several}")
        self.label = re.compile(rf"\(?\s?({letter})\s?[.):]")
        self.opening = re.compile(rf"\(?\s?(?i:{letter})\s?(?:[.):]| is |$)")


# The first digit of a number that is no index, no exponent and no part of a word.
_NUMBER = re.compile(r"(?:(?<![\w.^])(?<![\w.],)(?<![_^]\{)|(?<=frac))\.?[0-9][0-9.,]*")
_BULLET = re.compile(r"\A\s*(?:[-*•]|[0-9]+[.)])\s+(?=\S)")
_ENDS = re.compile(
    r"(?<![<>!])=$|[:,;.→⇒∴]$|\\(?:approx|simeq|doteq|(?:Long)?[Rr]ightarrow|implies|to|therefore|q?quad)$"
)
_UNIT_OR_ARTICLE = re.compile(r"(?:[mgslhLd](?![A-Za-z])|[aAI]\W*$|[ap]\.m)")
_FONT = re.compile(r"\\(?:text|math|mbox|hbox)[a-z]*\{((?:[^{}]|\{[^{}]*\})*+)\}")
# Between a number and a unit, `25ml` and `$7/year`, where this is no product and no quotient of variables.
_UNIT_BEHIND = re.compile(
    rf"(?<=[0-9])/?(?=(?:[{LETTER}]{{3,}}|[gmlLh]|{'|'.join(UNITS_OF_TWO_LETTERS)})(?![{LETTER}]))"
)
# Check marks and faces, and the signs that end a proof.
_PICTURE = re.compile("[\u25a0-\u25ff\u2600-\u27bf\ufe0f\U0001f300-\U0001faff∎]")
_CONNECTING = frozenset(("a", "an", "and", "be", "into", "is", "of", "out", "the", "was", "von", "de", "di", "und"))
_TIMES = ("times", "mal", "fois", "veces", "vezes", "volte")
_BELONGING = DENIALS.union(("least", "most", "negative", "than"))


def whole_text_number(text: str, read: Callable[[str], Reading] = read) -> Number | None:
    """The number that a text consists of, a variable before it and a unit after it allowed; None for anything else."""
    try:
        reading = read(text)
    except (TooLarge, Unreadable):
        return None
    if isinstance(reading, Equality) and reading.name is not None and len(reading.values) == 1:
        [reading] = reading.values
    return reading if isinstance(reading, Number) else None


def last_number(text: str) -> Number | None:
    """The last number of a text, with the scale or formula that it belongs to; None without one, or for no number.

    Digits within words and exponents are left out: of `12 eggs, 5 million` 5,000,000, of `x - 5` None.
    """
    for line in reversed(text[-_SEARCHED:].splitlines()):
        line = _BULLET.sub("", ascii_latex(line.replace("—", ", ")), count=1)
        line = re.sub(r"\\?\$", "", re.sub(r"\*\*|\\[()\[\],;:! ]|`", " ", _FONT.sub(r" \1", line)))
        line = _UNIT_BEHIND.sub(" ", re.sub(r" ?(?:\\?%|(?:per|pour|por) ?c(?:ent|i?ento)\b)", r"\\%", line))
        line = re.sub(r"(?<![<>!])=|(?<=[A-Za-z]):(?=\S)", r" \g<0> ", _PICTURE.sub(" ", line))
        if found := list(_NUMBER.finditer(line)):
            return whole_text_number(_with_what_belongs(line, found[-1].start()))
    return None


def _with_what_belongs(line: str, start: int) -> str:
    """The word that begins before or at a place, with the formula, the scale or the denial that it stands in."""
    begin = line.rfind(" ", 0, start) + 1
    before, (word, *behind) = line[:begin].split(), line[begin:].split()
    run = [word]
    while before and not _ENDS.search(before[-1]) and (run[0] in "+-*/" or _belongs(before[-1:-5:-1])):
        run.insert(0, before.pop())
    while behind and not _ENDS.search(run[-1]) and not _ENDS.fullmatch(behind[0]) and _belongs(behind[:4], _TIMES):
        run.append(behind.pop(0))
    return " ".join(run).lstrip("()[]\"',;:?# ").rstrip("()[]\"'.,;:?# ")


def _belongs(words: Sequence[str], also_connecting: Sequence[str] = ()) -> bool:
    """Whether the first of words beside a number is a part of a formula, a scale or a denial, or leads on to one."""
    word = words[0].strip("()[]{}\"'.,;:?")
    if word in _CONNECTING or word in also_connecting:
        return len(words) > 1 and not re.search("[0-9]", words[1]) and _belongs(words[1:])
    if not re.search(f"[{LETTER}]{{2}}", re.sub(r"\\[A-Za-z]+", "", word)):
        return not _UNIT_OR_ARTICLE.match(word)
    return changes_number(word) or word.lower() in _BELONGING or word.endswith("n't")
