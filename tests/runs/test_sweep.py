"""`--multirun`: which runs the words stand for, what each is called, and what is refused."""

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.runs.multirun import jobs_of

pytestmark = pytest.mark.slow  # each composes several configurations


def swept(*words: str) -> list[str]:
    return [str(job) for job in jobs_of("train", ["--multirun", *words])]


def names(*words: str) -> list[str]:
    return [job.folder.name for job in jobs_of("train", ["-m", *words])]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["seed=1,2"], ["seed=1", "seed=2"]),
        (["seed=range(1,4)"], ["seed=1", "seed=2", "seed=3"]),
        (["seed=choice(7,5)"], ["seed=7", "seed=5"]),
        (["logging=glob(*,exclude=[wandb,o*])", "seed=1,2"], ["seed=1", "seed=2"]),
        (["rewards=[accuracy,boxed],[accuracy]"], ["rewards=[accuracy,boxed]", "rewards=[accuracy]"]),
        (["model.name=a/b,c/d"], ["model.name=a/b", "model.name=c/d"]),
        (["+training.beta=0,0.1"], ["+training.beta=0", "+training.beta=0.1"]),
        (["seed=1,2", "seed=3"], [""]),  # of a key that is given twice the last counts
        (["seed=1,1,2"], ["seed=1", "seed=2"]),
        (["rewards=[accuracy,boxed]"], [""]),
        (["dataset.system_prompt='Think, then answer'"], [""]),
        (["dataset.system_prompt=Think (hard)."], [""]),
        (["training=small_gpu,large_gpu", "seed=1,2"],
         [f"training={size}_gpu seed={seed}" for size in ("small", "large") for seed in (1, 2)]),
    ],
)  # fmt: skip
def test_the_values_are_those_of_hydras_grammar_the_last_key_fastest(words: list[str], values: list[str]) -> None:
    assert swept(*words) == values


def test_the_words_of_a_job_start_it_alone_in_the_same_folder() -> None:
    jobs = jobs_of("train", ["-m", "--config-name", "config", "seed=1,2", "exp_name=mine", "training.max_steps=3"])
    for job in jobs:
        [alone] = jobs_of("train", ["-m", *job.words])
        assert alone.folder == job.folder and "training.max_steps=3" in job.words
    assert [job.folder.name for job in jobs] == ["mine_seed1", "mine_seed2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model.reasoning_vocab_size=0,10"], ["grpo_baseline", "grpo_reasoning_10"]),
        (
            ["model.reasoning_vocab_size=0,10", "seed=1,2"],
            ["grpo_baseline_seed1", "grpo_baseline_seed2", "grpo_reasoning_10_seed1", "grpo_reasoning_10_seed2"],
        ),
        (["exp_name=s${seed}", "seed=1,2"], ["s1", "s2"]),
        (["experiment=gsm8k_reasoning", "seed=1,2"], ["gsm8k_reasoning_151646_seed1", "gsm8k_reasoning_151646_seed2"]),
        (["training.learning_rate=1e-6,2e-6"], [f"grpo_baseline_learning_rate{rate}e-06" for rate in (1, 2)]),
        (["rewards=[accuracy,boxed],xml"], ["grpo_baseline_rewards_accuracy-boxed", "grpo_baseline_rewards_xml"]),
    ],
)
def test_a_name_holds_what_tells_its_run_from_the_others_and_no_more(words: list[str], expected: list[str]) -> None:
    assert names(*words) == expected


def test_one_job_of_a_sweep_is_the_run_that_it_is_among_all() -> None:
    words = ["seed=1,2", "training.beta=0,0.1"]
    everything = jobs_of("train", ["-m", *words])
    assert [jobs_of("train", ["-m", *words, "--job", str(number)])[0] for number in range(4)] == everything


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=1,2", "output_dir=here"], "jobs 1 and 2 of the sweep would both write here"),
        (["seed=interval(0,1)"], "an interval has no end of values"),
        (["rewards=glob(nothing*)"], "stands for no value"),
        (["sed=1,2"], "did you mean seed?"),
        (["seed=1,2", "--job", "2"], "--job 2: the sweep has 2 jobs, 0 to 1"),
    ],
)
def test_what_is_no_sweep_is_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        jobs_of("train", ["--multirun", *words])
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_only_a_run_is_swept() -> None:
    with pytest.raises(UserError, match="--multirun is for train and quickstart"):
        jobs_of("evaluate", ["-m", "checkpoint=a,b"])
