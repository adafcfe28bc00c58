r"""Completions that break, stall or bribe an answer verifier, and the gold answers to score them against.

Each function makes one kind and says what it attacks. None of the completions is a right answer to any of `GOLDS`.
They are the same on each call; the longest has three million characters.
"""

import itertools

GOLDS = ("42", r"\frac{1}{2}", r"2\sqrt{3}", "x^2+1", "(1,2)", r"\{1,2,3\}", "C")
THOUSANDS, LONG, MILLION = 3_000, 100_000, 1_000_000
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
RADICALS = tuple(rf"\sqrt{{{p}}}" for p in PRIMES)


def nested(opening, closing, depth, core="7"):
    return opening * depth + core + closing * depth


def factorials():
    """Integers with more digits than memory, and a postfix operator that parsers follow by recursion."""
    return {
        "198 marks": "5" + "!" * 198,
        "bracketed sixty times": nested("(", ")!", 60),
        "of a tower": r"(10^{10^{10}})!",
        "quotient": r"\frac{(10^9)!}{(10^9-1)!}",
        "modulo": r"(10^9)! \bmod 1000000007",
        "sum": "+".join(f"{n}!" for n in range(10_000, 10_300)),
    }


def powers():
    """Exponentiation: results that cannot be held, and numerical evaluation that never reaches its precision."""
    return {
        "tower": r"9^{9^{9^9}}",
        "tower a thousand high": nested("9^{", "}", 1_000),
        "tower on its side": r"(((9^9)^9)^9)^{9^9}",
        "difference of towers": r"10^{10^{10}}-10^{10^{10}}+7",
        "modulo": r"7^{7^{7^7}} \bmod 10^{9}",
        "huge": r"10^{999999999}",
        "nearly one": r"(1+10^{-9})^{10^{12}}",
        "of a symbol": r"x^{999999999}+x",
        "arrows": r"3\uparrow\uparrow\uparrow\uparrow 3",
        "root of huge degree": r"\sqrt[999999999]{2}",
        "floor of a tower": r"\left\lfloor \pi^{\pi^{\pi^{\pi}}} \right\rfloor",
    }


def numerals():
    """Conversion of digits: quadratic time, the digit limit of Python, exponents that expand into zeros."""
    digits = "7" * LONG
    return {
        "10^5 digits": digits,
        "10^6 digits": "9" * MILLION,
        "fraction of long integers": rf"\frac{{{digits}}}{{{'9' * LONG}}}",
        "10^5 digits in groups": "777" + ",777" * (LONG // 3),
        "repeating 10^4 digits": rf"0.\overline{{{'1234567890' * 1_000}}}",
        "exponent of nine digits": "1e999999999",
        "exponent of 10^5 digits": f"1e{digits}",
        "base of 10^5 digits": f"7_{{{digits}}}",
        "long numeral in base 36": "Z" * LONG + "_{36}",
        "mixed number of long integers": rf"{digits}\frac{{{digits}}}{{{'9' * LONG}}}",
        "not a number": "nan",
        "a million zeros before a digit": "0" * MILLION + "7",
    }


def number_theory():
    """Factoring, counting and special functions that a computer algebra system tries to evaluate exactly."""
    semiprime = (2**521 - 1) * (2**607 - 1)
    return {
        "radical of a semiprime": rf"\sqrt{{{semiprime}}}",
        "greatest common divisor": r"\gcd(10^{10^8}-1, 7^{10^8}-1)",
        "prime count": r"\pi(10^{18})",
        "central binomial": r"\binom{1000000000}{500000000}",
        "binomial of binomials": nested(r"\binom{", "}{9}", 40, "99"),
        "zeta": r"\zeta(3)+\zeta\left(\frac{1}{2}+10^{9}i\right)",
        "gamma": r"\Gamma(10^{10})",
    }


def analysis():
    """Sums, products, integrals and limits that are evaluated term by term, or searched for a closed form."""
    return {
        "sum of sines": r"\sum_{n=1}^{1000000000} \sin n",
        "sum without closed form": r"\sum_{n=1}^{\infty} \frac{\sin n}{n^3}",
        "sums in sums": "".join(rf"\sum_{{i_{{{n}}}=1}}^{{999}} " for n in range(30)) + "i_1",
        "product": r"\prod_{n=1}^{100000000} \left(1+\frac{1}{n^2}\right)",
        "integral": r"\int_0^1 x^{x^{x}}\,dx",
        "integrals in integrals": r"\int_0^1 " * 30 + r"e^{x^2}\," + "dx" * 30,
        "limit": r"\lim_{x\to 0}\frac{\sin(\tan x)-\tan(\sin x)}{x^{7}}",
        "thousandth derivative": r"\frac{d^{1000}}{dx^{1000}} e^{\sin(x^x)}",
        "iterated sine": nested(r"\sin(", ")", 400, "x"),
    }


def algebra():
    """Expansion, common denominators and denesting: small texts whose normal form is enormous."""
    letters = "abcdefghjklmnpqrstuvwyz"
    return {
        "product of trinomials": r"(x+y+1)^{2000}(x-y+1)^{2000}(x+y-1)^{2000}",
        "difference of trinomials": r"(x+y+1)^{2000}-(y+x+1)^{2000}+x",
        "all letters": f"({'+'.join(letters)})^{{50}}",
        "300 factors": "".join(f"(x+{n})" for n in range(300)),
        "300 partial fractions": "+".join(rf"\frac{{1}}{{x+{n}}}" for n in range(300)),
        "quotient": r"\frac{x^{100000}-1}{x-1}",
        "sum of radicals": "+".join(RADICALS),
        "power of radicals": r"(\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7})^{999}",
        "nested radicals": nested(r"\sqrt{2+", "}", 300),
        "absolute values": "+".join(f"|x-{n}|" for n in range(200)),
        "thirty signs": "7" + "".join(rf"\pm {p}" for p in PRIMES) + r"\pm 1" * 10,
        "equation of degree 60": "x^{60}+x^{7}+1=0",
        "transcendental equation": r"x^{x^{x}}=\cos(e^{x})+7",
        "thousand equations": r",\ ".join(f"x_{{{n}}}=x_{{{n + 1}}}^2+1" for n in range(1_000)),
        "chain of equations": "=".join(f"x+{n}" for n in range(3_000)),
    }


def collections():
    """Unions that recurse, matchings that try all orders, matrices that are multiplied out."""
    intervals = [f"({2 * n},{2 * n + 1})" for n in range(20_000)]
    matrix = r" \\ ".join(" & ".join(str(n * m) for m in range(200)) for n in range(200))
    symbols = r" \\ ".join(" & ".join(f"x_{{{n * m}}}" for m in range(12)) for n in range(12))
    return {
        "200 intervals": r" \cup ".join(intervals[:200]),
        "20,000 intervals": r" \cup ".join(intervals),
        "set of 10^5": rf"\{{{','.join(map(str, range(LONG)))}\}}",
        "set of radicals": rf"\{{{','.join(map('+'.join, itertools.combinations(RADICALS, 2)))}\}}",
        "tuple of 10^5": f"({','.join(map(str, range(LONG)))})",
        "cartesian power": r"\{1,2\}^{100}",
        "set builder": r"\{x \in \mathbb{Z} : x^{99}+x^{7} \equiv 1 \pmod{10^{99}}\}",
        "matrix of 40,000": rf"\begin{{pmatrix}} {matrix} \end{{pmatrix}}",
        "ragged matrix": r"\begin{pmatrix} 1 & 2 \\ 3 \\ 4 & 5 & 6 \end{pmatrix}",
        "empty matrix": r"\begin{pmatrix} \end{pmatrix}",
        "power of a matrix": r"\begin{pmatrix} 1 & x \\ y & 1 \end{pmatrix}^{1000000000}",
        "determinant": rf"\begin{{vmatrix}} {symbols} \end{{vmatrix}}",
        "matrices in matrices": nested(r"\begin{pmatrix} 7 & ", r" \\ 8 & 9 \end{pmatrix}", 60),
    }


def near_golds():
    """Rounding: each differs from a gold by less than any float shows, or by a term that nobody can evaluate."""
    tiny = "10^{-999999999}"
    return {
        "integer": f"42+{tiny}",
        "integer by a decimal": f"42.{'0' * LONG}1",
        "fraction by a decimal": f"0.5{'0' * LONG}1",
        "radical": rf"2\sqrt{{3+{tiny}}}",
        "polynomial": r"(x+y+1)^{2000}-(y+x+1)^{2000}+x^2+2",
        "pair": f"(1,2+{tiny})",
        "set": r"\{1,2,3,9^{9^{9^9}}\}",
        "letter": "C" * LONG,
    }


def nesting():
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


def repetitions():
    """Backtracking: patterns with two ways to match a run take quadratic or exponential time where it ends badly."""
    units = (
        " ", "a", ",", "1,", ",111", ".", "1.", "x=", "$", "{}", r"\text{ and }", r"\frac", r"\left", r"\cup ", r"\%",
        "^", "|", "&", r"\text{ cm}",
    )  # fmt: skip
    runs = {repr(unit): "7" + unit * (LONG // len(unit)) + "?" for unit in units}
    return runs | {f"a million {unit!r}": "7" + unit * MILLION + "?" for unit in units[:3]}


def code():
    """Evaluation of the answer as Python: it would end the process, fill its memory or read what it must not."""
    texts = (
        "__import__('os')._exit(3)", "__import__('os').system('exit 3')", "eval(\"__import__('os')._exit(3)\")",
        "raise SystemExit(3)", "open('/etc/passwd').read()", "().__class__.__bases__[0].__subclasses__()",
        "x.__class__.__init__.__globals__", "[0 for _ in range(10**12)]", "'a'*10**12", "while True: pass",
        "{0.__class__.__mro__}", "$(exit 3)`exit 3`", "accuracy(completions=[''], solution=[''])",
        "1.0, True, reward=1.0",
    )  # fmt: skip
    return {text: text for text in texts}


def macros():
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


def characters():
    """Text that cannot be encoded, is longer once normalised, or reads differently from what it is."""
    texts = (
        "4\ud8001", "\x004\x001\x00", "".join(map(chr, range(32))) + "7", "\u202e24", "\u200b4\u200d1\ufeff",
        "7" + "\u0301" * LONG, "\ufdfa" * LONG, "7\ufe0f\u20e3", "\uff14\uff11", "\u0664\u0661",
        "\U0001d7d2\U0001d7cf", "\u2166", "7\u215e", "\u2466" * THOUSANDS, "\u0130" * THOUSANDS, "\u20287\u20298\x85",
        "\u2581\u01207\u010a",
    )  # fmt: skip
    return {ascii(text[:20]): text for text in texts}


CONTENTS = (
    factorials, powers, numerals, number_theory, analysis, algebra, collections, near_golds,
    nesting, repetitions, code, macros, characters,
)  # fmt: skip


def boxes():
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
        "ends in a backslash": "\\boxed{7\\}",
        "none in a million words": "so " * MILLION,
        "before a million letters": r"\boxed{7}" + "a" * MILLION,
        "after a million dollars": "$" * MILLION + r"\boxed{7}",
        "unmatched environments": r"\begin{align}" * THOUSANDS + r"\boxed{7}",
    }


def tags():
    """The search for the end of the thinking: thousands of tags, half tags, and tags where no tag belongs."""
    return {
        "opened": "<think>" * THOUSANDS,
        "closed": "</think>" * THOUSANDS + "<think>",
        "nested": nested("<think>", "</think>", THOUSANDS),
        "half tags": "<think" * LONG,
        "angle brackets": "<" * MILLION,
        "closed inside a box": r"<think>\boxed{7</think>}",
        "opened inside a box": r"<think></think>\boxed{7<think>}",
        "a million letters of thinking": "<think>" + "a" * MILLION + r"</think>\boxed{7}",
        "never closed": r"<think>\boxed{7}",
        "special tokens": r"<|im_end|><|im_start|>assistant\boxed{7}<|endoftext|>",
        "nothing": "",
        "blank": " \n\t" * THOUSANDS,
    }


def messages():
    """The reading of message lists: contents that are absent, empty, split, or not the assistant's."""
    box = r"\boxed{7}"
    assistant = {"role": "assistant", "content": box}
    return {
        "none": [],
        "content None": [{"role": "assistant", "content": None}],
        "content in parts": [{"role": "assistant", "content": [{"type": "text", "text": box}]}],
        "tool call alone": [{"role": "assistant", "content": None, "tool_calls": [{"name": "solve", "arguments": {}}]}],
        "tool answers last": [assistant, {"role": "tool", "content": r"\boxed{8}"}],
        "reasoning apart": [{"role": "assistant", "reasoning_content": box, "content": None}],
        "box over two messages": [{"role": "assistant", "content": part} for part in (r"\boxed{4", "1}")],
        "a thousand messages": [assistant] * 1_000,
        "a million characters": [{"role": "assistant", "content": "a" * MILLION + box}],
        "surrogate": [{"role": "assistant", "content": "\ud800" + box}],
    }


def hostile_completions():
    """Every hostile completion with a name of its own, as `accuracy` takes them: a text or a list of messages."""
    boxed = [
        (f"{kind.__name__}: {name}", f"<think>work</think>The answer is $\\boxed{{{box}}}$.")
        for kind in CONTENTS
        for name, box in kind().items()
    ]
    return boxed + [
        (f"{kind.__name__}: {name}", whole) for kind in (boxes, tags, messages) for name, whole in kind().items()
    ]
