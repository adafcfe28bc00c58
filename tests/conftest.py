"""Models for the tests: tiny ones of every shape that the project supports, made on the spot, and two real ones."""

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"
SENTENCES = (
    "Natalia sold 48 clips in April, and then she sold half as many clips in May.",
    "How many clips did Natalia sell altogether in April and May? She sold 72 clips altogether.",
    "system user assistant: let us think about 12 * 3 = 36 and then answer with \\boxed{36}.",
    "The café costs €4, naïve as it is; the answer stands in the box.\n\nWhat is 3 + 4?",
)
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
BODY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
}


_TEMPORARY = pytest.StashKey[Path]()


def pytest_configure(config):
    """A temporary folder of the session's own: libraries leave theirs behind in processes that are killed."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest looks after its folders itself
    config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="rlvr-vocab-tests-"))
    tempfile.tempdir = os.environ["TMPDIR"] = str(config.stash[_TEMPORARY])
    os.environ["RLVR_VOCAB_CACHE"] = str(config.stash[_TEMPORARY] / "cache")


def pytest_collection_finish():
    """Each trainer collects garbage at its end: half of its seconds, unless what is imported by now is left out."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config):
    shutil.rmtree(config.stash[_TEMPORARY], ignore_errors=True)  # a process that is being killed may still write there


@dataclass(frozen=True)
class Shape:
    """A base model folder and its properties."""

    folder: Path
    tied: bool
    knows_tags: bool
    chat_template: str | None  # to hand to the expansion, where the tokenizer has none


@pytest.fixture(scope="session")
def make_shape(tmp_path_factory):
    """A base model by the name of its shape, made at the first call."""
    root, made = tmp_path_factory.mktemp("bases"), {}

    def make(name):
        if name not in made:
            made[name] = _write_shape(name, root / name)
        return made[name]

    return make


@pytest.fixture(scope="session")
def expand_shape(make_shape, tmp_path_factory):
    """The folder of a shape under `Expansion` fields, written at the first call; rows are independent by default."""
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    root, made = tmp_path_factory.mktemp("expanded"), {}

    def expand(name, **fields):
        key = (name, *sorted(fields.items()))
        if key not in made:
            base = make_shape(name)
            expansion = Expansion(**{"chat_template": base.chat_template, "reasoning_rank": None, **fields})
            made[key] = root / f"{name}-{len(made)}"
            write_expansion(plan_expansion(str(base.folder), expansion), made[key])
        return made[key]

    return expand


# Reads a call into some letters, so that models whose tokens are drawn by chance call tools in half of their turns.
CALLS_IN_LETTERS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": "(?P<letter>[a-zA-Z])",
            "close_pattern": "$",
            "transform": [{"type": "function", "function": {"name": "ask", "arguments": {"letter": "{letter}"}}}],
        },
        "content": {"close_pattern": r"<\|im_end\|>"},
    },
}


def ask(letter: str) -> str:
    """Answers a letter.

    Args:
        letter: a letter.
    """
    return f"It is {ord(letter)}."


@pytest.fixture(scope="session")
def calling_shape(make_shape, tmp_path_factory):
    """The folder of a shape that calls tools by chance, ending turns with one of many tokens, under `Expansion`."""
    from transformers import AutoTokenizer

    from rlvr_vocab.training.models.tiny import CHAT_TEMPLATE
    from rlvr_vocab.vocab.expand import Expansion, plan_expansion, write_expansion

    def make(name, **fields):
        base, out = (tmp_path_factory.mktemp(f"calling-{name}") / part for part in ("base", "expanded"))
        shutil.copytree(make_shape(name).folder, base)
        tokenizer = AutoTokenizer.from_pretrained(base)
        tokenizer.response_template, tokenizer.chat_template = CALLS_IN_LETTERS, CHAT_TEMPLATE
        tokenizer.save_pretrained(str(base))
        generation = base / "generation_config.json"
        ends = [*range(5, 300, 4), tokenizer.eos_token_id]
        generation.write_text(json.dumps({**json.loads(generation.read_text()), "eos_token_id": ends}))
        write_expansion(plan_expansion(str(base), Expansion(**{"reasoning_rank": None, **fields})), out)
        return out

    return make


@pytest.fixture(scope="session")
def bytes_beyond():
    """Peak memory of a call beyond that of the process before it; on Linux alone."""
    from rlvr_vocab.training.metrics.step_clock import GIB, PeakMemory

    def measure(call):
        peaks = PeakMemory()
        if sys.platform != "linux" or peaks.enter("before") is None:
            pytest.skip("the peak of resident memory cannot be read here")
        with peaks.phase("call"):
            call()
        return GIB * (peaks.highest["call"] - peaks.highest["before"])

    return measure


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct, with its real weights."""
    return _real_model("smollm2", ("gguf",))


@pytest.fixture(scope="session")
def qwen3():
    """Qwen3's real vocabulary and chat template on a body of two small layers."""
    return _real_model("qwen3", ("tiktoken",))


def _real_model(name, packages):
    """A real folder from `RLVR_VOCAB_TEST_MODELS`, else from a cache that the script beside the repository fills."""
    if given := os.environ.get("RLVR_VOCAB_TEST_MODELS"):
        return Path(given, name)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr-vocab" / "test-models"
    if (cache / name).is_dir():
        return cache / name
    script = SHARED / "tools" / f"get_{name}.py"
    if not script.is_file():
        pytest.skip(f"{name} is not made here: {script} is absent")
    for package in packages:
        pytest.importorskip(package, reason=f"{script.name} needs {package}")
    from rlvr_vocab.files import atomic_dir

    with atomic_dir(cache / name, keep_existing=True) as folder:
        subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return cache / name


def _write_shape(name, folder):
    import torch
    import transformers

    tokenizer = _sentencepiece_like() if name == "gemma3" else _byte_level(name)
    rows = len(tokenizer) + (13 if name in ("qwen3", "qwen2") else 0)
    config = _config(transformers, name, rows, tokenizer)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():  # wide enough that no two tokens are equally likely
            if parameter.dim() > 1:
                parameter.data.normal_(std=0.3 if parameter.size(0) == rows else 0.08)
        if name == "phi":
            model.lm_head.bias.data.normal_()
    model.generation_config.update(**TRUNCATING_DEFAULTS)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(str(folder))
    if name == "qwen2":
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "Qwen2Tokenizer"}))
    without_template = tokenizer.chat_template is None
    return Shape(folder, config.tie_word_embeddings, name == "qwen3", PLAIN_TEMPLATE if without_template else None)


TRUNCATING_DEFAULTS = {
    "do_sample": True,
    "top_p": 0.8,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "no_repeat_ngram_size": 100,
}


def _config(transformers, name, rows, tokenizer):
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    common = {**ids, "pad_token_id": tokenizer.pad_token_id, "vocab_size": rows, "tie_word_embeddings": False}
    tied = {**BODY, "tie_word_embeddings": True}
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512}
    kind, fields = {
        "qwen3": ("Qwen3", {**tied, "head_dim": 16}),
        "qwen2": ("Qwen2", tied),
        "llama": ("Llama", BODY),
        "llama_of_vllm": ("Llama", {**BODY, "head_dim": 64}),  # the least that its CPU kernels take
        "gemma3": ("Gemma3Text", {**tied, "head_dim": 16, "final_logit_softcapping": 4.0}),
        "gpt2": ("GPT2", {**gpt2, "tie_word_embeddings": True}),
        "gpt2_untied": ("GPT2", gpt2),
        "olmo2": ("Olmo2", BODY),  # norms after attention and MLP
        "phi": ("Phi", {**BODY, "num_key_value_heads": 2, "bos_token_id": None}),  # a head with a bias
    }[name]
    return getattr(transformers, f"{kind}Config")(**{**common, **fields})


def _byte_level(name):
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import TokenizersBackend

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    if name in ("gpt2", "gpt2_untied", "phi"):
        backend.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
        return TokenizersBackend(tokenizer_object=backend, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    if name == "qwen3":
        backend.normalizer = normalizers.NFC()
        backend.add_tokens([AddedToken(tag, normalized=False) for tag in ("<think>", "</think>")])
    if name == "llama":
        start = backend.token_to_id("<|endoftext|>")
        backend.post_processor = TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A $B", special_tokens=[("<|endoftext|>", start)]
        )
    return TokenizersBackend(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token=None if name == "llama" else "<|endoftext|>",
        bos_token="<|endoftext|>" if name == "llama" else None,
        chat_template=CHATML,
    )


def _sentencepiece_like():
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers
    from transformers import TokenizersBackend

    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    backend.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=400, special_tokens=[*special, *bytes_], show_progress=False)
    )
    # The trainer takes byte tokens as special ones alone; in the real vocabulary they are ordinary entries.
    content = json.loads(backend.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] not in bytes_]
    backend = Tokenizer.from_str(json.dumps(content))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    template = (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] + '<end_of_turn>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    )
    names = {"eos_token": "<eos>", "bos_token": "<bos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return TokenizersBackend(tokenizer_object=backend, chat_template=template, **names)


@pytest.fixture
def real_data():
    """The folder of real problem sets, which the project does not carry."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip(f"the real problem sets are not at {folder}")
    return folder


@pytest.fixture
def make_adapter(tmp_path):
    """An adapter folder as a run leaves it, on an expanded folder, with weights that no training has to find first."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from rlvr_vocab.vocab.adapter import add_trained_rows, first_trained_row
    from rlvr_vocab.vocab.layout import VocabLayout
    from rlvr_vocab.vocab.tokenizer import load_tokenizer
    from rlvr_vocab.vocab.weights import record_base

    def make(base, train_rows="none", folder=None, **config):
        folder = folder or tmp_path / f"adapter-{train_rows}"
        model = AutoModelForCausalLM.from_pretrained(base)
        layout = VocabLayout.load(base)
        lora = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **config}
        adapted = get_peft_model(model, LoraConfig(**lora))
        first = first_trained_row(train_rows, layout)
        if first is not None:
            add_trained_rows(adapted, first)
        generator = torch.Generator().manual_seed(1)
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                scale = 0.3 if "lora_rows" in name else 0.1
                parameter.data += scale * torch.randn(parameter.shape, generator=generator)
        adapted.save_pretrained(folder)
        load_tokenizer(base).save_pretrained(str(folder))
        layout.save(folder)
        record_base(folder, base)
        return folder

    return make


@pytest.fixture(autouse=True)
def quiet_environment(tmp_path, monkeypatch):
    """An empty working folder, no W&B, one process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    for name in ("WORLD_SIZE", "RANK", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def made(tmp_path):
    """Makes the folder of a run by its name, for which nothing is trained."""
    from tests.compared_runs import write_run

    return lambda name, **given: write_run(tmp_path / name, **given)


@pytest.fixture
def error_of(capsys):
    """The one line on stderr with which a command refuses its words."""
    from rlvr_vocab.cli import main

    def run(*words):
        capsys.readouterr()
        assert main([*words]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1
        return error

    return run


@pytest.fixture
def model_folder(tmp_path):
    """Makes the files by which a model folder is recognised; nothing in them can be loaded."""

    def make(name="base", **config):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 100, **config}))
        (folder / "model.safetensors").touch()
        (folder / "tokenizer.json").touch()
        return folder

    return make
