"""The commands end to end, on the embedded model with a handful of steps."""

import json
import math
import subprocess
import sys
from statistics import stdev

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlvr_vocab.analysis.doctor.diagnose import diagnose
from rlvr_vocab.analysis.doctor.history import Finding
from rlvr_vocab.cli import main
from rlvr_vocab.record.metrics import read_metrics
from rlvr_vocab.record.results import ProblemResult, read_lines
from rlvr_vocab.rewards.library.answers import accuracy
from rlvr_vocab.runs.folder import run_record
from rlvr_vocab.vocab.layout import VocabLayout

SMALL = (
    *("warmup.max_steps=4", "warmup.check_every=4", "warmup.num_check_problems=8", "training.max_steps=3"),
    *("training.per_device_train_batch_size=16", "training.num_generations=4", "training.learning_rate=1e-2"),
    "training.entropy_coef=0.1",  # a gradient even where no completion is right
    *("training.kl_log_steps=1", "training.eval_steps=2", "dataset.max_eval_samples=20"),
    "dataset.generator.num_problems=300",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of three steps with a reasoning vocabulary."""
    run = tmp_path_factory.mktemp("runs") / "full"
    assert main(["quickstart", "model.reasoning_vocab_size=full", f"output_dir={run}", *SMALL]) == 0
    return run


def metrics_of(folder):
    return [row for row in read_metrics(folder / "metrics.jsonl") if "loss" in row]


def test_a_run_leaves_what_the_documentation_says(folder):
    expected = {"config.yaml", "environment.json", "problems.json", "metrics.jsonl", "summary.json", "report.html"}
    expected |= {"forecast.json", "vocabulary.csv", "thought_reading.json"}
    expected |= {"initial_model", "completions", "evaluation", "final_model"}
    assert {path.name for path in folder.iterdir()} == expected
    assert [path.name for path in sorted((folder / "completions").iterdir())] == [
        f"step_{step:05d}.parquet" for step in (1, 2, 3)
    ]
    problems = json.loads((folder / "problems.json").read_text())
    assert (problems["held_out"]["measured_on"], problems["training"][0]["trained_on"]) == (20, 270)
    summary = json.loads((folder / "summary.json").read_text())
    assert [Finding(**each) for each in summary["findings"]] == diagnose(run_record(folder))
    assert summary["finished"] and summary["steps"] == 3 and summary["held_out_problems"] == 20
    assert VocabLayout.load(folder / "final_model") == VocabLayout.load(folder / "initial_model")
    assert summary["reasoning_vocab_size"] > 0
    graded = {each["name"] for each in summary["forecast"] if each["forecast"] > 0 and each["measured"] > 0}
    assert graded >= {"memory, generation", "memory, backward", "memory, optimizer", "seconds, step"}


def test_weights_move_and_the_kl_to_the_initial_model_starts_at_zero(folder):
    before, after = (AutoModelForCausalLM.from_pretrained(folder / name) for name in ("initial_model", "final_model"))
    assert all((old != new).any() for old, new in zip(before.parameters(), after.parameters(), strict=True))
    kl = [row["kl"] for row in metrics_of(folder)]
    assert abs(kl[0]) < 1e-6 < kl[-1]
    layout, rows = VocabLayout.load(folder / "final_model"), after.get_input_embeddings().weight
    assert (rows[layout.standard_size :] - rows[torch.tensor(layout.source_ids)]).abs().max() > 1e-4


def test_held_out_problems_are_measured_meanwhile(folder):
    of_evaluations = [row for row in read_metrics(folder / "metrics.jsonl") if "loss" not in row]
    assert [row["step"] for row in of_evaluations] == [2, 3]
    for row in of_evaluations:
        results = read_lines(folder / "evaluation" / f"step_{row['step']:05d}.jsonl", ProblemResult)
        turns = [[{"role": "assistant", "content": result.completion}] for result in results]
        scores = accuracy(completions=turns, solution=[result.solution for result in results])
        expected = {
            "eval/accuracy": scores.count(1.0) / 20,
            "eval/reward_std": stdev(scores),
            "eval/mean_length": sum(result.tokens for result in results) / 20,
            "eval/problems": 20,
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected)
    last, after = (folder / "evaluation" / f"{name}.jsonl" for name in ("step_00003", "after"))
    assert last.read_bytes() == after.read_bytes()


@pytest.mark.slow
def test_measuring_meanwhile_changes_nothing_about_the_training(folder, tmp_path):
    unmeasured = tmp_path / "unmeasured"
    words = [f"config={folder / 'config.yaml'}", "training.eval_steps=null", f"output_dir={unmeasured}"]
    assert main(["train", *words]) == 0
    assert not list((unmeasured / "evaluation").glob("step_*"))
    clock = ("step_time", "time/", "memory/")
    there, here = (
        [{name: value for name, value in row.items() if not name.startswith(clock)} for row in metrics_of(run)]
        for run in (folder, unmeasured)
    )
    assert there == here
    ends = [(run / "final_model" / "model.safetensors").read_bytes() for run in (folder, unmeasured)]
    assert ends[0] == ends[1]


def test_a_finished_run_is_shown_and_not_trained_again(folder, capsys):
    modified = (folder / "metrics.jsonl").stat().st_mtime_ns
    assert main(["train", f"config={folder}"]) == 0
    assert "overwrite=true" in capsys.readouterr().out
    assert (folder / "metrics.jsonl").stat().st_mtime_ns == modified


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.max_prompt_length=1"], "0 usable problems"),
        (["training.max_completion_length=9000"], "context of 8192"),
        (["model.reasoning_multiplicity=2", "model.reasoning_vocab_size=99999"], "at most"),
    ],
)
def test_errors_that_need_data_or_model_come_before_anything_is_written(words, message, tmp_path, error_of):
    out = tmp_path / "run"
    assert message in error_of("quickstart", f"output_dir={out}", *SMALL, *words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("refused", "warmup"), [("held out", []), ("train", ["warmup.max_steps=4", "dataset.columns.reasoning=working"])]
)
def test_a_problem_that_the_template_refuses_ends_a_run_before_it_trains_anything(tmp_path, error_of, refused, warmup):
    rows = [{"problem": f"{n}+1=", "answer": n + 1, "working": "1"} for n in range(20)]
    bad = {"problem": [{"role": "user", "content": each} for each in ("Hello", "2+2=")], "answer": 4, "working": "1"}
    files = {"train": rows, "held out": rows[:3]}
    files[refused] = [*files[refused], bad]
    for name, content in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('turn about') }}{% endif %}{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}A:{% endif %}"
    )
    sets = ["dataset=local", f"dataset.name={tmp_path}/train.jsonl", f"dataset.eval_split='{tmp_path}/held out.jsonl'"]
    words = ["model=tiny", "dataset.system_prompt=null", f"model.chat_template={template}", "logging=disabled"]
    error = error_of("train", *words, *sets, *warmup, f"output_dir={tmp_path}/run")
    assert "the chat template refuses the prompt '2+2=': turn about" in error
    assert not (tmp_path / "run" / "initial_model").exists()


@pytest.mark.slow
def test_the_accuracy_after_is_that_of_the_weights_that_are_kept(tmp_path):
    folder = tmp_path / "run"
    best = ["training.load_best_model_at_end=true", "training.save_strategy=steps", "training.save_steps=1"]
    words = [*SMALL, *best, "training.eval_steps=1", "training.learning_rate=0.3", "report=false"]
    assert main(["quickstart", f"output_dir={folder}", *words]) == 0
    state = json.loads((folder / "checkpoint-3" / "trainer_state.json").read_text())
    kept = state["best_global_step"]
    assert kept < 3  # the rate is far too high
    evaluation = folder / "evaluation"
    measured = {step: (evaluation / f"step_{step:05d}.jsonl").read_bytes() for step in (kept, 3)}
    assert measured[kept] != measured[3]
    assert (evaluation / "after.jsonl").read_bytes() == measured[kept]


def test_chat_prompts_of_different_lengths_train_with_a_reward_of_ones_own_and_no_gold_answers(tmp_path):
    say = [{"role": "user", "content": "Say a."}, {"role": "assistant", "content": "a"}]
    rows = [
        {
            "prompt": [*([{"role": "system", "content": "Be brief."}] * (number % 2)), *say * (number % 3),
                       {"role": "user", "content": f"Count to {number}."}],
            "facts": [{"wanted": number}, {f"only {number}": [1, "x"]}],
        }
        for number in range(12)
    ]  # fmt: skip
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.py").write_text(
        "def mine(completions, prompts, problem, facts, **columns):\n"
        "    assert not {'solution', 'answer'} & set(columns), columns\n"
        "    for prompt, text, (wanted, only) in zip(prompts, problem, facts):\n"
        "        number = wanted['wanted']\n"
        "        assert wanted == {'wanted': number} and only == {f'only {number}': [1, 'x']}, facts\n"
        "        assert prompt[0]['content'] == ('Be brief.' if number % 2 else 'Fill the gap.'), prompt\n"
        "        assert len(prompt) == 2 + 2 * (number % 3), prompt\n"
        "        assert text.endswith(f'Count to {number}.') and 'brief' not in text, text\n"
        "    return [turn[-1]['content'].count('a') / 8 for turn in completions]\n"
    )
    words = ["model=tiny", "dataset=local", f"dataset.name={tmp_path}/chat.jsonl", "dataset.columns.problem=prompt"]
    words += ["dataset.columns.answer=null", "dataset.eval_fraction=0", "dataset.system_prompt=Fill the gap."]
    words += [f"rewards=[{tmp_path}/mine.py:mine]", "training.max_steps=2", "training.max_completion_length=8"]
    words += ["training.per_device_train_batch_size=8", "training.gradient_accumulation_steps=1", "logging=disabled"]
    assert main(["train", *words, f"output_dir={tmp_path}/run", "report=false"]) == 0
    rewards = [row["rewards/mine/mean"] for row in metrics_of(tmp_path / "run")]
    assert len(rewards) == 2 and all(math.isfinite(reward) for reward in rewards)
    step = pd.read_parquet(tmp_path / "run" / "completions" / "step_00001.parquet")
    assert set(step["solution"]) == {""} and step["reward/mine"].notna().all()


@pytest.mark.slow
def test_a_quantized_run_says_that_it_trains_an_adapter_and_ends_well_on_a_quiet_screen(tmp_path):
    pytest.importorskip("bitsandbytes", reason="the extra quantization is not installed")
    words = [*SMALL, "report=false", "training.eval_steps=null", "warmup.max_steps=0", "training.max_steps=2"]
    words += ["training.warmup_ratio=0", "training.beta=0.04", "training.use_cpu=true", f"output_dir={tmp_path}/run"]
    words += ["model.model_kwargs.load_in_4bit=true", "training.optim=paged_adamw_8bit"]
    command = [sys.executable, "-m", "rlvr_vocab.cli", "quickstart", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "load_in_4bit=true: the weights themselves cannot train, so LoRA is switched on" in done.stdout
    first, second = metrics_of(tmp_path / "run")
    assert abs(first["kl"]) < 1e-6 < second["kl"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"] and summary["steps"] == 2
    assert "bitsandbytes" in json.loads((tmp_path / "run" / "environment.json").read_text())["versions"]
