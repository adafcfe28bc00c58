"""A run from Python leaves what a run from the command line leaves, and the commands read it."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi

from rlvr_vocab import Lora
from rlvr_vocab.cli import main
from rlvr_vocab.config.recorded import is_from_python
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.metrics import read_metrics
from rlvr_vocab.rewards.build import find_function, logged_names
from rlvr_vocab.rewards.reward import RewardSpec
from rlvr_vocab.runs.python_run import problem_row
from tests.settings import refusal

SCRIPT = """
import sys
from datasets import Dataset
from rlvr_vocab import GRPOConfig, GRPOTrainer
from rlvr_vocab.rewards import accuracy

def length(completions, **columns):
    return [len(turn[0]["content"]) / 100 for turn in completions]

def rows(numbers):
    system = {"role": "system", "content": "Box it."}
    asked = [{"role": "user", "content": f"What is {n} + 4?"} for n in numbers]
    return Dataset.from_list([{"prompt": [system, each], "solution": str(n + 4)} for n, each in zip(numbers, asked)])

def trainer(out, model, copies, steps=2, peft_config=None, **fields):
    args = GRPOConfig(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=4, num_generations=4, learning_rate=1e-3,
        max_completion_length=8, logging_steps=1, save_steps=1, use_cpu=True, bf16=False, report_to="none",
        reward_weights=[1.0, 0.5], seed=copies, **fields)
    return GRPOTrainer(
        model, [accuracy, length], args, rows(range(8)), eval_dataset=rows(range(8, 14)),
        reasoning_vocab_size=copies, peft_config=peft_config)
"""


@pytest.fixture
def make(tmp_path):
    """The function `trainer` of a script."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return runpy.run_path(str(path))["trainer"]


def rows_in(run):
    return read_metrics(run / "metrics.jsonl")


def problems_in(path, numbers):
    path.write_text("".join(f'{{"problem": "What is {n} + 4?", "answer": "{n + 4}"}}\n' for n in numbers))
    words = [f"dataset.name={path}", "dataset.eval_fraction=0.4", "training.use_cpu=true", "training.max_steps=1"]
    words += ["training.per_device_train_batch_size=4", "training.max_completion_length=8", "training.bf16=false"]
    return [*words, "logging=none", "report=false"]


@pytest.mark.slow
def test_every_command_reads_a_run_from_python(make, make_shape, tmp_path, capsys):
    base = make_shape("qwen3").folder
    runs = [tmp_path / "out" / name for name in ("baseline", "copies")]
    for run, copies in zip(runs, (0, 20), strict=True):
        make(run, base, copies).train()
    problems = tmp_path / "held.jsonl"
    common = [f"model.name={base}", "rewards=[accuracy]", f"output_dir={runs[0].parent / 'typed'}"]
    common += ["training.num_generations=4", "training.gradient_accumulation_steps=1"]
    assert main(["train", *common, *problems_in(problems, range(8, 14))]) == 0
    of_command = rows_in(runs[0].parent / "typed")[0]
    of_python = rows_in(runs[0])[0]
    own = {name for name in of_python if name.startswith("rewards/length")}
    assert set(of_python) - own == set(of_command) and of_python["kl"] == 0.0
    capsys.readouterr()
    assert main(["doctor", f"run={runs[0]}"]) == 0
    assert main(["report", f"run={runs[1]}"]) == 0 and "train.py" in (runs[1] / "report.html").read_text()
    assert main(["samples", f"run={runs[1]}", "step=2", "verdict=wrong", "max_samples=1"]) == 0
    assert "gold answer: " in capsys.readouterr().out
    assert main(["compare", f"runs=[{','.join(map(str, runs))}]", f"out={tmp_path / 'compared'}"]) == 0
    compared = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    assert compared["key"] == "model.reasoning_vocab_size" and not compared["differences"]
    both = f"runs=[{runs[0]},{runs[0].parent / 'typed'}]"
    assert main(["compare", both, "key=dataset.name", f"out={tmp_path / 'with_typed'}"]) == 0
    evaluate = ["evaluate", f"checkpoint={runs[1]}/checkpoint-2", "batch_size=8", f"out={tmp_path / 'evaluated'}"]
    assert main(evaluate) == 2 and "its script makes the problems" in capsys.readouterr().err
    own_problems = [f"dataset.name={problems}", "dataset.eval_fraction=0", "split=train"]
    assert main([*evaluate, *own_problems]) == 0
    assert f"problems held out by the run in {runs[1]}" in capsys.readouterr().out
    assert main(["train", f"config={runs[0]}"]) == 2
    summary = json.loads((runs[0] / "summary.json").read_text())
    figures = {figure["name"] for figure in summary["forecast"]}
    assert summary["finished"] and summary["accuracy_before"] == 0 and "seconds, step" in figures


@pytest.mark.slow
def test_a_second_training_and_a_resume_go_on_in_the_same_files(make, make_shape, tmp_path):
    base, run = make_shape("qwen3").folder, tmp_path / "out"
    trainer = make(run, base, 0)
    trainer.train()
    once = rows_in(run)
    trainer.train()
    assert [row["step"] for row in rows_in(run)] == [1, 2, 3, 4] and rows_in(run)[:2] == once
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    assert [path.stem for path in sorted((run / "completions").iterdir())] == [f"step_0000{n}" for n in (1, 2, 3, 4)]
    make(run, base, 0).train()  # TRL trains anew
    assert [row["step"] for row in rows_in(run)] == [1, 2]
    before = (run / "evaluation" / "before.jsonl").stat().st_mtime_ns
    longer = make(run, base, 0, steps=3)
    longer.train(resume_from_checkpoint=True)
    assert [row["step"] for row in rows_in(run)] == [1, 2, 3]
    assert (run / "evaluation" / "before.jsonl").stat().st_mtime_ns == before
    make(run, base, 0, steps=3).train(resume_from_checkpoint=True)  # nothing is left to train
    assert [row["step"] for row in rows_in(run)] == [1, 2, 3]
    measured = make(tmp_path / "measured", base, 0)
    measured.evaluate()
    assert not (tmp_path / "measured" / "config.yaml").exists()


class Hub:
    """A stand-in of the hub, behind the two methods of `HfApi` that are called: it keeps the names of the files."""

    def __init__(self, monkeypatch):
        self.files, self.cards = {}, {}
        monkeypatch.setattr(HfApi, "create_repo", lambda api, name, **_: SimpleNamespace(repo_id=f"me/{name}"))
        monkeypatch.setattr(HfApi, "upload_folder", self.upload)
        monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 34)

    def upload(self, *, repo_id, folder_path, commit_message, **_):
        self.files[f"{repo_id}: {commit_message}"] = {path.name for path in Path(folder_path).iterdir()}
        self.cards[commit_message] = (Path(folder_path) / "README.md").read_text()
        return SimpleNamespace(done=lambda: True)


@pytest.mark.slow
def test_the_hub_gets_the_model_with_its_card_and_no_record_of_the_run(make, make_shape, tmp_path, monkeypatch):
    hub, base = Hub(monkeypatch), make_shape("qwen3").folder
    trainer = make(tmp_path / "own", base, 5, push_to_hub=True, hub_model_id="mine", peft_config=Lora(r=2))
    trainer.train()
    trainer.push_to_hub()
    words = [f"model.name={base}", "exp_name=typed", "training.push_to_hub=true"]
    assert main(["train", *words, *problems_in(tmp_path / "all.jsonl", range(14))]) == 0
    adapter = {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"}
    adapter |= {"reasoning_vocab.json", "README.md"}
    assert list(hub.files) == [
        *("me/mine: Training in progress, step 1", "me/mine: Training in progress, step 2"),
        *("me/mine: End of training", "me/typed: End of training"),
    ]
    for name, files in hub.files.items():
        assert adapter <= files if "mine" in name else {"model.safetensors", "README.md"} <= files
        assert not {"metrics.jsonl", "completions", "optimizer.pt", "training_args.bin", "trainer_state.json"} & files
    assert "The LoRA adapter of own" in hub.cards["Training in progress, step 2"]
    assert "held-out accuracy before GRPO | 0.0% on" in hub.cards["End of training"]
    trainer.save_model(str(tmp_path / "saved"))
    assert "train.py:length × 0.5" in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.slow
def test_a_refused_training_leaves_every_byte_of_the_folder(make, expand_shape, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def length(completions, **columns):
        return [1.0] * len(completions)

    base, run = expand_shape("qwen3", size=0), tmp_path / "out"
    make(run, base, 5).train()
    before = contents()
    reweighted, rewritten = make(run, base, 5, steps=3), make(run, base, 5, steps=3)
    reweighted.args.reward_weights, rewritten.reward_funcs[1] = [1.0, 50.0], length
    for trainer, resume, words in (
        (make(run, base, 0), None, "reasoning_vocab_size 5, now 0; reasoning_vocab.json"),
        (reweighted, True, "reward length, or its weight"),
        (rewritten, True, "reward length, or its weight"),
        (make(run, base, 5, temperature=0.5), True, "training.temperature 0.5, was 1.0"),
        (make(run, base, 5), str(run / "checkpoint-9"), "checkpoint-9: no such folder; the newest is checkpoint-2"),
    ):
        with pytest.raises(UserError, match=words):
            trainer.train(resume_from_checkpoint=resume)
        assert contents() == before
    with pytest.raises(UserError, match=r"resume_from_checkpoint=True: .* has no valid checkpoint"):
        make(tmp_path / "empty", base, 5).train(resume_from_checkpoint=True)


def test_problems_of_a_script_have_the_fingerprint_of_the_same_problems_in_a_file():
    prompt = [{"role": "system", "content": "Box it."}, {"role": "user", "content": "What is 3 + 4?"}]
    row = problem_row({"prompt": prompt, "answer": "7"})
    assert (row["problem"], row["solution"]) == ("What is 3 + 4?", "7")
    assert problem_row({"prompt": "3 + 4 =", "solution": "7"})["problem"] == "3 + 4 ="
    parts = [{"role": "user", "content": [{"type": "text", "text": "What is 3 + 4?"}]}]
    assert problem_row({"prompt": parts})["problem"] == "What is 3 + 4?"


def test_rewards_of_a_script_keep_the_names_that_trl_logs_and_are_named_where_they_are_missing():
    specs = [RewardSpec("python:/w/train.py:accuracy_reward"), RewardSpec("/w/mine.py:accuracy_reward")]
    assert logged_names(specs) == ["accuracy_reward", "mine_accuracy_reward"]
    with pytest.raises(UserError, match=r"is code of a Python script.*rewards=\[/w/train\.py:acc"):
        find_function(specs[0].name)
    assert is_from_python({"dataset": {"name": "python:/w/train.py"}})
    message = refusal("train", ["dataset.name=python:/w/train.py", "logging=none"])
    assert "from Python, and its script makes the problems (/w/train.py): give dataset=" in message


@pytest.mark.slow
def test_a_reward_object_goes_on_from_a_checkpoint_with_its_state(make, make_shape, tmp_path):
    class Counting:
        __name__, calls = "counting", 0

        def __call__(self, completions, **columns):
            self.calls += 1
            return [float(self.calls)] * len(completions)

        def state_dict(self):
            return {"calls": self.calls}

        def load_state_dict(self, state):
            self.calls = state["calls"]

    for steps, resume in ((2, None), (3, True)):
        trainer = make(tmp_path / "run", make_shape("qwen3").folder, 0, steps=steps)
        trainer.reward_funcs[0], trainer.reward_func_names[0] = Counting(), "counting"  # held-out answers count not
        trainer.train(resume_from_checkpoint=resume)
    assert [row["rewards/counting/mean"] for row in rows_in(tmp_path / "run") if "loss" in row] == [1.0, 2.0, 3.0]
