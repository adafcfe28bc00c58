r"""Parses cleaned LaTeX to a formula, strictly: ambiguous text is refused.

Ambiguous are `1/2x`, `x2`, `3\frac{1}{2}x`, `\sin x(1+x)`, `\sin(x)^2` and `f(x)`; unknown macros are refused too.
Nothing is evaluated, so parsing untrusted text is cheap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rlvr_vocab.verify.scanning import MAX_DIGITS, TooLarge, Unreadable


@dataclass(frozen=True)
class Exact:
    value: Fraction


@dataclass(frozen=True)
class Symbol:
    r"""A letter with its index and primes, `x`, `a_{1}`, or one of the constants `\pi`, `e`, `i`."""

    name: str


@dataclass(frozen=True)
class Call:
    """An operation (`+ * ^ neg inverse`) or function (`sin`, `log`, `root`, `abs`) and its arguments."""

    name: str
    arguments: tuple[Formula, ...]


Formula = Exact | Symbol | Call

CONSTANTS = frozenset((r"\pi", "e", "i"))


def parts(formula: Formula) -> Iterator[Formula]:
    """A formula and all its subformulas."""
    yield formula
    if isinstance(formula, Call):
        for argument in formula.arguments:
            yield from parts(argument)


def variables(formula: Formula) -> frozenset[str]:
    """The names of all symbols that are not constants."""
    return frozenset(part.name for part in parts(formula) if isinstance(part, Symbol)) - CONSTANTS


_DEEPEST = 60
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\\[A-Za-z]+|[A-Za-z]|[-+*/^_!|(){}\[\]']| +")
_MIXED_NUMBER = re.compile(r"\\frac\{[0-9]+\}\{[0-9]+\}")

WITH_INVERSE = ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")
_FUNCTIONS = frozenset(
    f"\\{name}" for name in ("ln", "log", "exp", *WITH_INVERSE, *(f"arc{name}" for name in WITH_INVERSE))
)
_GREEK = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho varrho sigma
    tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar
"""
_SYMBOLS = frozenset(f"\\{name}" for name in _GREEK.split())
_ACCENTS = frozenset((r"\overline", r"\bar", r"\hat", r"\vec", r"\tilde"))
_CLOSING = {"(": ")", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", "{": "}", "[": "]"}
_FUNCTION_OF_FENCE = {"|": "abs", r"\lfloor": "floor", r"\lceil": "ceil"}
_FENCES = ("(", *_FUNCTION_OF_FENCE)
_NO_FACTOR = frozenset(("", "+", "-", "*", "/", "^", "_", "!", "'", "[", *(set(_CLOSING.values()) - {"|"})))
# Letters that often name functions: `f(x)` may be a function value or a product.
_FUNCTION_LETTERS = frozenset("fghFGH")


@lru_cache(maxsize=512)
def parse(latex: str) -> Formula:
    """The formula of cleaned LaTeX; raises Unreadable for an ambiguous one, TooLarge for one nested too deeply."""
    return _Parser(latex).whole()


class _Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, latex: str) -> None:
        tokens = _TOKEN.findall(latex)
        if len("".join(tokens)) != len(latex):
            raise Unreadable(f"a character that no formula has, in {latex[:80]!r}")
        self._latex = latex
        self._tokens = [token for token in tokens if token[0] != " "]
        self._position = 0
        self._fences: list[str] = []  # the brackets that are open, innermost last
        self._depth = 0

    def whole(self) -> Formula:
        formula = self._sum()
        if self._next:
            raise self._unreadable(f"an unexpected {self._next!r}")
        return formula

    @property
    def _next(self) -> str:
        return self._ahead(0)

    def _ahead(self, count: int = 1) -> str:
        """The token `count` places after the next one; empty at the end."""
        return self._tokens[self._position + count] if self._position + count < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next
        if not token:
            raise self._unreadable("something missing at the end")
        self._position += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next != token:
            raise self._unreadable(f"{token!r} missing")
        self._take()

    def _unreadable(self, what: str) -> Unreadable:
        return Unreadable(f"{what}, in {self._latex[:80]!r}")

    def _nested(self, read: Callable[[], Formula]) -> Formula:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TooLarge(f"a formula nested more than {_DEEPEST} deep")
        formula = read()
        self._depth -= 1
        return formula

    def _sum(self) -> Formula:
        terms = [self._term()]
        while self._next in ("+", "-"):
            sign, term = self._take(), self._term()
            terms.append(Call("neg", (term,)) if sign == "-" else term)
        return terms[0] if len(terms) == 1 else Call("+", tuple(terms))

    def _term(self) -> Formula:
        """A product, after at most one sign."""
        sign = self._take() if self._next in ("+", "-") else ""
        factors = [self._factor()]
        while self._next in ("*", "/") or self._begins_factor():
            factors.append(self._inverse() if self._next == "/" else self._next_factor())
        product = factors[0] if len(factors) == 1 else Call("*", tuple(factors))
        return Call("neg", (product,)) if sign == "-" else product

    def _next_factor(self) -> Formula:
        if self._next == "*":
            self._take()
        elif self._next[0] in ".0123456789" and self._tokens[self._position - 1] not in ("!", ")"):
            raise self._unreadable(f"{self._next!r} behind a factor")
        return self._factor()

    def _inverse(self) -> Formula:
        self._expect("/")
        sign = self._take() if self._next == "-" else ""
        divisor = self._factor()
        if self._next == "/" or self._begins_factor():
            raise self._unreadable("a slash with more than one factor behind it")
        return Call("inverse", (Call("neg", (divisor,)) if sign else divisor,))

    def _begins_factor(self) -> bool:
        closes = bool(self._fences) and self._next == _CLOSING[self._fences[-1]]
        return not closes and self._next not in _NO_FACTOR

    def _factor(self) -> Formula:
        """A primary with its factorial, its degree sign and its exponent."""
        base = self._primary()
        if self._next == "!":
            self._take()
            base = Call("factorial", (base,))
        if self._next == r"\degree":
            self._take()
            base = Call("*", (base, Symbol(r"\pi"), Exact(Fraction(1, 180))))
        if self._next == "^":
            base = Call("^", (base, self._exponent()))
        if self._next in ("!", "^", "_", "'", r"\degree"):
            raise self._unreadable(f"an unexpected {self._next!r}")
        return base

    def _exponent(self) -> Formula:
        self._expect("^")
        if self._ahead() == "(":
            raise self._unreadable("an exponent in round brackets")  # it may be the order of a derivative
        return self._group()

    def _primary(self) -> Formula:
        token = self._take()
        if token[0] in ".0123456789":
            return self._number(token)
        if token in _FENCES:
            return self._fenced(token)
        if token in _FUNCTIONS:
            return self._nested(lambda: self._function(token[1:]))
        if token.isalpha() or token in _SYMBOLS:
            return self._symbol(token)
        if token in _ACCENTS:
            return self._accented(token)
        if token == r"\frac":
            first = self._ahead()
            above = self._group()
            if first == "d" == self._ahead():
                raise self._unreadable("a derivative")
            return Call("*", (above, Call("inverse", (self._group(),))))
        if token == r"\sqrt":
            degree = self._fenced(self._take()) if self._next == "[" else Exact(Fraction(2))
            return Call("root", (self._group(), degree))
        if token == r"\binom":
            return Call("binom", (self._group(), self._group()))
        if token != "{":
            raise self._unreadable(f"an unexpected {token!r}")
        inside = self._fenced("{")  # the braces are invisible: a sum in them would read as separate terms
        if isinstance(inside, Call) and inside.name in ("+", "neg"):
            raise self._unreadable("a sum in braces")
        return inside

    def _number(self, digits: str) -> Formula:
        if len(digits) > MAX_DIGITS:
            raise TooLarge(f"a number of {len(digits)} digits")
        if digits[0] == "0" and digits[1:2].isdigit():
            raise self._unreadable("a number with zeros in front")
        if _MIXED_NUMBER.match("".join(self._tokens[self._position : self._position + 7])):
            raise self._unreadable("a mixed number or a product")
        return Exact(Fraction(digits))

    def _symbol(self, letter: str) -> Symbol:
        primes, index = self._primes(), ""
        if self._next == "_":
            start, depth = self._position, 0
            while self._position <= start + 1 or depth:  # the braces and the tokens between them
                token = self._take()
                depth += (token == "{") - (token == "}")
            index = "".join(self._tokens[start : self._position])
        primes += self._primes()
        if letter in _FUNCTION_LETTERS and self._next == "(":
            raise self._unreadable(f"a function {letter}, or a product")
        return Symbol(letter + index + primes)

    def _primes(self) -> str:
        primes = ""
        while self._next == "'":
            primes += self._take()
        return primes

    def _accented(self, accent: str) -> Formula:
        self._expect("{")
        letter = self._take()
        if not letter.isalpha() and letter not in _SYMBOLS:
            raise self._unreadable(f"{accent} over more than a letter")
        name = self._symbol(letter).name
        self._expect("}")
        return Symbol(f"{accent} {name}")

    def _fenced(self, opened: str) -> Formula:
        """The contents of brackets; the opening one has been read."""
        self._fences.append(opened)
        inside = self._nested(self._sum)
        self._fences.pop()
        self._expect(_CLOSING[opened])
        function = _FUNCTION_OF_FENCE.get(opened)
        return Call(function, (inside,)) if function else inside

    def _group(self) -> Formula:
        self._expect("{")
        return self._fenced("{")

    def _function(self, name: str) -> Formula:
        base = None
        if name == "log" and self._next == "_":
            self._take()
            base = self._group()
        power = self._exponent() if self._next == "^" else None
        if power == Call("neg", (Exact(Fraction(1)),)) and name in WITH_INVERSE:
            name, power = f"arc{name}", None
        if power is not None and not (isinstance(power, Exact) and power.value > 0):
            raise self._unreadable(f"a power of {name} that is not a positive number")
        argument = self._argument()
        if name == "exp":
            value = Call("^", (Symbol("e"), argument))
        else:
            value = Call(name, (argument,) if base is None else (argument, base))
        return value if power is None else Call("^", (value, power))

    def _argument(self) -> Formula:
        r"""The argument of a function: the contents of brackets, or `2x` in `\sin 2x\cos x`; refused if ambiguous."""
        if self._next in _FENCES:
            argument = self._fenced(self._take())
            if self._next in ("^", "!", r"\degree"):
                raise self._unreadable(f"{self._next!r} behind the argument of a function")
            return argument
        is_group = self._next == "{"
        factors = [self._factor()]
        while self._begins_factor() and not is_group and self._next not in (*_FENCES, *_FUNCTIONS):
            factors.append(self._next_factor())
        goes_on = self._next in ("*", "/") or self._begins_factor()
        if goes_on and self._ahead(self._next == "*") not in _FUNCTIONS:
            raise self._unreadable("an argument of a function without a clear end")
        return factors[0] if len(factors) == 1 else Call("*", tuple(factors))
