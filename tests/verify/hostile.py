"""Completions that break, stall or bribe an answer verifier, and the gold answers to score them against.

Each function, here and in the two files beside, makes one kind and says what it attacks. None of the completions is
a right answer to any of `GOLDS`. They are the same on each call; the longest has three million characters.
"""

from .hostile_mathematics import LONG, MATHEMATICS, MILLION, nested
from .hostile_text import TEXT, THOUSANDS

GOLDS = ("42", r"\frac{1}{2}", r"2\sqrt{3}", "x^2+1", "(1,2)", r"\{1,2,3\}", "C")


def boxes() -> dict[str, object]:
    """The search for the last box: unclosed ones by thousands, each a reason to scan the rest again."""
    return {
        "opened": r"\boxed{" * 5_000,
        "opened 10^5 times": r"\boxed{" * LONG,
        "opened after a closed one": r"\boxed{7} \boxed{",
        "10^5 closed": r"\boxed{7} " * LONG,
        "closed too often": r"\boxed{7" + "}" * LONG,
        "escaped braces": r"\boxed{" + r"\{" * LONG + "7}",
        "empty": r"\boxed{}",
        "blank": r"\boxed{ \, ~ }",
        "far from its brace": r"\boxed" + " " * LONG + "{7}",
        "without a brace": r"\boxed 7",
        "framed": r"\fbox{7} \framebox{7}",
        "ends in a backslash": "\\boxed{7\\}",
        "none in a million words": "so " * MILLION,
        "before a million letters": r"\boxed{7}" + "a" * MILLION,
        "after a million dollars": "$" * MILLION + r"\boxed{7}",
        "unmatched environments": r"\begin{align}" * THOUSANDS + r"\boxed{7}",
    }


def tags() -> dict[str, object]:
    """The search for the end of the thinking: thousands of tags, half tags, and tags where no tag belongs."""
    return {
        "opened": "<think>" * THOUSANDS,
        "closed": "</think>" * THOUSANDS + "<think>",
        "pairs": "<think>7</think>" * THOUSANDS,
        "nested": nested("<think>", "</think>", THOUSANDS),
        "half tags": "<think" * LONG,
        "angle brackets": "<" * MILLION,
        "closed inside a box": r"<think>\boxed{7</think>}",
        "opened inside a box": r"<think></think>\boxed{7<think>}",
        "capitals": r"<THINK>7</THINK>\boxed{8}",
        "a million letters of thinking": "<think>" + "a" * MILLION + r"</think>\boxed{7}",
        "never closed": r"<think>\boxed{7}",
        "special tokens": r"<|im_end|><|im_start|>assistant\boxed{7}<|endoftext|>",
        "nothing": "",
        "blank": " \n\t" * THOUSANDS,
    }


def messages() -> dict[str, object]:
    """The reading of message lists: contents that are absent, empty, split, or not the assistant's."""
    box = r"\boxed{7}"
    assistant = {"role": "assistant", "content": box}
    return {
        "none": [],
        "empty message": [{}],
        "content None": [{"role": "assistant", "content": None}],
        "content in parts": [{"role": "assistant", "content": [{"type": "text", "text": box}]}],
        "role missing": [{"content": box}],
        "unknown role": [{"role": "oracle", "content": box}],
        "tool call alone": [{"role": "assistant", "content": None, "tool_calls": [{"name": "solve", "arguments": {}}]}],
        "tool answers last": [assistant, {"role": "tool", "content": r"\boxed{8}"}],
        "reasoning apart": [{"role": "assistant", "reasoning_content": box, "content": None}],
        "box over two messages": [
            {"role": "assistant", "content": r"\boxed{4"},
            {"role": "assistant", "content": "1}"},
        ],
        "thinking over two messages": [{"role": "assistant", "content": "<think>"}, assistant],
        "a thousand messages": [assistant] * 1_000,
        "a million characters": [{"role": "assistant", "content": "a" * MILLION + box}],
        "surrogate": [{"role": "assistant", "content": "\ud800" + box}],
        "code": [{"role": "assistant", "content": r"\boxed{__import__('os')._exit(3)}"}],
        "tower": [{"role": "assistant", "content": r"\boxed{9^{9^{9^9}}}"}],
    }


def hostile_completions() -> list[tuple[str, object]]:
    """Every hostile completion with a name of its own, as `accuracy` takes them: a text or a list of messages."""
    boxed = [
        (f"{kind.__name__}: {name}", f"<think>work</think>The answer is $\\boxed{{{box}}}$.")
        for kind in (*MATHEMATICS, *TEXT)
        for name, box in kind().items()
    ]
    return boxed + [
        (f"{kind.__name__}: {name}", whole) for kind in (boxes, tags, messages) for name, whole in kind().items()
    ]
