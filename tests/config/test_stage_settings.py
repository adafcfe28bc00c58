"""A run's stages as settings: what was typed for the run, with the stage's own keys over it."""

import pytest

from rlvr_vocab.config.recorded import config_yaml
from rlvr_vocab.errors import UserError
from tests.settings import load_settings

pytestmark = pytest.mark.slow  # each composes the configuration of several stages

QUICK = ("experiment=quickstart", "exp_name=stages_test")
LIMIT = "model.generation_kwargs.max_new_tokens"


def stages(text, *words):
    return load_settings("train", [*QUICK, *words, f"stages={text}"]).stages


def test_a_stage_sets_its_keys_over_those_of_the_run():
    first, second = stages(
        "[{name:form,rewards:format,training:{max_steps:7}},"
        "{name:long,rewards:[accuracy,{name:boxed,weight:0.5}],generation:{max_new_tokens:96,temperature:0.7}}]",
        "training.max_steps=50",
        "training.learning_rate=1e-5",
    )
    assert (first.name, second.name) == ("form", "long")
    assert [function.name for function in first.run.rewards.functions] == ["think_format", "boxed"]
    weights = [(function.name, function.weight) for function in second.run.rewards.functions]
    assert weights == [("accuracy", 1.0), ("boxed", 0.5)]
    keys = ("max_steps", "learning_rate", "max_completion_length", "temperature")
    assert [first.run.training.grpo[key] for key in keys] == [7, 1e-5, 48, 1.0]
    assert [second.run.training.grpo[key] for key in keys] == [50, 1e-5, 96, 0.7]
    assert second.run.training.grpo["reward_weights"] == [1.0, 0.5]


@pytest.mark.parametrize(
    "typed",
    [["training.max_completion_length=64"], ["training.max_completion_length=null", f"{LIMIT}=64"]],
)
def test_a_limit_is_the_stages_whichever_of_its_names_was_set_before(typed):
    text = "[{name:a,generation:{max_new_tokens:96}},{name:b,training:{max_completion_length:96}},{name:c}]"
    for stage, limit in zip(stages(text, *typed), (96, 96, 64), strict=True):
        assert stage.run.training.grpo["max_completion_length"] == limit
        assert stage.run.model.generation_kwargs["max_new_tokens"] == limit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{rewards:format}]", r"stages\[0\].name is missing"),
        ("[{name:'a b'}]", r"stages\[0\].name=a b: is no name for a folder"),
        ("[{name:a,reward:format}]", r"unknown key stages\[0\].reward; did you mean stages\[\].rewards"),
        ("[{name:a},{name:a}]", r"several are called a"),
        ("[{name:a,training:{lerning_rate:1}}]", r"stage a: unknown key training.lerning_rate; did you mean"),
        ("[{name:a,training:{num_generations:7}}]", r"stage a: training.num_generations=7 does not divide"),
        ("[{name:a,until:{metric:reward}}]", r"stage a: until: give either above or below"),
        ("[{name:a,training:{eval_steps:5},until:{metric:eval/rewad,above:1}}]", r"eval/rewad: .+ mean reward\?"),
        (
            "[{name:a,training:{eval_steps:null},until:{metric:eval/format,above:1}}]",
            r"with training.eval_steps=N alone",
        ),
        (
            "[{name:a,rewards:format,training:{eval_steps:5},until:{metric:eval/accuracy,above:1}}]",
            r"until.metric=eval/accuracy: held-out answers are graded by think_format \+ boxed, which calls none right",
        ),
    ],
)
def test_what_is_wrong_with_a_stage_is_said_with_its_name(text, message):
    with pytest.raises(UserError, match=message):
        stages(text)


@pytest.fixture
def own_files(tmp_path):
    """A folder with a rewards file and a training file of the user's own."""
    for group, name, text in (
        ("rewards", "mine", "functions:\n  - name: boxed\n    weight: 0.3\n"),
        ("training", "slow", "defaults:\n  - grpo_default\n  - _self_\nlearning_rate: 9.0e-5\nmax_steps: 3\n"),
        ("dataset", "mine", "name: arithmetic\neval_fraction: 0.2\ngenerator:\n  digits: 1\n  num_problems: 40\n"),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    return tmp_path / "conf"


def test_a_file_that_a_stage_names_goes_over_what_was_typed_and_over_the_recipe(own_files):
    typed = ["--config-dir", str(own_files), "rewards=[accuracy]", "training.learning_rate=1e-5"]
    text = "[{name:a},{name:b,rewards:mine,training:slow,dataset:mine},{name:c,rewards:format,training:{max_steps:9}}]"
    first, second, third = stages(text, *typed)
    assert [function.name for function in first.run.rewards.functions] == ["accuracy"]
    assert [(function.name, function.weight) for function in second.run.rewards.functions] == [("boxed", 0.3)]
    assert second.run.training.grpo["learning_rate"] == 9e-5
    assert (second.run.training.grpo["max_steps"], third.run.training.grpo["max_steps"]) == (3, 9)
    assert second.run.training.grpo["max_completion_length"] == 48  # the file does not say: the run's
    assert (second.run.dataset.eval_fraction, second.run.dataset.generator.digits) == (0.2, 1)
    assert first.run.dataset.eval_fraction == 0.1


def test_the_recorded_configuration_brings_back_the_same_stages_whatever_becomes_of_files(own_files, tmp_path):
    prompt = r"dataset:{system_prompt:'costs \${x}, {a}: [b]'}"  # which stays literal
    stages = f"stages=[{{name:b,rewards:mine,training:{{max_steps:3}},until:{{metric:reward,below:1}},{prompt}}}]"
    words = [*QUICK, "--config-dir", str(own_files), stages]
    settings = load_settings("train", words)
    assert settings.resolved["stages"][0]["rewards"]["functions"][0]["name"] == "boxed"
    assert settings.stages[0].run.dataset.system_prompt == "costs ${x}, {a}: [b]"
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved))
    (own_files / "rewards" / "mine.yaml").write_text("functions: [accuracy]\n")
    assert load_settings("train", [f"config={tmp_path / 'config.yaml'}"]).stages == settings.stages
    assert load_settings("train", words).resolved != settings.resolved  # which a run's folder refuses
