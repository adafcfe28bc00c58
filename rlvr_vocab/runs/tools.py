"""The tools of a run, and those with which a checkpoint is evaluated or answers. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_vocab.config.command_settings import CheckpointSettings, CheckSettings, ScoreSettings
from rlvr_vocab.config.sections import EnvironmentSettings, RunSettings
from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.build import user_code_record
from rlvr_vocab.rewards.reward import is_user_code
from rlvr_vocab.runs.folder import RunOfCheckpoint
from rlvr_vocab.tools.functions import load_environment, load_tools

if TYPE_CHECKING:  # seconds to import
    from transformers import PreTrainedTokenizerBase

    from rlvr_vocab.tools.transcripts import PastThinking, ToolLoop
    from rlvr_vocab.vocab.layout import VocabLayout

# The keys of `ToolUse`, in records too.
OF_TOOLS = ("tools", "environment", "max_tool_calling_iterations", "past_thinking")


def tools_of_run(settings: RunSettings | CheckSettings | ScoreSettings | ToolUse) -> dict[str, Any]:
    """The arguments of a trainer for the tools and the environment of a run, loaded; none where it has none."""
    arguments: dict[str, Any] = {"tools": load_tools(settings.tools)} if settings.tools else {}
    if (environment := settings.environment) is not None:
        arguments["environment_factory"] = load_environment(environment.name, environment.params)
    return arguments


@dataclass(frozen=True)
class ToolUse:
    """The keys under which a checkpoint uses tools; without tools and environment it has single turns."""

    tools: tuple[str, ...]
    environment: EnvironmentSettings | None
    max_tool_calling_iterations: int | None
    past_thinking: PastThinking

    @classmethod
    def of(cls, settings: CheckpointSettings, trained: RunOfCheckpoint) -> ToolUse:
        """The keys of a command, else of the checkpoint's run; UserError for a key that has no tools to apply to."""
        own, run = settings.tools is not None or settings.environment is not None, trained.settings
        chosen = settings if own or run is None else run
        rounds, past = settings.max_tool_calling_iterations, settings.past_thinking
        for key, value in (("max_tool_calling_iterations", rounds), ("past_thinking", past)):
            if value is not None and not (chosen.tools or chosen.environment):
                raise UserError(f"{key}: there is nothing to call: set tools or environment")
        past = past or ("keep" if run is None else run.model.past_thinking)
        rounds = trained.max_tool_calling_iterations if rounds is None else rounds
        return cls(chosen.tools or (), chosen.environment, rounds, past)

    def loop(self, tokenizer: PreTrainedTokenizerBase, layout: VocabLayout) -> ToolLoop | None:
        """None without tools; UserError for tools that cannot be loaded, and a template that cannot show them."""
        given = tools_of_run(self)
        if not given:
            return None
        from rlvr_vocab.tools.format import ToolFormat
        from rlvr_vocab.tools.transcripts import ToolLoop

        tools, factory = given.get("tools", ()), given.get("environment_factory")
        environments: dict[str | None, Any] = {None: factory} if factory else {}
        rounds, past = self.max_tool_calling_iterations, self.past_thinking
        return ToolLoop(ToolFormat(tokenizer, layout, {}), tools, environments, rounds, past)

    def record(self) -> Mapping[str, Any]:
        """For records: equal where the same code is called in the same way; None for everything without tools."""
        environment = self.environment
        if not self.tools and environment is None:
            return dict.fromkeys(OF_TOOLS)
        return {
            **{key: getattr(self, key) for key in OF_TOOLS},
            "tools": [_code(name) for name in self.tools],
            "environment": environment and {**_code(environment.name), "params": environment.params},
        }


def _code(name: str) -> dict[str, str]:
    return user_code_record(name) if is_user_code(name) else {"name": name}
