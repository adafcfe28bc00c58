"""No held-out problem is trained on, in whatever writing: what was planted tells which rows are copies.

`RLVR_VOCAB_LEAK=200` tries so many sets, and real runs of every kind of split, in one process and in two.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pandas as pd
import psutil
import pytest
from rich.console import Console

from rlvr_vocab.cli import load_settings, main
from rlvr_vocab.config.sections import problem_source, problem_split
from rlvr_vocab.data.load import read_problems
from rlvr_vocab.runs.problems import load_run_problems

SETS = int(os.environ.get("RLVR_VOCAB_LEAK", "4"))
PROBLEMS = 24
TEXTS = (
    r"Find $x$ if $\frac{{{n}}}{{2}} \cdot x = {n}{{,}}000$.",
    "Anna has {n} apples and Bob's sister has “{m}” pears. How many pieces of fruit are there?",
    "{n} + {m} =",
    r"Compute $\left({n} x - {m}\right)^2$ for $x = 3$.",
    "What is |x - {n}|, when x < {n}?",
    r"Let \(a_1 = {n}\), \(a_2 = {m}\). What is $a_1^{{2}} + a_2$?",
)
CASE: tuple[Callable[[str], str], ...] = (str.lower, str.upper, str.title, str.swapcase)
SPACING: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(" ", "  "),
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: f"\n\t{text} \n",
    lambda text: text.replace(" ", "\n", 2),
    lambda text: "\ufeff" + text.replace(" ", " \u200b"),
    lambda text: text.replace(" + ", "+").replace(" = ", "="),
)
MARKS: tuple[Callable[[str], str], ...] = (
    lambda text: text.rstrip("?.") + "?",
    lambda text: text.rstrip("?."),
    lambda text: text.rstrip("?.") + " …",
    lambda text: text.replace("“", '"').replace("”", "''" if "``" in text else '"').replace("'", "’"),
    lambda text: text.replace(", ", " "),
    lambda text: text.replace("-", "−"),
)
LAYOUT: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace(r"\frac", r"\dfrac"),
    lambda text: text.replace("$", "$$"),
    lambda text: text.replace(r"\(", "$").replace(r"\)", "$"),
    lambda text: text.replace(r"\left", "").replace(r"\right", ""),
    lambda text: text.replace(r"\cdot ", r"\, \cdot\,"),
    lambda text: text.replace("{,}", ","),
    lambda text: text.replace("^{2}", "²").replace("^2", "^{2}"),
    lambda text: text.replace("<", "&lt;"),
    lambda text: "".join(chr(ord(each) + 0xFEE0) if each.isdigit() else each for each in text),
)
NUMBERING = ("Problem {}: ", "{}. ", "({}) ", "Q{}) ", "Exercise {}. ", "#{} ", "[{}] ", "{}) ", "**Task {}.** ")


def problem(number: int) -> str:
    return TEXTS[number % len(TEXTS)].format(n=3 * number + 2, m=5 * number + 7)


def copy_of(text: str, chance: random.Random) -> str:
    """The same problem in another writing; numbered first, since a number stands in front of all else."""
    if chance.random() < 0.4:
        text = chance.choice(NUMBERING).format(chance.randint(1, 40)) + text
    for kind in chance.sample([CASE, SPACING, MARKS, LAYOUT], chance.randint(1, 4)):
        text = chance.choice(kind)(text)
    return text


def planted(numbers: list[int], chance: random.Random) -> list[dict[str, object]]:
    """A row for each number, a repeated one in another writing; `origin` and the answer tell which problem it is."""
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


def origins(rows: object) -> set[int]:
    return set(rows["origin"])  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, SETS))])
def test_no_writing_of_a_held_out_problem_is_loaded_to_train_on_and_all_counts_agree(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed)
    kind = ("fraction", "stages", "file", "capped")[seed % 4]
    rows, words = files_and_words(tmp_path, chance, kind)
    settings = load_settings("train", words)
    shown = Console(file=StringIO(), width=400)
    problems = load_run_problems(settings, shown)

    divided = read_problems(problem_source(settings.dataset), problem_split(settings.dataset, settings.seed))
    reserved = [each.row["origin"] for each in divided.reserved]
    copies = sum(row["origin"] in reserved for row in rows) - (0 if kind == "file" else len(reserved))
    repeats = len(rows) - len({row["origin"] for row in rows})
    kept = Counter(row["origin"] for row in rows if row["origin"] not in reserved)
    for trained in problems.by_stage:
        assert origins(trained).isdisjoint(reserved)
    assert Counter(problems.by_stage[0]["origin"]) == kept
    if kind != "file":
        wanted = max(1, round(settings.dataset.eval_fraction * PROBLEMS))
        assert len(reserved) == len(set(reserved)) == wanted

    said = shown.file.getvalue()  # type: ignore[attr-defined]
    assert (f"as the same problem is held out: {copies}\n" in said) == (copies > 0)
    out = tmp_path / "check.json"
    division = [word for word in words if word.startswith(("dataset", "seed"))]
    assert main(["check", *division, f"against={tmp_path / 'train.jsonl'}", f"out={out}"]) == 0
    checked = json.loads(out.read_text())
    report = checked["rows"]["report"]
    assert (report["held_out_removed"], report["duplicates"]) == (copies, repeats)
    assert (report["train_rows"], report["eval_rows"]) == (kept.total(), len(problems.held_out or ()))
    assert sum(len(each["row_numbers"]) - 1 for each in checked["repeated"]) == repeats
    held_out, against = checked["overlaps"]
    assert held_out["same"] == []
    assert len(against["same"]) == kept.total()


def sampled(run: Path) -> set[int]:
    """The problems that were sampled, by their answers."""
    return {int(each) for path in run.glob("completions/*.parquet") for each in pd.read_parquet(path)["solution"]}


def measured(run: Path) -> set[int]:
    return {int(json.loads(line)["solution"]) for line in (run / "evaluation" / "before.jsonl").open()}


REAL = [(kind, processes) for processes in (1, 2) for kind in ("stages", "file", "fraction", "capped")]


@pytest.mark.skipif("RLVR_VOCAB_LEAK" not in os.environ, reason="half a minute each: RLVR_VOCAB_LEAK=200 runs them")
@pytest.mark.parametrize(("kind", "processes"), REAL)
def test_a_run_samples_no_problem_that_it_holds_out(kind: str, processes: int, tmp_path: Path) -> None:
    chance = random.Random(f"{kind} {processes}")
    _, words = files_and_words(tmp_path, chance, kind)
    run = tmp_path / "run"
    words += ["training.max_steps=12", "training.per_device_train_batch_size=8", "training.max_completion_length=2"]
    words += ["training.use_cpu=true", "training.save_strategy=no", "training.kl_log_steps=0", "logging.enabled=false"]
    _trained([*words, f"output_dir={run}", "report=false"], processes)
    held_out = measured(run)
    if kind == "file":
        held_out |= {int(json.loads(line)["answer"]) for line in (tmp_path / "test.jsonl").open()}
    assert held_out and sampled(run)
    assert sampled(run).isdisjoint(held_out)
    if kind in ("file", "fraction"):  # all that is not held out was sampled: the steps were enough to see a leak
        assert len(sampled(run)) == PROBLEMS - len(held_out)


def _trained(words: list[str], processes: int) -> None:
    if processes == 1:
        assert main(["train", *words]) == 0
        return
    script = Path(__file__).parents[2] / "rlvr_vocab" / "exp" / "grpo_train.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen([*launcher, str(script), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                each.kill()
    assert process.returncode == 0, output[-4000:]
