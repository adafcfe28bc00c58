"""`rlvr-vocab generate`: one chat answer of a checkpoint, its reasoning tokens marked."""

from __future__ import annotations

from rlvr_vocab.evaluation.sampling import SamplingSettings, load_checkpoint, sample_completions
from rlvr_vocab.exp.closing import marked_text
from rlvr_vocab.exp.quiet import quiet_libraries
from rlvr_vocab.exp.recorded_run import recorded_run
from rlvr_vocab.exp.screen import make_console
from rlvr_vocab.exp.typed_sections import GenerateSettings
from rlvr_vocab.vocab.chat import prefilled_ids
from rlvr_vocab.vocab.marking import marked_stretches


def run(settings: GenerateSettings) -> int:
    quiet_libraries()
    console = make_console()
    checkpoint = load_checkpoint(settings.checkpoint)
    trained = recorded_run(settings.checkpoint)
    system_prompt = trained.system_prompt if settings.system_prompt is None else settings.system_prompt
    messages = [{"role": "user", "content": settings.prompt}]
    if system_prompt:
        messages.insert(0, {"role": "system", "content": system_prompt})
    sampling = SamplingSettings(
        max_new_tokens=settings.max_new_tokens,
        temperature=trained.temperature if settings.temperature is None else settings.temperature,
        batch_size=1,
        seed=settings.seed,
    )
    [completion] = sample_completions(checkpoint, [messages], sampling)
    turn_ids = [*prefilled_ids(completion.prompt_ids, checkpoint.layout), *completion.completion_ids]
    stretches = marked_stretches(checkpoint.tokenizer, checkpoint.layout, turn_ids)
    console.print(marked_text(stretches, colour=console.is_terminal))
    return 0
