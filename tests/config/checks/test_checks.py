"""What is refused before torch is imported: one line that says what would be right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.checks import machine
from rlvr_vocab.errors import UserError


def refusal(command: str, words: list[str]) -> str:
    with pytest.raises(UserError) as caught:
        load_settings(command, words)
    assert "\n" not in str(caught.value)
    assert not Path("out").exists()
    return str(caught.value)


DIFFER = "the trained and the sampled policy would differ"


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        (
            "training.num_generations=3",
            ["num_generations=3", "8 completions", "steps_per_generation=6", "2 or 4 or 8"],
        ),
        ("training.num_generations=1", ["greater than or equal to 2"]),
        ("training.top_p=0.9", ["training.top_p=0.9", DIFFER]),
        ("training.generation_kwargs.top_p=0.9", ["training.generation_kwargs.top_p=0.9", DIFFER]),
        ("model.generation_kwargs.min_p=0.1", ["model.generation_kwargs.min_p=0.1", DIFFER]),
        ("model.generation_kwargs.do_sample=false", ["do_sample=false", DIFFER]),
        ("training.generation_kwargs.temperature=0.5", ["training.temperature=1.0", "same thing"]),
        ("training.top_k=-1", ["training.top_k=-1", "leave it out"]),  # what only vLLM calls off: generate crashes
        ("training.vllm_structured_outputs_regex=a+", ["training.vllm_structured_outputs_regex=a+", DIFFER]),
        ("training.temperature=0", ["greater than 0"]),
        ("training.max_steps=0", ["training.max_steps=0", "greater than or equal to 1"]),
        ("training.learning_rate=inf", ["training.learning_rate=inf", "must be finite"]),
        ("model.model_kwargs.trust_remote_code=no", ["trust_remote_code=no", "a valid boolean"]),
        ("training.top_entropy_quantile=1.5", ["training.top_entropy_quantile=1.5", "less than or equal to 1"]),
        ("training.seed=7", ["training.seed is not used here: set seed"]),
        ("model.reasoning_vocab_size=-1", ["-1"]),
        ("model.source_ids=[3,-4]", ["-4"]),
        ("model.source_ids=[]", ["model.source_ids", "at least 1"]),
        ("model.think_tags=[a,a]", ["two different"]),
        ("model.model_kwargs.torch_dtyp=bf16", ["torch_dtype?"]),
        ("model.model_kwargs.torch_dtype=fp8", ["fp8", "bf16"]),
        ("model.chat_template=nowhere.jinja", ["nowhere.jinja: no such file"]),
        ("model.name=tiny", ["model=tiny"]),
        ("dataset.name=arithmetic", ["dataset=arithmetic"]),
        ("dataset.eval_fraction=1.0", ["dataset.eval_fraction=1.0", "less than 1"]),
        ("training.warmup_ratio=1.0", ["less than 1"]),
        ("training.kl_over=txt", ["training.kl_over=txt", "did you mean text?", "'text' or 'ids'"]),
        ("warmup.until_accuracy=35", ["less than or equal to 1"]),
        ("rewards.functions=[{name: acuracy}]", ["acuracy", "accuracy?"]),
        ("rewards.functions=[]", ["rewards=accuracy"]),
        ("exp_name=..", ["exp_name"]),
        *(
            (f"exp_name={name}", ["exp_name", "folder"])
            for name in ("../x", "a/../../b", "/x", "~", r"a\\b", "a\nb", ".")
        ),
        ("dataset.system_prompt=half \udcff", ["dataset.system_prompt", "UTF-8"]),
        ("model.name=./nowhere/model", ["./nowhere/model: no such folder"]),
    ],
)
def test_a_run_that_cannot_work_is_refused_before_anything_is_written(word: str, parts: list[str]) -> None:
    message = refusal("train", [word])
    assert all(part in message for part in parts), message


LEVEL = "training.importance_sampling_level"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["training.loss_type=cispo"], ["training.epsilon_high=null: there it is the largest", "=5.0"]),
        (["training=cispo", "training.epsilon_high=0.28"], ["training.epsilon_high=0.28"]),
        ([f"{LEVEL}=sequence"], [f"{LEVEL}=sequence with training.loss_type=dapo", "(training=gspo)"]),
        (["training=dr_grpo", f"{LEVEL}=sequence"], ["training.loss_type=dr_grpo", "training.loss_type=grpo"]),
        (["training.loss_type=luspo"], [f"training.loss_type=luspo with {LEVEL}=token", "set sequence"]),
        (["training.loss_type=vespo", f"{LEVEL}=sequence"], [f"{LEVEL}=sequence", "set token"]),
        (
            ["training=large_gpu", "training.loss_type=vespo"],
            ["training.loss_type=vespo", "training.vllm_importance_sampling_mode=sequence_mask", "token_truncate"],
        ),
    ],
)
def test_a_loss_is_refused_importance_ratios_that_it_is_not_made_for(words: list[str], parts: list[str]) -> None:
    message = refusal("train", words)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    "words",
    [
        *([f"training={name}"] for name in ("grpo", "dapo", "gspo", "cispo", "dr_grpo")),
        ["training.loss_type=cispo", "training.epsilon_high=1.0"],
        ["training.loss_type=luspo", f"{LEVEL}=sequence"],
        ["training.loss_type=vespo"],
    ],
)
def test_a_loss_with_the_ratios_of_its_paper_is_accepted(words: list[str]) -> None:
    load_settings("train", words)


def test_what_needs_gold_answers_is_refused_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def wants(completions, answer):\n    return [0.0]\n\n"
        "def copes(completions, solution=None, **columns):\n    return [0.0]\n"
    )
    words = ["model=tiny", "dataset=arithmetic", "logging=disabled", "dataset.columns.answer=null"]
    mine = f"rewards=[{tmp_path}/mine.py"
    wanting = {"rewards=accuracy": "accuracy", "rewards=[numeric]": "numeric", f"{mine}:wants]": "wants"}
    for reward, name in wanting.items():
        message = refusal("train", [*words, reward])
        assert f"{name} needs gold answers, and dataset.columns.answer=null says that there are none" in message
        assert "dataset.columns.answer, or take another reward" in message
    assert "accuracy needs gold answers" in refusal("score", [*words[1:2], words[3], "rewards=accuracy"])
    for reward in ("rewards=[boxed]", f"{mine}:copes]"):
        load_settings("train", [*words, reward])
    message = refusal("train", [*words, "rewards=[boxed]", "warmup.max_steps=3"])
    assert "warmup.max_steps needs worked solutions and gold answers, and dataset.columns.answer=null says" in message


def test_solved_turns_before_chat_messages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"prompt": [{"role": "user", "content": "1+1="}], "answer": 2}\n')
    words = ["model=tiny", "logging=disabled", "dataset=local", f"dataset.name={tmp_path}/chat.jsonl"]
    words += ["dataset.columns.problem=prompt"]
    load_settings("train", words)
    message = refusal("train", [*words, "dataset.examples=[{problem: two, answer: two}]"])
    assert message.startswith('dataset.examples: column "prompt" holds chat messages, which are taken as they stand')


@pytest.mark.parametrize("word", ["training.top_p=1.0", "training.top_k=0", "model.generation_kwargs.do_sample=true"])
def test_sampling_options_that_change_nothing_are_accepted(word: str) -> None:
    load_settings("train", [word])


def test_the_number_of_processes_counts_in_a_generation_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["training.num_generations=16"]
    assert "steps_per_generation=8" in refusal("train", words)
    monkeypatch.setenv("WORLD_SIZE", "2")
    load_settings("train", words)


def test_optional_packages_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    present: set[str] = set()
    monkeypatch.setattr(machine, "find_spec", lambda name: name if name in present else None)
    assert "bitsandbytes is not installed" in refusal("train", ["training=small_gpu"])
    assert "vllm is not installed" in refusal("train", ["training=large_gpu"])
    present |= {"bitsandbytes", "vllm"}
    load_settings("train", ["training=small_gpu"])
    load_settings("train", ["training=large_gpu"])
    load_settings("train", ["training=large_gpu", "model.reasoning_vocab_size=5"])


def test_a_model_folder_must_hold_a_model(model_folder: Callable[..., Path]) -> None:
    folder = model_folder()
    load_settings("train", [f"model.name={folder}"])
    assert f"did you mean {folder}?" in refusal("train", [f"model.name={folder}e"])
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal("train", [f"model.name={folder}"])
    (folder / "model.safetensors").unlink()
    assert "no weights" in refusal("train", [f"model.name={folder}"])
    (folder / "config.json").write_text("{}")
    assert "model_type" in refusal("train", [f"model.name={folder}"])
    (folder / "config.json").write_text("{")
    assert "not JSON" in refusal("train", [f"model.name={folder}"])
    (folder / "config.json").unlink()
    assert "no config.json" in refusal("train", [f"model.name={folder}"])


def test_a_run_folder_given_for_a_model_points_at_its_final_model(model_folder: Callable[..., Path]) -> None:
    final = model_folder("run/final_model")
    model_folder("run/initial_model")
    assert f"did you mean {final}?" in refusal("evaluate", [f"checkpoint={final.parent}"])


def test_evaluate_and_generate_check_what_they_are_given(model_folder: Callable[..., Path]) -> None:
    checkpoint = f"checkpoint={model_folder()}"
    settings = load_settings("evaluate", [checkpoint, "dataset=gsm8k", "temperature=0"])
    assert settings.folders[0] == settings.checkpoint / "evaluation" / "gsm8k"
    assert "samples=0" in refusal("evaluate", [checkpoint, "samples=0"])
    assert "split=test" in refusal("evaluate", [checkpoint, "split=test"])
    assert "checkpoint is missing" in refusal("evaluate", [])
    assert "temperature=-1" in refusal("generate", [checkpoint, "prompt=hi", "temperature=-1"])
    assert "prompt" in refusal("generate", [checkpoint])
    assert load_settings("generate", [checkpoint, "prompt=hi"]).max_new_tokens == 512


def test_expand_writes_to_a_new_folder_only(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert "not empty" in refusal("expand", ["out=full"])
    assert load_settings("expand", ["out=new", "model=tiny"]).out == Path("new")


class TestWandbLogin:
    @pytest.fixture(autouse=True)
    def logged_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("WANDB_MODE")
        monkeypatch.setenv("HOME", str(tmp_path))

    def test_off_a_terminal_the_line_says_what_to_set(self) -> None:
        message = refusal("train", [])
        assert all(part in message for part in ("WANDB_API_KEY", "wandb login", "logging=offline"))

    def test_a_key_in_the_environment_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_API_KEY", "x")
        load_settings("train", [])

    def test_a_netrc_entry_counts_for_its_own_host_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password x\n")
        (tmp_path / ".netrc").chmod(0o600)
        load_settings("train", [])
        monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
        assert "WANDB_API_KEY" in refusal("train", [])

    @pytest.mark.parametrize("word", ["logging=offline", "logging=disabled", "logging.enabled=false"])
    def test_no_login_is_needed_without_an_online_run(self, word: str) -> None:
        load_settings("train", [word])
