"""What is made to be copied runs as it stands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr_vocab.vocab.weights import is_adapter

ROOT = Path(__file__).parents[1]
TASK = ROOT / "examples" / "custom_task.py"
GUIDE = ROOT / "examples" / "gsm8k_lora_xml.py"


def run_python(*words):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "gsm8k.jsonl"
    rows = [{"question": f"{n} clips and {n} more?", "answer": f"2 * {n} = {2 * n}\n#### {2 * n}"} for n in range(40)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.slow
def test_the_custom_task_trains_and_leaves_a_model_that_answers(qwen3, tmp_path):
    out = tmp_path / "sorting"
    run_python(str(TASK), str(qwen3), str(out), "1")
    assert is_adapter(out / "final_adapter")
    layout = json.loads((out / "final_model" / "reasoning_vocab.json").read_text())
    assert layout["source_ids"] == {"range": [0, 1000]}
    words = [f"checkpoint={out / 'final_model'}", "prompt=Sort: b, a", "max_new_tokens=8", "format=json"]
    answer = run_python("-m", "rlvr_vocab.cli", "generate", *words)
    assert json.loads(answer.stdout)["prompt"] == "Sort: b, a"


@pytest.mark.slow
@pytest.mark.parametrize("size", ["0", "50"])
def test_the_guides_script_runs_with_another_import(make_shape, problems, tmp_path, size):
    with problems.open("a") as file:
        file.write(json.dumps({"question": "clips " * 500, "answer": "#### 7"}))
    done = run_python(str(GUIDE), "out", str(make_shape("qwen3").folder), str(problems), size)
    assert "left out 1 of 41 prompts longer than max_prompt_length=256" in done.stderr
    layout = json.loads((tmp_path / "out" / "initial_model" / "reasoning_vocab.json").read_text())
    assert layout["source_ids"] == ({"range": [0, 50]} if size == "50" else [])
    assert is_adapter(tmp_path / "out" / "final_adapter")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["gsm8k_xml", "gsm8k_xml_reasoning"])
def test_the_xml_recipes_run_with_any_model(recipe, make_shape, problems, tmp_path):
    """As they stand, but for a small model, few problems and short answers."""
    copies = recipe == "gsm8k_xml_reasoning"
    words = [f"model.name={make_shape('qwen2').folder}", f"dataset.name={problems}", "dataset.subset=null"]
    words += ["dataset.eval_split=null", "dataset.max_eval_samples=4", "logging=disabled", "training.use_cpu=true"]
    words += ["training.max_steps=2", "training.max_completion_length=12", f"output_dir={tmp_path / 'run'}"]
    words += ["training.logging_steps=1", *["model.reasoning_vocab_size=full"] * copies]
    done = run_python("-m", "rlvr_vocab.cli", "train", f"experiment={recipe}", *words)
    assert "trains  LoRA adapter" in done.stdout and "warning" not in done.stdout
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"] and summary["steps"] == 2
    for row in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()):
        assert {f"rewards/{name}/mean" for name in ("xml_tags", "xml_format", "accuracy")} <= set(row)
        assert (row["thinking/mean_length"] > 0) is copies
        assert (row.get("thinking/reasoning_share", 0) > 0) is copies
    assert is_adapter(tmp_path / "run" / "final_adapter") and not is_adapter(tmp_path / "run" / "final_model")
