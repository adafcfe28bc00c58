"""`rlvr-vocab expand`: writes a checkpoint with a reasoning vocabulary, without training."""

from __future__ import annotations

from rlvr_vocab.config.command_settings import ExpandSettings
from rlvr_vocab.runs.model import expansion_plan
from rlvr_vocab.terminal import make_console, quiet_libraries
from rlvr_vocab.text import pluralize
from rlvr_vocab.vocab.expand import write_expansion


def run(settings: ExpandSettings) -> int:
    quiet_libraries()
    console = make_console()
    plan = expansion_plan(settings.model, settings.seed)
    write_expansion(plan, settings.out)
    console.print(
        f"{settings.out}: {plan.layout.standard_size} standard tokens and "
        f"{pluralize(plan.layout.size, 'reasoning token')}.\n"
        "Load the model with AutoModelForCausalLM, the tokenizer with transformers.TokenizersBackend.from_pretrained; "
        "plain generate ignores the regions, rlvr-vocab generate applies them.",
        markup=False,
    )
    return 0
