"""A run's stages as settings: what was typed for the run, with the stage's own keys over it."""

import pytest

from rlvr_vocab.cli import load_settings
from rlvr_vocab.errors import UserError

pytestmark = pytest.mark.slow  # each composes the configuration of several stages

QUICK = ("experiment=quickstart", "exp_name=stages_test")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def stages(text, *words):
    return load_settings("train", [*QUICK, *words, f"stages={text}"]).stages


def test_a_run_in_one_piece_has_no_stages():
    assert load_settings("train", QUICK).stages == ()


def test_a_stage_sets_its_keys_over_those_of_the_run():
    first, second = stages(
        "[{name:form,rewards:format,training:{max_steps:7}},"
        "{name:long,rewards:[accuracy,{name:boxed,weight:0.5}],generation:{max_new_tokens:96,temperature:0.7}}]",
        "training.max_steps=50",
        "training.learning_rate=1e-5",
    )
    assert (first.name, second.name) == ("form", "long")
    assert [function.name for function in first.run.rewards.functions] == ["think_format", "boxed"]
    assert [(function.name, function.weight) for function in second.run.rewards.functions] == [
        ("accuracy", 1.0),
        ("boxed", 0.5),
    ]
    assert (first.run.training.grpo["max_steps"], second.run.training.grpo["max_steps"]) == (7, 50)
    assert first.run.training.grpo["learning_rate"] == second.run.training.grpo["learning_rate"] == 1e-5
    assert (first.run.training.grpo["max_completion_length"], first.run.training.grpo["temperature"]) == (48, 1.0)
    assert (second.run.training.grpo["max_completion_length"], second.run.training.grpo["temperature"]) == (96, 0.7)
    assert second.run.training.grpo["reward_weights"] == [1.0, 0.5]
    assert first.run.output_dir == second.run.output_dir


@pytest.mark.parametrize(
    "typed",
    [
        ["training.max_completion_length=64"],
        ["training.max_completion_length=null", "model.generation_kwargs.max_new_tokens=64"],
    ],
)
@pytest.mark.parametrize("own", ["generation:{max_new_tokens:96}", "training:{max_completion_length:96}"])
def test_a_limit_is_the_stages_whichever_of_its_names_was_set_before(typed, own):
    [stage] = stages(f"[{{name:a,{own}}}]", *typed)
    assert stage.run.training.grpo["max_completion_length"] == 96
    assert stage.run.model.generation_kwargs["max_new_tokens"] == 96


def test_the_recorded_configuration_brings_back_the_same_stages(tmp_path):
    from rlvr_vocab.config.recorded import config_yaml

    words = [*QUICK, "stages=[{name:a,rewards:format,training:{max_steps:3}},{name:b,until:{metric:reward,below:1}}]"]
    settings = load_settings("train", words)
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved))
    again = load_settings("train", [f"config={tmp_path / 'config.yaml'}"])
    assert again.stages == settings.stages
    assert again.resolved == settings.resolved


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{rewards:format}]", r"stages\[0\].name is missing"),
        ("[{name:'a b'}]", r"stages\[0\].name=a b: is no name for a folder"),
        ("[{name:a},{name:a}]", r"several are called a"),
        ("[{name:a,reward:format}]", r"unknown key stages\[0\].reward; did you mean stages\[0\].rewards\?"),
        ("[{name:a,training:{lerning_rate:1}}]", r"stage a: unknown key training.lerning_rate; did you mean"),
        ("[{name:a,training:{num_generations:7}}]", r"stage a: training.num_generations=7 does not divide"),
        ("[{name:a,rewards:[acuracy]}]", r"stage a: rewards: no reward acuracy; did you mean accuracy\?"),
        ("[{name:a,training:5}]", r"stages\[0\].training=5: should be"),
        ("[{name:a,until:{metric:reward}}]", r"stage a: until: give either above or below"),
        ("[a,b]", r"stages\[0\]=a: should be an object"),
    ],
)
def test_what_is_wrong_with_a_stage_is_said_with_its_name(text, message):
    with pytest.raises(UserError, match=message):
        stages(text)


def test_literal_text_of_a_stage_stays_literal():
    [stage] = stages(r"[{name:a,dataset:{system_prompt:'costs \${x}, {a}: [b]'}}]")
    assert stage.run.dataset.system_prompt == "costs ${x}, {a}: [b]"


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
    assert [function.name for function in third.run.rewards.functions] == ["think_format", "boxed"]
    assert second.run.training.grpo["learning_rate"] == 9e-5
    assert (second.run.training.grpo["max_steps"], third.run.training.grpo["max_steps"]) == (3, 9)
    assert second.run.training.grpo["max_completion_length"] == 48  # the file does not say: the run's
    assert (second.run.dataset.eval_fraction, second.run.dataset.generator.digits) == (0.2, 1)
    assert first.run.dataset.eval_fraction == 0.1


def test_the_record_of_a_stage_does_not_depend_on_files(own_files, tmp_path):
    from rlvr_vocab.config.recorded import config_yaml

    words = [*QUICK, "--config-dir", str(own_files), "stages=[{name:b,rewards:mine,training:{max_steps:3}}]"]
    settings = load_settings("train", words)
    assert settings.resolved["stages"][0]["rewards"]["functions"][0]["name"] == "boxed"
    (tmp_path / "config.yaml").write_text(config_yaml(settings.resolved))
    (own_files / "rewards" / "mine.yaml").write_text("functions: [accuracy]\n")
    assert load_settings("train", [f"config={tmp_path / 'config.yaml'}"]).stages == settings.stages
    changed = load_settings("train", words)
    assert changed.resolved != settings.resolved  # which a run's folder refuses


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{name:a,training:{use_transformers_continuous_batching:true}}]", r"stage a: .*region policy"),
        ("[{name:a,generation:{max_new_tokens:12},training:{max_completion_length:20}}]", r"stage a: .*two values"),
        (
            "[{name:a,until:{metric:rewad,above:1}}]",
            r"stage a: until.metric=rewad: no step logs that; did you mean reward",
        ),
        (
            "[{name:a,training:{eval_steps:null},until:{metric:eval/format,above:1}}]",
            r"stage a: until.metric=eval/format: held-out problems are measured with training.eval_steps=N alone",
        ),
        (
            "[{name:a,rewards:format,training:{eval_steps:5},until:{metric:eval/accuracy,above:1}}]",
            r"until.metric=eval/accuracy: held-out answers are graded by think_format \+ boxed, which calls none right",
        ),
        (
            "[{name:a,rewards:format,until:{metric:rewards/accuracy/mean,above:1}}]",
            r"stage a: until.metric=rewards/acc",
        ),
    ],
)
def test_what_would_go_wrong_in_a_stage_is_refused_before_the_run(text, message):
    with pytest.raises(UserError, match=message):
        stages(text)


def test_a_metric_that_is_only_sometimes_logged_may_end_a_stage():
    [stage] = stages("[{name:a,until:{metric:thinking/reasoning_share,above:0.5}}]")
    assert stage.until is not None
