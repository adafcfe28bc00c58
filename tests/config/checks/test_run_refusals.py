"""What is refused before torch is imported: one line that says what would be right."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from rlvr_vocab.errors import UserError, require_package
from rlvr_vocab.vocab.layout import VocabLayout
from tests.settings import load_settings, refusal

DIFFER = "the trained and the sampled policy would differ"
LORA, ALL_ROWS = "model.lora.enabled=true", "model.lora.train_rows=all"
FOUR_BIT = "model.model_kwargs.load_in_4bit=true"
EIGHT_BIT = "model.model_kwargs.load_in_8bit=true"
ATTENTION = "model.model_kwargs.attn_implementation"
BATCHING = "training.use_transformers_continuous_batching=true"
SKIP_SOLVED = "dataset.curriculum.skip_solved=2"
RIGHT_AND_BOXED = "rewards=[boxed,{name: accuracy, weight: 0}]"


@pytest.fixture
def installed(monkeypatch):
    """The optional packages that are there: all, until a test names some."""
    present = set()
    monkeypatch.setattr("rlvr_vocab.errors.installed", lambda package: not present or package in present)
    return present


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["training.num_generations=3"], ["8 completions", "steps_per_generation=6"]),
        (["training.repetition_penalty=1.1"], ["training.repetition_penalty=1.1", DIFFER]),
        (["model.generation_kwargs.top_p=0.9"], ["model.generation_kwargs.top_p", "training.top_p?"]),
        (["training.generation_kwargs.temperature=0.5"], ["training.temperature=1.0", "same thing"]),
        (["training.learning_rate=inf"], ["training.learning_rate=inf", "a finite number"]),
        (["training.loss_type=cispo"], ["training.epsilon_high=null", "set it to 5.0"]),
        (["+model.model_kwargs.quantization_config={load_in_4bit: true}"], ["load_in_4bit"]),
        (["+model.model_kwargs.use_safetensors=false"], ["safetensors alone"]),
        (["model.source_ids=[3,-4]"], ["-4"]),
        (["model.think_tags=[a,a]"], ["two different"]),
        (["dataset.eval_fraction=0", "training.eval_steps=5"], ["nothing is held out"]),
        *(([f"exp_name={name}"], ["exp_name", "folder"]) for name in ("..", "a/../../b", "/x", "~", "a\nb")),
        (["dataset.system_prompt=half \udcff"], ["dataset.system_prompt", "UTF-8"]),
        ([SKIP_SOLVED, "rewards=[boxed]"], ["no reward of this run tells right from wrong"]),
        ([LORA, ALL_ROWS, "model.reasoning_vocab_size=8", "model.reasoning_rank=0"], ["rank=0"]),
        ([LORA, "model.lora.target_modules=[]"], ["all-linear"]),
        (["model.lora.r=64"], ["model.lora.r has nothing to apply to: add model.lora.enabled=true"]),
        ([FOUR_BIT, EIGHT_BIT], ["choose one"]),
        ([FOUR_BIT, "training.use_vllm=true"], ["use_vllm=true", "load_in_4bit to false"]),
        ([f"{ATTENTION}=flash_attention_2", "training.bf16=false"], ["16 bits", "training.bf16=true"]),
        ([BATCHING, "model.reasoning_vocab_size=5"], ["bypasses the region policy"]),
        ([BATCHING], ["training.bf16=true", "16 bits"]),
        (["training.lr_scheduler_type=reduce_lr_on_plateau"], ["GRPO has none; set cosine"]),
        (["tools=[calculater]"], ["no tool calculater; did you mean calculator"]),
        (["tools=[gone.py:f]"], ["tools: no such file gone.py"]),
        (["environment=gone.py:Env"], ["environment: no such file gone.py"]),
        (["environment=Env"], ["environment=Env: write file.py:Class"]),
        (["tools=[calculator]", "training.dynamic_sampling=true"], ["dynamic_sampling", "drawn anew"]),
        (["tools=[calculator]", SKIP_SOLVED], ["skip_solved", "drawn anew"]),
        (["training.max_tool_calling_iterations=3"], ["nothing to call: set tools or environment"]),
        (["model.past_thinking=strip"], ["model.past_thinking=strip", "set keep"]),
        (["training.ignore_data_skip=true"], ["given its first problems again"]),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_run_that_cannot_work_is_refused_before_anything_is_written(words, parts):
    message = refusal("train", words)
    assert all(part in message for part in parts), message
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["training.top_p=0.9", "training.top_k=20", "training.min_p=0.05"],
        [SKIP_SOLVED, RIGHT_AND_BOXED],
        [LORA, ALL_ROWS, "model.reasoning_vocab_size=8", "model.reasoning_rank=null"],
        [f"{ATTENTION}=flash_attention_2", FOUR_BIT, "training.bf16=false"],
        [BATCHING, "training.bf16=false"],
        ["training=large_gpu", "model.reasoning_vocab_size=5"],
    ],
)
@pytest.mark.usefixtures("installed")
def test_settings_that_go_together_are_accepted(words):
    load_settings("train", words)


@pytest.mark.usefixtures("installed")
def test_quantized_weights_switch_an_adapter_on():
    for words, adapter in (([], False), ([LORA], True), ([FOUR_BIT], True), ([EIGHT_BIT], True)):
        model = load_settings("train", words).model
        assert (model.trains_adapter, model.loaded_dtype) == (adapter, "bfloat16" if adapter else "float32")


def test_what_needs_gold_answers_is_refused_where_there_are_none(tmp_path):
    source = "def wants(completions, answer): return [0.0]\ndef copes(completions, solution=None): return [0.0]\n"
    (tmp_path / "mine.py").write_text(source)
    words = ["model=tiny", "dataset=arithmetic", "logging=disabled", "dataset.columns.answer=null"]
    own, boxed = f"rewards=[{tmp_path}/mine.py:", "rewards=[boxed]"
    for more, name in (
        (["rewards=accuracy"], "accuracy"),
        ([f"{own}wants]"], "wants"),
        ([boxed, "evaluation.grader=numeric"], "numeric"),
        ([boxed, "warmup.max_steps=3"], "warmup.max_steps"),
    ):
        assert f"{name} needs " in (message := refusal("train", [*words, *more])) and "gold answers, and" in message
    for rewards in (boxed, f"{own}copes]", "stages=[{name:a,rewards:[boxed]},{name:b,rewards:[think_format]}]"):
        load_settings("train", [*words, rewards])


@pytest.mark.parametrize(
    "words",
    [
        ["training.num_generations=16"],
        ["training.num_generations=7", "training.per_device_train_batch_size=3"],
        ["training.num_generations=6", "training.per_device_train_batch_size=4", "training.steps_per_generation=2"],
        ["training.num_generations=6", "training.generation_batch_size=8"],
    ],
)
def test_a_batch_that_is_advised_holds_whole_groups(words, monkeypatch):
    for advised in re.findall(r"training\.\w+=\d+", refusal("train", words).partition("set ")[2]):
        load_settings("train", [*words, advised])
    monkeypatch.setenv("WORLD_SIZE", "2")  # so that twice as many completions are drawn together
    load_settings("train", ["training.num_generations=16"])


@pytest.mark.parametrize(
    ("words", "package", "told"),
    [
        ([FOUR_BIT], "bitsandbytes", "quantization"),
        (["training=large_gpu"], "vllm", "docs/vllm.md"),
        (["training.use_liger_kernel=true"], "liger-kernel", "liger-kernel"),
    ],
)
def test_a_missing_package_is_asked_for_by_name(words, package, told, installed):
    load_settings("train", words)
    installed.add("another")
    message = refusal("train", words)
    assert f"{package} is not installed" in message and told in message
    if words == [FOUR_BIT]:  # which only a run needs
        load_settings("expand", ["out=new", FOUR_BIT])


@pytest.mark.parametrize(
    ("package", "extra"),
    [("bitsandbytes", "quantization"), ("openai", "judge"), ("reasoning_gym", "gym"), ("vllm", "vllm"), ("zoo", None)],
)
def test_advice_on_installing_is_for_uv_where_uv_runs_or_made_the_environment(
    package, extra, installed, monkeypatch, tmp_path
):
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = "".join(project["optional-dependencies"][extra]) if extra else package
    assert required.startswith(package.replace("_", "-"))
    installed.add("another")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def advice(uv, maker):
        monkeypatch.setenv("UV", uv) if uv else monkeypatch.delenv("UV", raising=False)
        (tmp_path / "pyvenv.cfg").write_text(f"home = /usr/bin\n{maker}version_info = 3.11.7\n")
        with pytest.raises(UserError) as refused:
            require_package(package, "a key")
        return str(refused.value)

    assert (f"pip install -e '.[{extra}]'" if extra else f"pip install {package}") in advice("", "")
    assert (f"--extra {extra} " if extra else f"uv run --with {package} ") in advice("", "uv = 0.13.9\n")
    assert advice("", "uv = 0.13.9\n") == advice("/usr/bin/uv", "")


def test_a_model_folder_must_hold_a_model(model_folder):
    folder = model_folder()
    load_settings("train", [f"model.name={folder}"])
    assert f"did you mean {folder}?" in refusal("train", [f"model.name={folder}e"])
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal("train", [f"model.name={folder}"])
    (folder / "model.safetensors").unlink()
    assert "no weights" in refusal("train", [f"model.name={folder}"])
    (folder / "config.json").unlink()
    assert "no config.json" in refusal("train", [f"model.name={folder}"])


def test_a_quantized_model_a_run_folder_and_a_full_folder_are_refused(model_folder):
    folder = model_folder(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert "quantized already" in refusal("train", [f"model.name={folder}"])
    final = model_folder("run/final_model")
    model_folder("run/initial_model")
    assert f"did you mean {final}?" in refusal("evaluate", [f"checkpoint={final.parent}"])
    assert "not empty" in refusal("expand", [f"out={final}"])


@pytest.mark.parametrize("command", ["train", "plan", "check", "expand", "score"])
def test_a_base_with_a_reasoning_vocabulary_is_refused_by_every_command_that_takes_a_base(command, model_folder):
    folder = model_folder()
    VocabLayout(10, (1, 2, 3), 7, 8, (), (7, 8)).save(folder)
    words = {"check": ["dataset=arithmetic"], "expand": ["out=new"], "score": ["dataset=arithmetic"]}.get(command, [])
    message = refusal(command, [f"model.name={folder}", *words])
    assert "has a reasoning vocabulary already" in message and str(folder) in message


def test_results_lie_beside_the_checkpoint_under_the_name_of_the_problems(model_folder):
    settings = load_settings("evaluate", [f"checkpoint={model_folder()}", "dataset=gsm8k", "temperature=0"])
    assert settings.folder == settings.checkpoint / "evaluation" / "gsm8k"


def test_a_wandb_key_is_found_in_the_environment_and_in_netrc_for_its_own_host_or_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))
    message = refusal("train", [])
    assert all(part in message for part in ("WANDB_API_KEY", "wandb login", "logging=offline"))
    for word in ("logging=offline", "logging.enabled=false"):
        load_settings("train", [word])
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    load_settings("train", [])
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert "WANDB_API_KEY" in refusal("train", [])
    monkeypatch.setenv("WANDB_API_KEY", "x")
    load_settings("train", [])


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ("mine.py", "training.trainer=mine.py: write file.py:Class or module:Class"),
        ("gone.py:Own", "training.trainer: no such file gone.py"),
        ("{file}:Owm", "did you mean Own?"),
        ("{file}:Own", "inherit from rlvr_vocab's GRPOTrainer, as `from rlvr_vocab import GRPOTrainer` has it"),
        ("{file}:later", "training.trainer={file}:later: inherit from rlvr_vocab's"),
        ("{{name: {file}:Own}}", "it takes no parameters"),
        ("{file}:Typo", "overrides no method of GRPOTrainer; did you mean keep_groups?"),
        ("{file}:Few", "advantages is called with (self, rewards_BR, advantages_B): too many"),
    ],
)
def test_a_trainer_of_ones_own_must_be_a_subclass_of_ours(trainer, message, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlvr_vocab.training.trainer import RegionGRPOTrainer\n"
        "class Own:\n    pass\nlater = Own()\n"
        "class Typo(RegionGRPOTrainer):\n    def keep_group(self, rewards_NGR): ...\n"
        "class Few(RegionGRPOTrainer):\n    def advantages(self, rewards_BR): ...\n"
    )
    assert message.format(file=file) in refusal("train", [f"training.trainer={trainer.format(file=file)}"])
