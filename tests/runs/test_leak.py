"""No held-out problem is trained on, however it is written: a planted `origin` names the problem of each row."""

import json
import random
from collections import Counter
from io import StringIO

import pytest
from rich.console import Console

from rlvr_vocab.config.sections import problem_source, problem_split
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.data.problem_key import problem_key
from rlvr_vocab.runs.problems import load_run_problems
from tests.settings import load_settings

PROBLEMS = 24
TEXT = r"Find $x$ for Bob's box if $\frac{{{n}}}{{2}} \cdot x - {n} = {n}{{,}}000$."
WRITINGS = (
    str.upper,
    lambda text: "Problem 7: " + text.replace(" ", "\u00a0"),
    lambda text: "\ufeff" + text.replace("'", "’").replace("-", "−").rstrip(".") + " …",
    lambda text: text.replace(r"\frac", r"\dfrac").replace(r"\cdot ", r"\, \cdot\,").replace("{,}", ","),
)  # tests/data/test_problem_key.py has all kinds


def planted(path, numbers, chance):
    """A file with a row for each number, a repeated one in another writing."""
    rows = []
    for number in numbers:
        text, repeated = TEXT.format(n=3 * number + 2), number in [row["origin"] for row in rows]
        written = chance.choice(WRITINGS)(text) if repeated or chance.random() < 0.5 else text
        rows.append({"problem": written, "answer": str(1000 + number), "origin": number})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (0, "fraction"),
        (1, "stages"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, "file"), (3, "capped"))),
    ],
)
def test_no_writing_of_a_held_out_problem_is_loaded_to_train_on(seed, kind, tmp_path):
    chance = random.Random(seed)
    drawn = [*range(PROBLEMS), *chance.choices(range(PROBLEMS), k=20)]
    train, other, test = (tmp_path / f"{name}.jsonl" for name in ("train", "other", "test"))
    rows = planted(train, chance.sample(drawn, len(drawn)), chance)
    planted(other, chance.sample(drawn, len(drawn)), chance)
    planted(test, chance.sample(range(PROBLEMS), 6), chance)
    words = {
        "fraction": ["dataset.eval_fraction=0.25"],
        "capped": ["dataset.eval_fraction=0.25", "dataset.max_eval_samples=2"],
        "file": [f"dataset.eval_split={test}", "dataset.max_eval_samples=2"],
        "stages": [
            "dataset.eval_fraction=0.25",
            "dataset.max_eval_samples=2",
            "stages=[{name:own},{name:cut,dataset:{eval_fraction:0.05}},"
            f"{{name:other,dataset:{{name:'{other}',eval_fraction:0}}}}]",
        ],
    }[kind]
    small = ["training.per_device_train_batch_size=4", "training.num_generations=2", "rewards=[accuracy]"]
    settings = load_settings("train", ["model=tiny", "dataset=local", f"dataset.name={train}", *small, *words])
    shown = StringIO()
    problems = load_run_problems(settings, Console(file=shown, width=400))

    divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
    reserved = [each.row["origin"] for each in [divided.problems[index] for index in divided.parts.reserved]]
    assert kind == "file" or len(reserved) == len(set(reserved)) == 6
    for trained in problems.by_stage:
        assert len(trained) and set(trained["origin"]).isdisjoint(reserved)
    recorded = {name: set(words.split()) for name, words in problems.report["keys"].items()}
    trained_keys = {problem_key(text) for trained in problems.by_stage for text in trained["problem"]}
    assert len(recorded["trained"]) == len(trained_keys) and recorded["trained"].isdisjoint(recorded["held_out"])
    kept = Counter(row["origin"] for row in rows if row["origin"] not in reserved)
    assert Counter(problems.by_stage[0]["origin"]) == kept
    copies = sum(row["origin"] in reserved for row in rows) - (0 if kind == "file" else len(reserved))
    assert copies and f"as the same problem is held out: {copies}\n" in shown.getvalue()
