"""Settles the keys that say the same thing twice, so that the recorded configuration has one answer."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlvr_vocab.config.compose import CONF, Composed, resolve
from rlvr_vocab.config.secrets import refuse_secrets
from rlvr_vocab.config.values import read, refuse_impossible_values, wrong_type
from rlvr_vocab.errors import UserError

# model.generation_kwargs.<key> -> the same thing as training.<key>
SHARED_KEYS = {"max_new_tokens": "max_completion_length", "temperature": "temperature"}


@cache
def shipped_values(model_key: str) -> tuple[int | float, ...]:
    """What the files in conf/model/ say of one of SHARED_KEYS, that of _base.yaml first."""
    files = [CONF / "model" / "_base.yaml", *sorted((CONF / "model").glob("[!_]*.yaml"))]
    written = [yaml.safe_load(file.read_text(encoding="utf-8")).get("generation_kwargs", {}) for file in files]
    return tuple(generation[model_key] for generation in written if model_key in generation)


def resolved_config(composed: Composed) -> dict[str, Any]:
    """The composed configuration as plain values, twins settled; as a config.yaml it composes to itself."""
    config = resolve(composed)
    refuse_secrets(config)
    refuse_impossible_values(config)
    if "model" in config:
        settle_reasoning_vocab_size(config["model"])
    if "rewards" in config:
        settle_reward_functions(config)
    if isinstance(config.get("dataset"), dict):
        settle_tasks(config["dataset"])
    section = config.get("evaluation", config)  # in a run there is a section of that name
    if isinstance(section, dict) and "grader" in section:
        section["grader"] = settled_grader(section["grader"])
    if "training" in config:
        for model_key, training_key in SHARED_KEYS.items():
            settle_shared_key(config, model_key, training_key, composed)
    return config


def settle_shared_key(config: dict[str, Any], model_key: str, training_key: str, composed: Composed) -> None:
    """model.generation_kwargs.X and training.Y are one thing: both get the value set, or the shipped one.

    What is typed, or chosen with training=…, goes over what a recipe or a recorded run says under the other name.
    """
    generation, training = config["model"]["generation_kwargs"], config["training"]
    if not isinstance(generation, dict):
        raise wrong_type(generation, "model.generation_kwargs", "a mapping")
    one, other = f"model.generation_kwargs.{model_key}", f"training.{training_key}"
    shipped = shipped_values(model_key)
    kind = type(shipped[0])
    value = read(kind | None, generation.get(model_key), one)
    twin = read(kind | None, training.get(training_key), other)
    typed_one, typed_other = one in composed.given, other in composed.given or "training" in composed.chosen
    if typed_one and not typed_other and value is not None:
        twin = None
    if typed_other and not typed_one and composed.recorded:  # which holds the value twice
        value = None
    value_set = value is not None and (typed_one or value not in shipped)
    if value_set and twin is not None and value != twin:
        raise UserError(f"{one}={value} and {other}={twin} are the same thing with two values: give {other} alone")
    settled = twin if twin is not None else (value if value is not None else shipped[0])
    generation[model_key] = training[training_key] = settled


def settle_reasoning_vocab_size(model: dict[str, Any]) -> None:
    """source_ids alone give n; together they must agree."""
    source_ids, n = model.get("source_ids"), model.get("reasoning_vocab_size")
    if not isinstance(source_ids, list) or n == len(source_ids):
        return
    if n:
        raise UserError(
            f"model.source_ids has {len(source_ids)} ids but model.reasoning_vocab_size={n}: give one of them"
        )
    model["reasoning_vocab_size"] = len(source_ids)


def settle_tasks(dataset: dict[str, Any]) -> None:
    """A name alone is a whole task."""
    if isinstance(dataset.get("tasks"), list):
        dataset["tasks"] = [{"name": task} if isinstance(task, str) else task for task in dataset["tasks"]]


def settle_reward_functions(config: dict[str, Any]) -> None:
    """A name alone is a whole function; `adaptive: true` means the usual factors; a file is named by its full path."""
    if not isinstance(config["rewards"], dict):
        raise UserError(f"rewards: expected functions: [...], got {config['rewards']!r:.80}")
    functions = config["rewards"].get("functions")
    if isinstance(functions, list):
        config["rewards"]["functions"] = [settled_function(function) for function in functions]


def settled_grader(grader: Any) -> Any:
    """One reward is a list of one."""
    if grader is None:
        return None
    return [settled_function(each) for each in (grader if isinstance(grader, list) else [grader])]


def settled_function(function: Any) -> Any:
    if isinstance(function, str):
        function = {"name": function}
    if not isinstance(function, dict):
        return function
    function = dict(function)
    if isinstance(function.get("adaptive"), bool):
        function["adaptive"] = {} if function["adaptive"] else None
    file, _, attribute = str(function.get("name")).rpartition(":")
    if file.endswith(".py") and Path(file).expanduser().is_file():
        function["name"] = f"{Path(file).expanduser().absolute()}:{attribute}"
    return function
