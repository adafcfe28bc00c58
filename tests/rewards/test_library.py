"""Every reward function of the library: hostile texts, examples, cost of importing, a run in TRL's own trainer."""

import doctest
import importlib
import inspect
import json
import math
import pickle
import pkgutil
import time
from functools import partial
from importlib.util import find_spec

import pytest
import trl.rewards

import rlvr_vocab.rewards
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import RewardContext, build_rewards
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import RewardSpec, Score, Traits, after_thinking, reward, traits_by_name, traits_of
from rlvr_vocab.sandbox.program import encoded

NEEDED = {
    "cosine_length": {"max_completion_length": 16, "grader": "numeric"},
    "llm_judge": {"url": "http://127.0.0.1:9/v1", "model": "judge", "rubric": "?", "budget": 0, "cache": None},
    "length": {"longest": 16},
    "overlong": {"max_completion_length": 16, "cache": 4},
}
needs_gym = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")
NAMES = [pytest.param(name, marks=needs_gym) if name == "reasoning_gym" else name for name in LIBRARY]
CALLS = [pytest.param(name, {}, marks=needs_gym if name == "reasoning_gym" else ()) for name in LIBRARY]
# As the rows of dataset=reasoning_gym hold it.
ENTRY = json.dumps(encoded({"question": "3 + 4 =", "answer": "7", "metadata": {}, "task": "chain_sum", "params": {}}))
NEEDED |= {alias: NEEDED[name] for name in NEEDED for alias in LIBRARY[name].traits.aliases}
UNITS = [(name, {"unit": unit}) for name in ("length", "repetition") for unit in ("words", "characters")]
MEGABYTE = 1_000_000
HOSTILE = {
    "thousands": "123" + ",123" * (MEGABYTE // 4),
    "words": " ".join(map(str, range(MEGABYTE // 7))),
    "boxes": r"\boxed{1}" * (MEGABYTE // 9),
    "a large box": r"\boxed{" + "A." * (MEGABYTE // 2) + "}",
    "half elements": f"<reasoning>{'</reasoning' * (MEGABYTE // 11)}</reasoning>{' ' * 1000}<answer></answer>!",
    "long thinking": "<think>" + "x" * MEGABYTE + "</think>1",
    "open blocks": "```json\n" * (MEGABYTE // 8) + " " * MEGABYTE,
    "answers": "the answer is " * (MEGABYTE // 14),
    "signs": "-$" * (MEGABYTE // 2),
    "surrogates": "\ud800" * MEGABYTE,
    "no text": [{"role": "assistant", "content": None}],
}


QUICK = ("boxes", "half elements", "surrogates", "no text")


@pytest.mark.parametrize(
    "hostile", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE if name not in QUICK)]
)
@pytest.mark.parametrize(("name", "more"), [*CALLS, *UNITS])
def test_hostile_completions_are_scored_at_once(name, more, hostile):
    batch = {
        "prompts": ["p"] * 2,
        "completions": [HOSTILE[hostile], "7"],
        "completion_ids": [[1, 401, 3] * 10_000, [7]],
        "solution": ["7", "7"],
        "tests": ["assert f() == 7"] * 2,
        "entry": [ENTRY] * 2,
    }
    started = time.process_time()
    scores = LIBRARY[name](**batch, **NEEDED.get(name, {}), **more)
    assert time.process_time() - started < 1
    assert len(scores) == 2
    assert all(score is None or (isinstance(score, float) and math.isfinite(score)) for score in scores)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("accuracy", {"answer_from": ["box", "boxes"]}, "accuracy: answer_from=['box', 'boxes']: should be 'box'"),
        ("numeric", {"absolute_tolerance": math.nan}, "numeric: absolute_tolerance=nan: should be a finite number"),
        ("think_format", {"prefilled": "no"}, "think_format: prefilled=no: should be a valid boolean"),
        ("json_format", {"schema": {"type": "text"}}, "json_format: schema={'type': 'text'} is no JSON schema"),
        ("length", {}, "length: shortest and longest are missing"),
        ("length", {"shortest": 5, "longest": 4}, "length: longest=4 is less than shortest=5"),
        ("length", {"longest": 4, "unit": "letters"}, "length: unit=letters: should be 'tokens', 'words' or "),
        ("overlong", {"max_completion_length": 5, "cache": 6}, "overlong: cache=6 is more than max_completion_length"),
        ("cosine_length", {"max_completion_length": 5, "grader": "numerik"}, "cosine_length: grader=numerik is "),
        ("overlong", {}, "overlong: max_completion_length is missing"),
        ("llm_judge", {**NEEDED["llm_judge"], "url": "localhost"}, "llm_judge: url=localhost: "),
        ("llm_judge", {**NEEDED["llm_judge"], "scale": [5, 1]}, "llm_judge: scale=[5.0, 1.0]: "),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_scored(name, settings, message):
    [built] = build_rewards([RewardSpec(name, params=settings)], RewardContext())
    with pytest.raises(UserError) as raised:
        built.check_parameters()
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", ["length", "repetition"])
def test_tokens_that_nobody_sampled_are_named(name):
    with pytest.raises(UserError, match=f"^{name}: completion_ids is missing"):
        LIBRARY[name](completions=[], **NEEDED.get(name, {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_reward_function_says_its_name_its_full_mark_and_its_reasons(name):
    function = LIBRARY[name]
    assert function.__name__ == name or name in function.traits.aliases
    assert math.isfinite(function.traits.full_mark)
    batch = {"prompts": ["p"], "completions": ["7"], "completion_ids": [[1, 401]], "solution": ["7"], "tests": ["x"]}
    [score] = function.explain(**batch, entry=[ENTRY], **NEEDED.get(name, {}))
    assert score.reason and len(score.reason) < 100
    assert score.value is None or score.value <= function.traits.full_mark
    assert pickle.loads(pickle.dumps(function)) is function  # TRL sends them to other processes
    empty = {key: [] for key in ("prompts", "completions", "completion_ids", "solution", "tests", "entry")}
    assert function(**empty, **NEEDED.get(name, {})) == []


def test_the_library_holds_every_function_of_trl_and_none_of_anybody_else():
    before = dict(LIBRARY)

    @reward(full_mark=2.0, grades=True, aliases=("numeric",))
    def accuracy(completions, **columns):
        return [Score(2.0, "mine") for _ in completions]

    of_trl = {name for names in trl.rewards._import_structure.values() for name in names}
    assert before == LIBRARY and of_trl <= LIBRARY.keys()
    assert traits_of(accuracy) == Traits(2.0, grades=True, aliases=("numeric",))
    assert traits_by_name("mine.py:accuracy") == traits_of(print) == Traits()
    assert LIBRARY["accuracy_reward"] is LIBRARY["accuracy"] and traits_by_name("xml_tags").full_mark == 0.5


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("<think>a</think>", ""),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("a</think>b", "b"),  # opened in the prompt
    ],
)
def test_the_answer_is_what_follows_the_last_thinking(turn, answer):
    assert after_thinking(turn) == answer
    assert after_thinking("[r]<think>[/r]x", ("[r]", "[/r]")) == "x"


MODULES = [
    module.name
    for module in pkgutil.walk_packages(rlvr_vocab.rewards.__path__, "rlvr_vocab.rewards.")
    if not module.ispkg
]


@pytest.mark.parametrize("module_name", MODULES)
def test_the_examples_of_a_module_are_true(module_name):
    if module_name.endswith(".reasoning_gym"):
        pytest.importorskip("reasoning_gym")
    module = importlib.import_module(module_name)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(verbose=False)
    for name, member in vars(module).items():
        # Looked for by hand: doctest passes over decorated functions.
        if getattr(member, "__module__", None) == module_name and callable(member):
            for test in finder.find(inspect.unwrap(member), name, globs=dict(vars(module))):
                runner.run(test)
    assert runner.failures == 0


@pytest.mark.slow
def test_every_reward_function_works_in_trls_own_trainer(make_shape, tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    row = {"prompt": [{"role": "user", "content": "3 + 4?"}], "solution": "7", "tests": "assert True", "entry": ENTRY}
    batch = {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 16}
    quiet = {"logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False}
    config = GRPOConfig(output_dir=str(tmp_path), **batch, **quiet)
    there = [name for name in LIBRARY if name != "reasoning_gym" or find_spec(name) is not None]
    functions = [partial(LIBRARY[name], **NEEDED.get(name, {})) for name in there]
    trainer = GRPOTrainer(
        str(make_shape("qwen3").folder), functions, config, train_dataset=Dataset.from_list([row] * 4)
    )
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert all(f"rewards/{function.func.__name__}/mean" in logged for function in functions)
    assert -1.0 <= logged["rewards/overlong/mean"] <= 0.0 and logged["rewards/length/mean"] == 1.0
