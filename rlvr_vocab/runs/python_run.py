"""A run from Python: the trainer that `rlvr_vocab` exports records its training as the command line does."""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftModel
from torch import nn
from transformers.trainer_utils import TrainOutput

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import config_yaml, differences, is_from_python, read_recorded
from rlvr_vocab.config.trl_fields import NOT_USED, held_out_batch
from rlvr_vocab.data.answers import cell_text
from rlvr_vocab.data.problem_key import hashes, problem_key
from rlvr_vocab.data.source import FROM_PYTHON
from rlvr_vocab.errors import UserError
from rlvr_vocab.evaluation.sampling import SamplingSettings
from rlvr_vocab.files import atomic_write, fingerprint_of, json_text, read_json_if_there
from rlvr_vocab.plan.forecast import FORECAST
from rlvr_vocab.record.files import (
    CONFIG,
    ENVIRONMENT,
    INITIAL_MODEL,
    METRICS,
    PROBLEMS,
    SUMMARY,
    SYSTEM_PROMPT_USED,
    TENSORBOARD,
    TRACKERS,
)
from rlvr_vocab.record.results import HeldOutMetric, recorded_grader
from rlvr_vocab.rewards.build import IN_SCRIPT, RewardContext
from rlvr_vocab.rewards.grader import Grader, grader_spec
from rlvr_vocab.rewards.library import LIBRARY
from rlvr_vocab.rewards.reward import RewardSpec, content_text
from rlvr_vocab.runs.final_model import card_of_run, write_card
from rlvr_vocab.runs.folder import Run, environment, results_file
from rlvr_vocab.runs.held_out import HeldOutEvaluator
from rlvr_vocab.runs.summary import print_summary, write_forecast, write_summary
from rlvr_vocab.terminal import make_console
from rlvr_vocab.tools.functions import TOOLS
from rlvr_vocab.training.arguments import prompt_of, prompt_tokens
from rlvr_vocab.training.checkpoint_folders import checkpoint_for_all
from rlvr_vocab.training.models.load import differing_parts
from rlvr_vocab.training.stage import MetricsFile, start_trackers
from rlvr_vocab.training.trainer import RegionGRPOTrainer
from rlvr_vocab.vocab.layout import VocabLayout
from rlvr_vocab.vocab.tokenizer import think_tags

_ROWS_READ = 1_000  # of the training problems, for their system prompt and the lengths of their prompts
# Arguments that other keys or the machine decide.
_NOT_RECORDED = {*NOT_USED, "activation_checkpointing", "dataloader_pin_memory", "disable_tqdm", "log_level"}

# Keys with which a run may go on: how long it trains, what it saves and logs; others are compared by content.
_MAY_CHANGE = re.compile(
    r"exp_name|(dataset|model)\.name|model\.generation|rewards|training\.(max_steps|num_train|save|log|eval|hub|push|run_)"
)
_REWARDS = "rewards"  # of `environment.json`: of each name the weight, and a hash of the lines of its function


class RecordedTrainer(RegionGRPOTrainer):
    """`RegionGRPOTrainer` whose `train()` makes `args.output_dir` the folder of a run, which the commands read.

    Where there is an `eval_dataset`, its first `max_eval_samples` problems (None: all) are answered before and after
    the training and graded by the reward functions. A second `train()` goes on in the same files.
    """

    max_eval_samples: int | None = 64
    _recorder: _Recorder | None = None

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> Any:
        """Train as `RegionGRPOTrainer` does, with a record of it unless a command makes one."""
        if self._recorder is None and any(isinstance(each, MetricsFile) for each in self.callback_handler.callbacks):
            return super().train(resume_from_checkpoint, **kwargs)
        checkpoint = checkpoint_for_all(self.checkpoints.output_dir, resume_from_checkpoint)
        if self._recorder is None:
            self._recorder = _Recorder(self)
        self._recorder.begin(checkpoint)
        if checkpoint is not None and self.checkpoints.load_if_finished(checkpoint):  # Transformers would add a step
            result = TrainOutput(self.state.global_step, math.nan, {})
        else:
            result = super().train(None if checkpoint is None else str(checkpoint), **kwargs)
        self._recorder.end()
        return result

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save as Transformers does, with the model card of this project."""
        super().save_model(output_dir, _internal_call)
        if self.accelerator.is_main_process:
            config = self._recorder.config if self._recorder is not None else configuration(self, reward_specs(self))
            folder = self.stage_context.run_folder
            steps = self.stage_context.run_step(self.state.global_step)
            metric, adapter = HeldOutMetric.of(recorded_grader(folder)), isinstance(self.model, PeftModel)
            card = card_of_run(folder, config, metric, adapter=adapter, steps=steps, links=True)
            write_card(Path(output_dir or self.args.output_dir), card, alone=adapter)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Does nothing: `save_model` writes the card beside the model."""


class _Recorder:
    """Writes the files of a run around the trainings of a trainer."""

    def __init__(self, trainer: RecordedTrainer) -> None:
        self._trainer, self._folder = trainer, trainer.stage_context.run_folder
        self._is_main = trainer.accelerator.is_main_process
        self._console = make_console(quiet=not self._is_main)
        self._trained = False
        self._seconds = self._grpo_seconds = 0.0  # of earlier trainings
        specs = reward_specs(trainer)
        self.config = configuration(trainer, specs)
        rewards = zip(trainer.reward_func_names, specs, trainer.reward_funcs, strict=True)
        self._rewards = {name: [spec.weight, _source_digest(function)] for name, spec, function in rewards}
        self._held_out = self._evaluator(specs)
        trainer.add_callback(MetricsFile(self._folder / METRICS, trainer.stage_context))

    def _check(self, checkpoint: Path | None) -> None:
        """UserError where the folder holds another run than this one; nothing has been changed or deleted by then."""
        trainer, folder = self._trainer, self._folder
        initial, given = folder / INITIAL_MODEL, trainer.initial_model
        if (folder / CONFIG).is_file() and not is_from_python(read_recorded(folder)):
            raise UserError(f"output_dir={folder} holds a run from the command line; choose another output_dir")
        if initial.resolve() != given.resolve() and initial.is_dir() and not initial.is_symlink():
            sizes = f"reasoning_vocab_size {VocabLayout.load(initial).size}, now {trainer.policy.layout.size}"
            raise UserError(
                f"output_dir={folder}: its {INITIAL_MODEL} was made otherwise than the model that is given ({sizes}; "
                f"{', '.join(differing_parts(given, initial))}): give it as then, or choose another output_dir"
            )
        if checkpoint is not None:
            trainer.checkpoints.require_resumable(checkpoint)
            if not self._trained and (folder / CONFIG).is_file():
                self._require_same_run()
        trainer.accelerator.wait_for_everyone()

    def _require_same_run(self) -> None:
        """UserError where rewards, problems or other keys than how long to train differ from those recorded."""
        folder = self._folder
        configs = map(yaml.safe_load, ((folder / CONFIG).read_text(encoding="utf-8"), config_yaml(self.config)))
        differ = [each for each in differences(*configs) if not _MAY_CHANGE.match(each[0])]
        changed = [f"{key} {now}, was {then}" for key, then, now in differ]
        now, then = self._rewards, (read_json_if_there(folder / ENVIRONMENT) or {}).get(_REWARDS, self._rewards)
        changed += [f"reward {name}, or its weight" for name in {**then, **now} if then.get(name) != now.get(name)]
        problems, there = self._problems_record()["keys"], (read_json_if_there(folder / PROBLEMS) or {}).get("keys")
        changed += ["the problems"] * (there not in (None, problems))
        if changed:
            raise UserError(
                f"{folder}: cannot be resumed, since this run differs from the recorded one ({'; '.join(changed)}): "
                "give it as then, or train its checkpoint further in another output_dir"
            )

    def begin(self, checkpoint: Path | None) -> None:
        """Write what is known before a training, and evaluate the held-out problems before the first one."""
        self._check(checkpoint)
        trainer, folder, args = self._trainer, self._folder, self._trainer.args
        self._began = time.monotonic()
        if self._trained and checkpoint is None:
            trainer.stage_context.first_step += trainer.state.global_step
        if self._is_main:
            if not self._trained:
                self._start_folder(resumes=checkpoint is not None)
            for path in (folder / SUMMARY, results_file(folder, "after")):
                path.unlink(missing_ok=True)
            project = os.environ.get("WANDB_PROJECT", args.project)
            self._starts_mlflow = start_trackers(folder, args.report_to, project, args.run_name)
        trainer.accelerator.wait_for_everyone()
        if checkpoint is None and not self._trained:
            self._held_out.measure_before(trainer)
        if checkpoint is not None:
            self._grpo_seconds = 0.0  # the checkpoint has them
        self._trained = True

    def end(self) -> None:
        """Evaluate the held-out problems, and write and print the outcome."""
        trainer, context = self._trainer, self._trainer.stage_context
        steps = context.run_step(trainer.state.global_step)
        measured = self._held_out.outcome(trainer, None)
        self._grpo_seconds += trainer.checkpoints.trained_seconds
        self._seconds += time.monotonic() - self._began
        summary = {
            "exp_name": self.config["exp_name"],
            "finished": True,
            "reasoning_vocab_size": trainer.policy.layout.size,
            "train_problems": _length(trainer.train_dataset),
            "steps": steps,
            "reward_failures": {},
            "grpo_seconds": round(self._grpo_seconds, 1),
            **measured,
            "seconds": round(self._seconds, 1),
        }
        summary = write_summary(self._folder, summary, trainer.state.log_history)
        print_summary(summary, self._folder, self._console)
        if self._is_main and self._starts_mlflow:
            import mlflow

            mlflow.end_run()

    def _start_folder(self, *, resumes: bool) -> None:
        trainer, folder = self._trainer, self._folder
        if not resumes:  # TRL trains anew into a folder that is there
            for name in (PROBLEMS, FORECAST, TRACKERS, METRICS):
                (folder / name).unlink(missing_ok=True)
            for name in ("evaluation", TENSORBOARD):
                shutil.rmtree(folder / name, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        initial = folder / INITIAL_MODEL
        if initial.resolve() != trainer.initial_model.resolve():  # the given folder was an expanded one
            initial.unlink(missing_ok=True)
            initial.symlink_to(trainer.initial_model.resolve())
        atomic_write(folder / CONFIG, config_yaml(self.config))
        atomic_write(folder / ENVIRONMENT, json_text({**environment(), _REWARDS: self._rewards}))
        atomic_write(folder / PROBLEMS, json_text(self._problems_record()))
        self._write_forecast()

    def _evaluator(self, specs: Sequence[RewardSpec]) -> HeldOutEvaluator:
        """Of no problems, with a line, where the rewards or the held-out problems are such as no command could use."""
        trainer, given = self._trainer, self._trainer.eval_dataset
        has_model = any(isinstance(function, nn.Module) for function in trainer.reward_funcs)
        if has_model or not isinstance(given, Dataset | IterableDataset | None):
            what = "a reward is a model" if has_model else f"eval_dataset is a {type(given).__name__}"
            self._console.print(f"no held-out problem is measured before and after training: {what}", markup=False)
            given = None
        rows = [problem_row(row) for row in islice(given or (), trainer.max_eval_samples)]
        if len(rows) < (_length(given) or 0):
            some = f"the first {len(rows):,} of {_length(given):,}"
            self._console.print(f"held-out problems: {some} (max_eval_samples={trainer.max_eval_samples})")
        args = vars(trainer.args)
        sampling = SamplingSettings.of_training(args, "", batch_size=held_out_batch(args), seed=trainer.args.seed)
        grader = Grader(grader_spec(specs), RewardContext())
        return HeldOutEvaluator(self._folder, self._console, rows or None, grader, sampling)

    def _problems_record(self) -> dict[str, Any]:
        """The content of `problems.json`; a streamed set is not read for it."""
        train = self._trainer.train_dataset
        sets = (map(problem_row, train) if isinstance(train, Dataset) else (), self._held_out.problems or ())
        trained, measured = ([(row["problem"], cell_text(row.get("solution"))) for row in rows] for rows in sets)
        name = self.config["dataset"]["name"]
        own = {"stage": "", "dataset": name, "sha256": fingerprint_of(trained), "trained_on": len(trained)}
        return {
            "held_out": {"measured_on": len(measured), "sha256": fingerprint_of(measured)},
            "training": [own] if trained else [],
            "keys": {
                name: hashes(problem_key(problem) for problem, _ in pairs)
                for name, pairs in (("held_out", measured), ("trained", trained))
            },
            "grader": self._held_out.graded_by,
            SYSTEM_PROMPT_USED: self.config["dataset"]["system_prompt"] is not None,
        }

    def _write_forecast(self) -> None:
        trainer = self._trainer
        tools = trainer.tools or None
        lengths = [prompt_tokens(row, trainer.processing_class, tools=tools) for row in _first_rows(trainer)]
        try:
            settings = read_settings("train", [f"config={self._folder / CONFIG}"])
        except UserError as error:
            self._console.print(f"no forecast of this run: {error}", markup=False)
            return
        run = Run(settings, trainer.policy.layout, self._console)
        write_forecast(run, [lengths], problems=_length(trainer.train_dataset))


# --- the configuration of a script ---


def configuration(trainer: RecordedTrainer, specs: Sequence[RewardSpec]) -> dict[str, Any]:
    """The keys of a run as far as its trainer has them; data and rewards are named by the script that holds them."""
    args, folder = trainer.args, trainer.stage_context.run_folder
    values = args.to_dict()
    training = {
        field.name: values[field.name]
        for field in fields(args)
        if field.default is not MISSING and values[field.name] != field.default and field.name not in _NOT_RECORDED
    }
    limits = {"max_completion_length": args.max_completion_length, "temperature": args.temperature}
    training |= {**limits, "max_steps": args.max_steps if args.max_steps > 0 else None, "kl_over": trainer.kl_over}
    if (own := type(trainer)) is not RecordedTrainer:
        training["trainer"] = _recorded_name(own)
    training |= {"kl_log_steps": trainer.kl_log_steps, "dynamic_sampling": trainer.dynamic_sampling is not None}
    derived = ["generation_batch_size"]  # of steps_per_generation
    derived += ["steps_per_generation"] * (args.steps_per_generation == args.gradient_accumulation_steps)
    derived += ["warmup_steps"] * (training.get("warmup_ratio") is not None)
    script = getattr(sys.modules["__main__"], "__file__", None)
    firsts = [first for row in _first_rows(trainer) for first in prompt_of(row)[:1]]  # characters of plain text
    systems = {each["content"] if isinstance(each, Mapping) and each["role"] == "system" else None for each in firsts}
    environments = [_recorded_name(each) for each in (trainer.environment_factories or {}).values()]
    return {
        "exp_name": Path(args.run_name or folder.resolve().name).name,
        "seed": args.seed,
        "output_dir": str(folder),
        "model": _model_keys(trainer),
        "dataset": {
            "name": f"{FROM_PYTHON}{Path(script).resolve() if script else 'a session'}",
            "eval_fraction": 0.0,
            "max_eval_samples": trainer.max_eval_samples,
            "system_prompt": systems.pop() if len(systems) == 1 else None,
        },
        "training": {name: value for name, value in training.items() if name not in derived},
        "tools": [_recorded_name(tool) for tool in trainer.standalone_tools],
        "environment": {"name": ",".join(environments)} if environments else None,
        "rewards": {"functions": [asdict(spec) for spec in specs]},
        "logging": {"enabled": bool(args.report_to), "project": args.project, "mode": "online"},
    }


def _model_keys(trainer: RecordedTrainer) -> dict[str, Any]:
    args, layout, model = trainer.args, trainer.policy.layout, trainer.accelerator.unwrap_model(trainer.model)
    cyclic = all(source == k for source, k in zip(layout.source_ids, cycle(range(layout.standard_size)), strict=False))
    rank, odds = layout.reasoning_rank, layout.preserve_odds
    of_copies = {"reasoning_mode": layout.mode, "reasoning_rank": rank, "preserve_odds": odds}
    name, dtype = trainer.model_name, str(next(model.parameters()).dtype).removeprefix("torch.")
    adapter = model.peft_config[model.active_adapter] if isinstance(model, PeftModel) else None
    lora: dict[str, Any] = {}
    if isinstance(adapter, LoraConfig):
        lora = {name: getattr(adapter, name) for name in ("r", "lora_alpha", "lora_dropout", "target_modules")}
        lora["target_modules"] = sorted(found) if isinstance(found := adapter.target_modules, set) else found
        lora["enabled"] = True
    return {
        "name": str(folder.resolve()) if name and (folder := Path(name)).is_dir() else name,
        "reasoning_vocab_size": layout.size,
        "source_ids": None if cyclic else list(layout.source_ids),
        **(of_copies if layout.size else {}),
        "think_tags": list(think_tags(trainer.processing_class, layout)),
        "pure_bf16": adapter is None and dtype == "bfloat16",
        "model_kwargs": {"torch_dtype": dtype},
        "generation_kwargs": {"max_new_tokens": args.max_completion_length, "temperature": args.temperature},
        "lora": lora,
    }


def reward_specs(trainer: RegionGRPOTrainer) -> list[RewardSpec]:
    """The rewards of a trainer, each under a name by which this process finds it again."""
    specs = []
    weights = trainer.args.reward_weights or [1.0] * len(trainer.reward_funcs)  # TRL's tensor rounds 0.2 to float32
    environments = {getattr(each, "__name__", ""): each for each in (trainer.environment_factories or {}).values()}
    for name, function, weight in zip(trainer.reward_func_names, trainer.reward_funcs, weights, strict=True):
        if LIBRARY.get(name) is not function:
            owner = environments.get(name, function)  # of an environment's `get_reward`, which TRL wraps
            name = f"{FROM_PYTHON}{_source_file(owner)}:{name}"
            IN_SCRIPT[name] = function
        specs.append(RewardSpec(name, float(weight)))
    return specs


def _recorded_name(code: Callable[..., Any]) -> str:
    name = getattr(code, "__qualname__", type(code).__name__)
    return name if TOOLS.get(name) is code else f"{FROM_PYTHON}{_source_file(code)}:{name}"


def _source_file(function: Callable[..., Any]) -> str:
    try:
        file = inspect.getsourcefile(_code_of(function))
    except TypeError:  # written in C, or in a session
        file = None
    return str(Path(file).resolve()) if file else "a session"


def _source_digest(function: Callable[..., Any]) -> str | None:
    try:
        return hashlib.sha256(inspect.getsource(_code_of(function)).encode()).hexdigest()
    except (TypeError, OSError):
        return None


def _code_of(function: Callable[..., Any]) -> Any:
    code = inspect.unwrap(getattr(function, "func", function))  # of a partial the function
    return code if inspect.isroutine(code) or isinstance(code, type) else type(code)


# --- the problems of a script ---


def problem_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a script with the columns `problem`, its text without the system prompt, and `solution`."""
    prompt = prompt_of(row)
    asked = [message for message in prompt if message["role"] != "system"] if not isinstance(prompt, str) else []
    text = prompt if isinstance(prompt, str) else "\n\n".join(content_text(each["content"]) for each in asked)
    found = {"prompt": prompt, "problem": row["problem"] if isinstance(row.get("problem"), str) else text}
    return {**row, **found, **({"solution": row["answer"]} if "solution" not in row and "answer" in row else {})}


def _first_rows(trainer: RegionGRPOTrainer) -> list[Mapping[str, Any]]:
    return list(islice(trainer.train_dataset, _ROWS_READ)) if isinstance(trainer.train_dataset, Dataset) else []


def _length(rows: Any) -> int | None:
    return len(rows) if hasattr(rows, "__len__") else None
