r"""Hostile contents of `\boxed{…}` that are text: deep, long, executable, cut short, or not what they look like."""

from .hostile_mathematics import LONG, MILLION, nested

THOUSANDS = 3_000


def nesting() -> dict[str, str]:
    """Recursive descent: each level is a frame on the stack, or a pass over all of the text."""
    return {
        "braces": nested("{", "}", THOUSANDS),
        "brackets": nested("[", "]", THOUSANDS),
        "fractions": nested(r"\frac{1}{1+", "}", THOUSANDS),
        "short fractions": r"\frac" * THOUSANDS + "12" * THOUSANDS,
        "radicals": nested(r"\sqrt{", "}", THOUSANDS),
        "exponents": nested("x^{", "}", THOUSANDS),
        "text": nested(r"\text{", "}", THOUSANDS),
        "sets": nested(r"\{", r"\}", THOUSANDS),
        "absolute values": nested(r"\left|", r"\right|", THOUSANDS),
        "minus signs": "-" * LONG + "7",
        "sums": "7" + "+7" * LONG,
        "dollars": nested("$", "$", THOUSANDS),
        "crossed brackets": r"\left(" * THOUSANDS + "7" + r"\right]" * THOUSANDS,
    }


def repetitions() -> dict[str, str]:
    """Backtracking: patterns with two ways to match a run take quadratic or exponential time where it ends badly."""
    units = {
        "spaces": " ",
        "letters": "a",
        "commas": ",",
        "digits with commas": "1,",
        "groups of thousands": ",111",
        "points": ".",
        "digits with points": "1.",
        "equations": "x=",
        "dollars": "$",
        "empty braces": "{}",
        "words": r"\text{ and }",
        "fractions without arguments": r"\frac",
        "left": r"\left",
        "unions": r"\cup ",
        "percent signs": r"\%",
        "carets": "^",
        "bars": "|",
        "ampersands": "&",
        "units": r"\text{ cm}",
    }
    runs = {name: "7" + unit * (LONG // len(unit)) + "?" for name, unit in units.items()}
    return runs | {f"a million {name}": "7" + units[name] * MILLION + "?" for name in ("spaces", "letters", "commas")}


def code() -> dict[str, str]:
    """Evaluation of the answer as Python: it would end the process, fill its memory or read what it must not."""
    return {
        "import": "__import__('os')._exit(3)",
        "shell": "__import__('os').system('exit 3')",
        "eval": "eval(\"__import__('os')._exit(3)\")",
        "exit": "raise SystemExit(3)",
        "open": "open('/etc/passwd').read()",
        "subclasses": "().__class__.__bases__[0].__subclasses__()",
        "attribute": "x.__class__.__init__.__globals__",
        "comprehension": "[0 for _ in range(10**12)]",
        "memory": "'a'*10**12",
        "loop": "while True: pass",
        "format": "{0.__class__.__mro__}",
        "command substitution": "$(exit 3)`exit 3`",
        "verifier's own name": "accuracy(completions=[''], solution=[''])",
        "score": "1.0, True, reward=1.0",
    }


def macros() -> dict[str, str]:
    """TeX that defines, reads or runs, and TeX that is cut short."""
    fragments = (
        r"\frac", r"\frac{7}", r"\frac{}{}", r"\sqrt", r"\sqrt[]{}", "7^", "_7", "^^5e", "7^{}_{}", r"\\", "&", "#1",
        "% 7", r"\begin{pmatrix}", r"\end{pmatrix}", r"\begin{}", r"\right)7", r"7\left", r"\text", r"\pm",
        r"\overline", "0.", ".", "-", "()", "[7,", "(,)", r"\{7", r"x\in", "=7=", "7_{}", "7_0", "7_{-2}",
        r"\infty-\infty", r"\frac{7}{0}", r"\log 0", r"0\cdot\infty", "**7", "//7",
    )  # fmt: skip
    complete = {
        "doubling definition": r"\def\a{\a\a}\a",
        "input": r"\input{/etc/passwd}",
        "shell": r"\immediate\write18{exit 3}",
        "category codes": r"\catcode`\{=12 \catcode`\}=12 7",
        "loop": r"\loop\iftrue\repeat",
        "unknown command": r"\qwertyuiop{7}",
        "long command": "\\" + "q" * LONG,
        "document": r"\documentclass{article}\begin{document}7\end{document}",
    }
    return complete | {f"fragment {fragment}": fragment for fragment in fragments}


def characters() -> dict[str, str]:
    """Text that cannot be encoded, is longer once normalised, or reads differently from what it is."""
    return {
        "high surrogate": "4\ud8001",
        "null": "\x004\x001\x00",
        "all control characters": "".join(map(chr, range(32))) + "7",
        "right to left": "\u202e24",
        "zero width": "\u200b4\u200d1\ufeff",
        "10^5 combining marks": "7" + "\u0301" * LONG,
        "ligatures that grow eighteenfold": "\ufdfa" * LONG,
        "emoji": "7\ufe0f\u20e3",
        "fullwidth digits": "\uff14\uff11",
        "Arabic digits": "\u0664\u0661",
        "bold digits": "\U0001d7d2\U0001d7cf",
        "roman numeral": "\u2166",
        "vulgar fraction": "7\u215e",
        "circled digits": "\u2466" * THOUSANDS,
        "capital with a dot": "\u0130" * THOUSANDS,
        "line separators": "\u20287\u20298\x85",
        "marker of a copied token": "\u2581\u01207\u010a",
    }


TEXT = (nesting, repetitions, code, macros, characters)
