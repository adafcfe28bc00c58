r"""Hostile contents of `\boxed{…}` that are text: deep, long, executable, cut short, or not what they look like."""

from .hostile_mathematics import LONG, MILLION, nested

THOUSANDS = 3_000


def nesting() -> dict[str, str]:
    """Recursive descent: each level is a frame on the stack, or a pass over all of the text."""
    return {
        "braces": nested("{", "}", THOUSANDS),
        "parentheses": nested("(", ")", THOUSANDS),
        "brackets": nested("[", "]", THOUSANDS),
        "left and right": nested(r"\left(", r"\right)", THOUSANDS),
        "fractions": nested(r"\frac{1}{1+", "}", THOUSANDS),
        "fractions above fractions": nested(r"\frac{", "}{7}", THOUSANDS),
        "short fractions": r"\frac" * THOUSANDS + "12" * THOUSANDS,
        "slashes": "7" + "/7" * THOUSANDS,
        "radicals": nested(r"\sqrt{", "}", THOUSANDS),
        "exponents": nested("x^{", "}", THOUSANDS),
        "subscripts": nested("x_{", "}", THOUSANDS),
        "text": nested(r"\text{", "}", THOUSANDS),
        "boxes": nested(r"\boxed{", "}", THOUSANDS),
        "sets": nested(r"\{", r"\}", THOUSANDS),
        "pairs": nested("(7,", ")", THOUSANDS),
        "absolute values": nested(r"\left|", r"\right|", THOUSANDS),
        "overlines": nested(r"0.\overline{", "}", THOUSANDS),
        "minus signs": "-" * LONG + "7",
        "sums": "7" + "+7" * LONG,
        "dollars": nested("$", "$", THOUSANDS),
        "crossed brackets": r"\left(" * THOUSANDS + "7" + r"\right]" * THOUSANDS,
        "left without right": r"\left(" * THOUSANDS + "7",
    }


def repetitions() -> dict[str, str]:
    """Backtracking: patterns with two ways to match a run take quadratic or exponential time where it ends badly."""
    units = {
        "spaces": " ",
        "newlines": "\n",
        "thin spaces": r"\,",
        "letters": "a",
        "zeros": "0",
        "commas": ",",
        "digits with commas": "1,",
        "digits with spaces": "1 ",
        "groups of thousands": ",111",
        "points": ".",
        "digits with points": "1.",
        "equals signs": "=",
        "equations": "x=",
        "dollars": "$",
        "empty braces": "{}",
        "empty text": r"\text{}",
        "words": r"\text{ and }",
        "fractions without arguments": r"\frac",
        "radicals without arguments": r"\sqrt",
        "left": r"\left",
        "unions": r"\cup ",
        "plus or minus": r"\pm",
        "percent signs": r"\%",
        "degrees": r"^\circ",
        "primes": "'",
        "carets": "^",
        "underscores": "_",
        "bars": "|",
        "colons": ":",
        "ampersands": "&",
        "row ends": r"\\ ",
        "units": r"\text{ cm}",
        "boxed units": r"\mathrm{~km}^2",
    }
    runs = {name: "7" + unit * (LONG // len(unit)) + "?" for name, unit in units.items()}
    return runs | {f"a million {name}": "7" + units[name] * MILLION + "?" for name in ("spaces", "letters", "commas")}


def code() -> dict[str, str]:
    """Evaluation of the answer as Python: it would end the process, fill its memory or read what it must not."""
    return {
        "import": "__import__('os')._exit(3)",
        "shell": "__import__('os').system('exit 3')",
        "exec": 'exec("import os; os._exit(3)")',
        "eval": "eval(\"__import__('os')._exit(3)\")",
        "sympify": "sympify(\"__import__('os')._exit(3)\")",
        "statement": "import os; os._exit(3)",
        "exit": "raise SystemExit(3)",
        "open": "open('/etc/passwd').read()",
        "subclasses": "().__class__.__bases__[0].__subclasses__()",
        "attribute": "x.__class__.__init__.__globals__",
        "globals of a symbol": "Symbol('x').func.__globals__['__builtins__']",
        "lambda": "(lambda f: f(f))(lambda f: f(f))",
        "comprehension": "[0 for _ in range(10**12)]",
        "memory": "'a'*10**12",
        "recursion limit": "__import__('sys').setrecursionlimit(10**9)",
        "loop": "while True: pass",
        "conditional": "7 if 1 else 8",
        "format": "{0.__class__.__mro__}",
        "percent format": "%s%s%s%n%1000000000d",
        "command substitution": "$(exit 3)`exit 3`",
        "pickle": "cos\nsystem\n(S'exit 3'\ntR.",
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
        "doubling command": r"\newcommand{\x}{\x\x}\x",
        "input": r"\input{/etc/passwd}",
        "shell": r"\immediate\write18{exit 3}",
        "category codes": r"\catcode`\{=12 \catcode`\}=12 7",
        "control sequence": r"\csname end\endcsname",
        "loop": r"\loop\iftrue\repeat",
        "expansion": r"\expandafter" * 10_000,
        "unknown command": r"\qwertyuiop{7}",
        "long command": "\\" + "q" * LONG,
        "document": r"\documentclass{article}\begin{document}7\end{document}",
        "verbatim": r"\verb|7|",
    }
    return complete | {f"fragment {fragment}": fragment for fragment in fragments}


def characters() -> dict[str, str]:
    """Text that cannot be encoded, is longer once normalised, or reads differently from what it is."""
    return {
        "high surrogate": "4\ud8001",
        "low surrogates": "\udfff" * THOUSANDS,
        "null": "\x004\x001\x00",
        "all control characters": "".join(map(chr, range(32))) + "7",
        "escape sequence": "\x1b[2J\x1b]0;7\x07",
        "right to left": "\u202e24",
        "unclosed isolates": "\u2067" * THOUSANDS + "7",
        "zero width": "\u200b4\u200d1\ufeff",
        "10^5 combining marks": "7" + "\u0301" * LONG,
        "combining overline": "0.3\u03054",
        "ligatures that grow eighteenfold": "\ufdfa" * LONG,
        "emoji": "7\ufe0f\u20e3",
        "joined emoji": "\U0001f468\u200d" * THOUSANDS,
        "fullwidth digits": "\uff14\uff11",
        "Arabic digits": "\u0664\u0661",
        "Devanagari digits": "\u096a\u0967",
        "bold digits": "\U0001d7d2\U0001d7cf",
        "Chinese numerals": "\u56db\u5341\u4e00",
        "roman numeral": "\u2166",
        "superscripts": "7\u00b2\u00b3\u2074",
        "vulgar fraction": "7\u215e",
        "circled digits": "\u2466" * THOUSANDS,
        "capital with a dot": "\u0130" * THOUSANDS,
        "noncharacters": "\ufffe\uffff\U0010ffff",
        "private use": "\ue000" * THOUSANDS,
        "line separators": "\u20287\u20298\x85",
        "marker of a copied token": "\u2581\u01207\u010a",
    }


TEXT = (nesting, repetitions, code, macros, characters)
