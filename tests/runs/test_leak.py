"""No held-out problem is trained on, however it is written: a planted `origin` names the problem of each row."""

import json
import random
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.sections import problem_source, problem_split
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.runs.problems import load_run_problems

PROBLEMS = 24
TEXTS = (
    r"Find $x$ if $\frac{{{n}}}{{2}} \cdot x = {n}{{,}}000$.",
    "Anna has {n} apples and Bob's sister has “{m}” pears. How many pieces of fruit are there?",
    r"Compute $\left({n} x - {m}\right)^2$ for $x = 3$.",
    "What is |x - {n}|, when x < {n}?",
)
KINDS: tuple[tuple[Callable[[str], str], ...], ...] = (
    (str.lower, str.upper, str.title),
    (
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: f"\n\t{text.replace(' ', '  ')} \n",
        lambda text: "\ufeff" + text.replace(" ", " \u200b"),
    ),
    (
        lambda text: text.rstrip("?.") + " …",
        lambda text: text.replace("“", '"').replace("”", '"').replace("'", "’"),
        lambda text: text.replace("-", "−"),
    ),
    (
        lambda text: text.replace(r"\frac", r"\dfrac").replace(r"\cdot ", r"\, \cdot\,"),
        lambda text: text.replace("$", "$$").replace(r"\left", "").replace(r"\right", ""),
        lambda text: text.replace("{,}", ",").replace("^2", "²").replace("<", "&lt;"),
    ),
)
NUMBERING = ("Problem {}: ", "{}. ", "({}) ", "Q{}) ", "#{} ", "**Task {}.** ")


def problem(number: int) -> str:
    return TEXTS[number % len(TEXTS)].format(n=3 * number + 2, m=5 * number + 7)


def copy_of(text: str, chance: random.Random) -> str:
    """The same problem in another writing; numbered first, since a number stands in front of all else."""
    if chance.random() < 0.4:
        text = chance.choice(NUMBERING).format(chance.randint(1, 40)) + text
    for kind in chance.sample(KINDS, chance.randint(1, 4)):
        text = chance.choice(kind)(text)
    return text


def planted(numbers: list[int], chance: random.Random) -> list[dict[str, object]]:
    """A row for each number, a repeated one in another writing."""
    rows, seen = [], set()
    for number in numbers:
        text = copy_of(problem(number), chance) if number in seen or chance.random() < 0.5 else problem(number)
        seen.add(number)
        rows.append({"problem": text, "answer": str(1000 + number), "origin": number})
    return rows


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def drawn(chance: random.Random) -> list[int]:
    numbers = [*range(PROBLEMS), *(chance.randrange(PROBLEMS) for _ in range(chance.randint(4, 30)))]
    chance.shuffle(numbers)
    return numbers


def files_and_words(folder: Path, chance: random.Random, kind: str) -> tuple[list[dict[str, object]], list[str]]:
    """The rows to train on, and the words that divide them as the kind of split says."""
    rows = planted(drawn(chance), chance)
    train = written(folder / "train.jsonl", rows)
    words = ["model=tiny", "dataset=local", f"dataset.name={train}", f"seed={chance.randint(0, 999)}"]
    words += ["training.per_device_train_batch_size=4", "training.num_generations=2", "rewards=[accuracy]"]
    words.append("training.gradient_accumulation_steps=1")
    if kind == "file":
        held_out = planted(chance.sample(range(PROBLEMS), 6), chance)
        words.append(f"dataset.eval_split={written(folder / 'test.jsonl', held_out)}")
    else:
        words.append(f"dataset.eval_fraction={chance.choice([0.1, 0.25, 0.4])}")
    words += [f"dataset.max_eval_samples={chance.choice(['2', 'null'])}"] if kind != "fraction" else []
    if kind == "stages":
        other = written(folder / "other.jsonl", planted(drawn(chance), chance))
        words.append(
            "stages=[{name:own},{name:cut,dataset:{eval_fraction:0.05}},"
            f"{{name:other,dataset:{{name:'{other}',eval_fraction:0}}}}]"
        )
    return rows, words


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (0, "fraction"),
        (1, "stages"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, "file"), (3, "capped"))),
    ],
)
def test_no_writing_of_a_held_out_problem_is_loaded_to_train_on(seed: int, kind: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    rows, words = files_and_words(tmp_path, chance, kind)
    settings = load_settings("train", words)
    shown = Console(file=StringIO(), width=400)
    problems = load_run_problems(settings, shown)

    divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
    reserved = [each.row["origin"] for each in divided.reserved]
    copies = sum(row["origin"] in reserved for row in rows) - (0 if kind == "file" else len(reserved))
    for trained in problems.by_stage:
        assert set(trained["origin"]).isdisjoint(reserved)
    kept = Counter(row["origin"] for row in rows if row["origin"] not in reserved)
    assert Counter(problems.by_stage[0]["origin"]) == kept
    if kind != "file":
        wanted = max(1, round(settings.dataset.eval_fraction * PROBLEMS))
        assert len(reserved) == len(set(reserved)) == wanted
    printed = shown.file.getvalue()  # type: ignore[attr-defined]
    assert (f"as the same problem is held out: {copies}\n" in printed) == (copies > 0)
