"""From the text of a problem to the messages that a model is asked with."""

from dataclasses import dataclass

from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class PromptStyle:
    """What surrounds every problem.

    Args:
        system_prompt: First message; None or empty text for none.
        examples: Solved turns shown before the problem, as (problem, assistant text).

    Raises:
        UserError: If an example is not a pair of texts.
    """

    system_prompt: str | None
    examples: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for number, example in enumerate(self.examples, start=1):
            if isinstance(example, str) or len(example) != 2 or not all(isinstance(text, str) for text in example):
                raise UserError(
                    f"dataset.examples: example {number} is {example!r:.80};"
                    " it must be a pair of texts: the problem and the assistant's answer"
                )


def build_messages(problem: str, style: PromptStyle) -> list[dict[str, str]]:
    """The conversation up to the problem: system message if any, solved turns, then the problem.

    Example:
        >>> build_messages("1+1=", PromptStyle(system_prompt="Be brief."))
        [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': '1+1='}]
    """
    messages = [{"role": "system", "content": style.system_prompt}] if style.system_prompt else []
    for example_problem, example_answer in style.examples:
        messages.append({"role": "user", "content": example_problem})
        messages.append({"role": "assistant", "content": example_answer})
    messages.append({"role": "user", "content": problem})
    return messages
