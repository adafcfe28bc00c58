"""The keys that fit the columns of a file, guessed from names and cells: for messages, never for reading."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from rlvr_vocab.data.answers import NEARLY_ALL, cell_at, column_names, decimal_comma, gold_text, is_blank, unread_marker
from rlvr_vocab.data.choices import asked_in, readings_that_fit
from rlvr_vocab.data.source import ProblemSource, fields_of

# Names of columns in lower case, the likeliest first; other names may have one of them as a word.
_PROBLEMS = (
    *("problem", "question", "prompt", "instruction", "query", "stem", "sentence", "ctx", "goal", "input", "content"),
    *("text", "statement", "frage"),
)
_ANSWERS = (
    *("answer", "final_answer", "answerkey", "answer_key", "correct_answer", "best_answer", "correct_option"),
    *("answer_idx", "correct", "target", "label", "gold", "ground_truth", "answers.text.0", "cop", "result", "antwort"),
    *("output", "solution"),
)
_COMPLETIONS = ("response", "generation", "prediction", "output", "antwort", "text")
_TESTS = ("tests", "test", "test_list", "input_output", "test_code", "test_cases")
# All choices of a question, one choice per column, and material that the question refers to.
_CHOICES = re.compile(r"(?:answer_?)?(?:choices?|options?)|alternatives|candidates|endings|mc\d_targets", re.IGNORECASE)
_ONE_CHOICE = re.compile(r"(?:choice|option|opt?|sol|ending)_?(?:[a-h]|\d)|[a-h]", re.IGNORECASE)
_RIGHT_CHOICE = re.compile(r"(?:correct|right|best)[ _]?answer|answer", re.IGNORECASE)  # GPQA, SciQ, TruthfulQA
_WRONG_CHOICES = re.compile(r"(?i:(?:incorrect|wrong)[ _]?answer[ _]?\d*|distractors?[ _]?\d*)|incorrect_answers")
MATERIAL = re.compile(
    r"(?:context|ctx|passage|paragraph|article|document|background)s?|body|story|premise|input|starter_code"
    r"|(?:image|table|figure|diagram|picture)(?:_?\d+|s)?|(?:pre|post)_text",
    re.IGNORECASE,
)
_AFTERWARDS = ("input", "starter_code")  # material that follows some questions
_LONGEST_ANSWER = 200  # characters of an answer that is no worked solution
_WRITE_PROGRAM = "Think between <think> and </think>, then write the whole program in one block of Python."
Rows = Sequence[Mapping[str, Any]]


def suggested_keys(rows: Sequence[object], source: ProblemSource, missing: str) -> str:
    """What to type for a file that lacks the column of the key `missing`; "" where nothing fits."""
    few = [row for row in rows[:200] if isinstance(row, dict)]
    names = column_names(few)
    if source.header is None and (advice := header_keys(names, [row.get(names[-1]) for row in few])):
        return advice
    paths = list(dict.fromkeys(path for row in few for path in _paths(row)))
    named = _named((source.columns.problem, *_PROBLEMS), paths, few, _asks)
    problem = next(iter(named or _by_length(paths, few)), None)
    if problem is None:
        return ""
    material = _material(few, problem)
    joined = joined_columns(problem, material)
    keys: dict[str, Any] = {"dataset.prompt": joined} if material else {"dataset.columns.problem": problem}
    paths = [path for path in paths if path not in (problem, *material)]
    answers = _golds((source.columns.answer or "", *_ANSWERS), paths, few)
    reward = ""
    if tests := _named(_TESTS, paths, few, _tests):
        keys |= {"dataset.columns.tests": tests[0], "dataset.columns.answer": "null"}
        keys["dataset.system_prompt"], reward = _WRITE_PROGRAM, "code_tests"
    elif found := _choice_keys(paths, answers, few):
        keys, reward = keys | found, "multiple_choice"
    elif found := next(filter(None, (_answer_keys([cell_at(row, path) for row in few], path) for path in answers)), {}):
        if {gold_text(cell_at(row, found["dataset.columns.answer"])) for row in few} <= {"true", "false"}:
            keys = {"dataset.prompt": f"{joined}\\nAnswer true or false."}
        keys |= found
    else:
        return f"type {typed_keys(keys)} and dataset.columns.answer=…, or =null if there are no answers"
    train = f"; train with 'rewards=[{reward}]' too" * bool(reward)
    fits = missing in keys or missing in ("dataset.columns.problem", "dataset.prompt")
    return f"type {typed_keys(keys)}{train}" if fits else ""


def completion_keys(rows: Rows) -> str:
    """The columns of completions and of gold answers, as `score` takes them; "" where nothing fits."""
    few = rows[:200]
    problems = _named(_PROBLEMS, column_names(few), few, _asks)
    names = [name for name in column_names(few) if name not in problems]
    completions = (_named(_COMPLETIONS, names, few, _asks) or _by_length(names, few))[:1]
    golds = _golds(_ANSWERS, [name for name in names if name not in completions], few)
    found = [*completions, *golds] if completions else []
    return typed_keys(dict(zip(("completion_column", "solution_column"), found, strict=False)))


def header_keys(names: Sequence[str], cells: Sequence[Any]) -> str:
    """What to type for a table whose last column holds answers from its first line on; "" for others."""
    last, letters = [str(cell) for cell in (*names[-1:], *cells)], tuple("ABCDEFGHIJ"[: len(names) - 2])
    if len(letters) > 1 and all(re.fullmatch("[A-J]", cell) for cell in last):
        keys = typed_keys({"dataset.header": ("problem", *letters, "answer"), "dataset.columns.choices": letters})
        return f"if its first line is a row, type {keys}; train with 'rewards=[multiple_choice]' too"
    are_numbers = len(names) == 2 and all(re.fullmatch(r"[-+]?\d[\d.,]*", cell) for cell in last)
    return "if its first line is a row, type 'dataset.header=[problem,answer]'" * are_numbers


def joined_columns(problem: str, material: Sequence[str]) -> str:
    """A template of a problem and its material."""
    before = "".join(f"{{{name}}} " for name in material if name.lower() not in _AFTERWARDS)
    after = "".join(f"\\n\\n{{{name}}}" for name in material if name.lower() in _AFTERWARDS)
    return f"{before}{problem if fields_of(problem) else f'{{{problem}}}'}{after}"


def typed_keys(keys: Mapping[str, Any]) -> str:
    """Keys as a shell takes them."""
    texts = {key: value if isinstance(value, str) else f"[{','.join(value)}]" for key, value in keys.items()}
    return shlex.join(f"{key}={text}" for key, text in texts.items())


def _named(names: Sequence[str], paths: Sequence[str], few: Rows, fits: Callable[[Any], bool]) -> list[str]:
    """The paths whose cells fit: those of a name first, else the only one that has a name as a word."""
    fitting = [path for path in paths if sum(fits(cell_at(row, path)) for row in few) >= NEARLY_ALL * len(few)]
    by_name = [path for name in names for path in fitting if name in (path, _last(path).lower().replace(" ", "_"))]
    by_word = [path for path in fitting if set(names) & set(re.split(r"\W|_", _last(path).lower()))]
    return sorted(dict.fromkeys(by_name), key=lambda path: path.count(".")) or by_word * (len(by_word) == 1)


def _golds(names: Sequence[str], paths: Sequence[str], few: Rows) -> list[str]:
    return _named(names, paths, few, lambda cell: bool(gold_text(cell))) or _by_brevity(paths, few)


def _by_length(paths: Sequence[str], few: Rows) -> list[str]:
    """The columns of texts: those with most questions first, then the longest."""
    texts = {path: [cell for row in few if isinstance(cell := cell_at(row, path), str)] for path in paths}
    fitting = [path for path in paths if len(texts[path]) >= NEARLY_ALL * len(few)]
    return sorted(fitting, key=lambda path: (-sum("?" in cell for cell in texts[path]), -sum(map(len, texts[path]))))


def _by_brevity(paths: Sequence[str], few: Rows) -> list[str]:
    """The columns that may hold answers: numbers first, then varied texts, the shortest of each first."""
    numbered = [[str(number) for number in range(start, start + len(few))] for start in (0, 1)]
    found = []
    for path in paths:
        texts = [gold_text(cell_at(row, path)) or "" for row in few]
        is_number = sum(bool(re.match(r"[-+]?\d", text)) for text in texts) >= NEARLY_ALL * len(few)
        is_varied = 2 * len({*texts}) > len(few)  # unlike subjects and levels
        is_filled = sum(map(bool, texts)) >= NEARLY_ALL * len(few) and texts not in numbered
        if is_filled and (is_varied or (is_number and len({*texts}) > 1)):
            found.append((not is_number, not is_varied, sum(map(len, texts)), path))
    return [path for *_, path in sorted(found)]


def _paths(cell: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all cells, of those in objects, and of a list's only text or number."""
    for name, value in cell.items():
        path = f"{prefix}{name}"
        yield f"{path}.0" if isinstance(value, list) and len(value) == 1 and gold_text(value[0]) else path
        if isinstance(value, Mapping):
            yield from _paths(value, f"{path}.")


def _last(path: str) -> str:
    return path.removesuffix(".0").rpartition(".")[2]


def _asks(cell: Any) -> bool:
    is_chat = isinstance(cell, list) and all(isinstance(each, Mapping) and "role" in each for each in cell)
    return not is_blank(cell) and (is_chat or isinstance(cell, str))


def _tests(cell: Any) -> bool:
    text = cell if isinstance(cell, str) else json.dumps(cell, default=str)
    return "assert" in text or all(re.search(rf'"{name}s?"', text) for name in ("input", "output"))


def _material(few: Rows, problem: str) -> list[str]:
    """The columns of texts that most problems refer to, but do not hold, and those that follow some problems."""
    counts: dict[str, int] = {}
    for row in few:
        for name, cell in row.items():
            if MATERIAL.fullmatch(name) and isinstance(cell, str) and cell not in str(cell_at(row, problem)):
                counts[name] = counts.get(name, 0) + 1
    return [name for name, count in counts.items() if name.lower() in _AFTERWARDS or 2 * count > len(few)]


def choice_columns(paths: Sequence[str]) -> list[str | tuple[str, ...]]:
    """Each column that is named like a list of choices, then those together that are named like one choice each."""
    single = tuple(path for path in paths if _ONE_CHOICE.fullmatch(path))
    right = [path for path in paths if _RIGHT_CHOICE.fullmatch(path)]
    wrong = tuple(path for path in paths if _WRONG_CHOICES.fullmatch(path))
    grouped = [single] * (len(single) > 1) + [(each, *wrong) for each in right if wrong]
    return [*(path for path in paths if _CHOICES.fullmatch(_last(path))), *grouped]


def _choice_keys(paths: Sequence[str], answers: Sequence[str], few: Rows) -> dict[str, Any]:
    """The columns of choices and of the answer that names one of them."""
    for columns, answer in product(choice_columns(paths), answers):
        asked = asked_in(few, columns, partial(cell_at, column=answer))
        if len(asked) >= NEARLY_ALL * len(few) and readings_that_fit(asked):
            return {"dataset.columns.choices": columns, "dataset.columns.answer": answer}
    return {}


def _answer_keys(cells: Sequence[Any], path: str) -> dict[str, Any]:
    """The column of answers and their format; none for worked solutions without a marked answer."""
    texts = [gold_text(cell) or "" for cell in cells]
    is_short = sum(len(text) <= _LONGEST_ANSWER for text in texts) >= NEARLY_ALL * len(texts)
    decimal = {"dataset.decimal": "comma"} if decimal_comma(texts) else {}
    if answer_format := unread_marker(texts):
        return {"dataset.columns.answer": path, "dataset.answer_format": answer_format} | decimal
    return {"dataset.columns.answer": path} | decimal if is_short else {}
