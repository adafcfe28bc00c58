r"""Reads exact numbers and their units: a currency before the number; a unit, per cent or a scale after it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from rlvr_vocab.verify.cleaning import LETTER
from rlvr_vocab.verify.scanning import MAX_BITS, MAX_DIGITS, TooLarge, Unreadable

_SIGN = r"(?P<sign>[+-]?)"
_PLAIN = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_GROUPED = r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?:\.[0-9]+)?"
_NUMBER = rf"(?:{_GROUPED}|{_PLAIN})"
_SIGNED = rf"[+-]?{_NUMBER}"
_EXPONENT = r"\^\{(?P<power>[+-]?[0-9]+)\}"

_WHOLE = re.compile(rf"{_SIGN}(?P<number>{_NUMBER})")
_FRACTION = re.compile(rf"{_SIGN}\\frac\{{(?P<above>{_SIGNED})\}}\{{(?P<below>{_SIGNED})\}}")
_SLASHED = re.compile(
    rf"{_SIGN}(?P<above>{_NUMBER}|\({_SIGNED}\)|\{{{_SIGNED}\}})/(?P<below>{_SIGNED}|\({_SIGNED}\)|\{{{_SIGNED}\}})"
)
_MIXED = re.compile(
    rf"{_SIGN}(?P<whole>[0-9]+)"
    r"(?: ?\\frac\{(?P<above>[0-9]+)\}\{(?P<below>[0-9]+)\}| (?P<over>[0-9]+)/(?P<under>[0-9]+))"
)
_SCIENTIFIC = re.compile(rf"{_SIGN}(?P<factor>{_NUMBER})(?:\*| ?x ?)10{_EXPONENT}")
_E_NOTATION = re.compile(rf"{_SIGN}(?P<factor>{_PLAIN})[eE](?P<power>[+-]?[0-9]+)")
_POWER = re.compile(rf"{_SIGN}(?P<base>{_PLAIN}|\({_SIGNED}\)){_EXPONENT}")
_FACTORIAL = re.compile(rf"{_SIGN}(?P<of>[0-9]{{1,3}})!")
_DOTTED = r"\\dot\{?[0-9]\}?(?:[0-9]*\\dot\{?[0-9]\}?)?"
_REPEATING = re.compile(
    rf"{_SIGN}(?P<whole>[0-9]*)\.(?P<fixed>[0-9]*)"
    rf"(?:\\(?:overline|bar)\{{(?P<bar>[0-9]+)\}}|\((?P<round>[0-9]+)\)|(?P<dots>{_DOTTED}))(?:\\dots)?"
)
_GOES_ON = re.compile(rf"{_SIGN}(?P<whole>[0-9]*)\.(?P<shown>[0-9]{{2,100}})\\dots")
_PERIOD_SHOWN = re.compile(r"([0-9])\1\1+$|([0-9]{2,6}?)\2+$")


def read_number(text: str) -> Fraction | None:
    r"""The exact value of a number in the spelling of `clean`; None if it is not a number, or a power is too large.

    Raises TooLarge for more digits than an answer has, Unreadable for a zero with a sign.
    """
    for pattern, value_of in _READERS:
        if found := pattern.fullmatch(text):
            value = value_of(found)
            return -value if value is not None and found["sign"] == "-" else value
    return None


def _plain(found: re.Match[str]) -> Fraction:
    value = _decimal(found["number"])
    if value == 0 and found["sign"]:
        raise Unreadable("a zero with a sign")
    return value


def _fraction(found: re.Match[str]) -> Fraction | None:
    above, below = _decimal(found["above"].strip("(){}")), _decimal(found["below"].strip("(){}"))
    return above / below if below else None


def _mixed(found: re.Match[str]) -> Fraction | None:
    """A whole part before a proper fraction; before an improper one it could be a factor."""
    above, below = _decimal(found["above"] or found["over"]), _decimal(found["below"] or found["under"])
    return _decimal(found["whole"]) + above / below if 0 < above < below else None


def _scientific(found: re.Match[str]) -> Fraction | None:
    power = power_of(Fraction(10), found["power"])
    return None if power is None else _decimal(found["factor"]) * power


def _repeating(found: re.Match[str]) -> Fraction:
    period = found["bar"] or found["round"] or re.sub(r"[^0-9]", "", found["dots"])
    return _periodic(found["whole"], found["fixed"], period)


def _going_on(found: re.Match[str]) -> Fraction | None:
    """`0.333…`: periodic if it ends with one digit three times, or with a longer block twice."""
    block = _PERIOD_SHOWN.search(found["shown"])
    return None if block is None else _periodic(found["whole"], found["shown"][: block.start()], block[1] or block[2])


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Fraction | None]], ...] = (
    (_WHOLE, _plain),
    (_FRACTION, _fraction),
    (_SLASHED, _fraction),
    (_MIXED, _mixed),
    (_SCIENTIFIC, _scientific),
    (_E_NOTATION, _scientific),
    (_POWER, lambda found: power_of(_decimal(found["base"].strip("()")), found["power"])),
    (_REPEATING, _repeating),
    (_GOES_ON, _going_on),
    (_FACTORIAL, lambda found: Fraction(math.factorial(int(found["of"])))),
)


def power_of(base: Fraction, exponent: str | int) -> Fraction | None:
    """`base ** exponent`; None if it has no value, or one of more than `MAX_BITS` bits."""
    if len(str(exponent)) > 9:
        return None
    power = int(exponent)
    if base == 0 and power <= 0:
        return None
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    too_large = size * abs(power) > MAX_BITS and abs(base) not in (0, 1)
    return None if too_large else base**power


def _decimal(digits: str) -> Fraction:
    digits = digits.replace(",", "").replace(" ", "")
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number of {len(digits)} digits")
    return Fraction(digits.removesuffix("."))


def _periodic(whole: str, fixed: str, period: str) -> Fraction:
    if len(whole) + len(fixed) + len(period) > MAX_DIGITS:
        raise TooLarge("a repeating decimal with a huge period")
    shift = 10 ** len(fixed)
    return Fraction(int((whole + fixed) or "0"), shift) + Fraction(int(period), shift * (10 ** len(period) - 1))


_CURRENCIES = {r"\$": "dollar", "€": "euro", "£": "pound sterling", "¥": "yen", "₹": "rupee"}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES |= {"hundert": 10**2, **dict.fromkeys(("tausend", "mila"), 10**3)}
_SCALES |= dict.fromkeys(("millionen", "millón", "millone", "milione", "milioni", "milhão", "milhõe"), 10**6)
_SCALES |= dict.fromkeys(("milliarde", "milliarden", "milliard", "miliardo", "miliardi"), 10**9)
_PER_CENT = ("per cent", "pour cent", "por ciento", "per cento", "por cento")
# Each unit with its other spellings. Other units are compared by their letters, ignoring a plural s.
_SPELLINGS = {
    "mm": ("millimeter", "millimetre"),
    "cm": ("centimeter", "centimetre", "zentimeter", "centimètre", "centímetro", "centimetro"),
    "dm": ("decimeter", "decimetre"),
    "m": ("meter", "metre", "mètre", "metro", "metri"),
    "km": ("kilometer", "kilometre", "kilomètre", "kilómetro", "quilômetro", "chilometri"),
    "in": ("inch", "inches"),
    "ft": ("foot", "feet"),
    "yd": ("yard",),
    "mi": ("mile",),
    "mg": ("milligram",),
    "g": ("gram", "gramm", "gramme", "gramo", "grammi", "grama"),
    "kg": ("kilogram", "kilo", "kilogramm", "kilogramme", "kilogramo"),
    "lb": ("pound", "lbs"),
    "oz": ("ounce",),
    "ml": ("milliliter", "millilitre", "mL"),
    "l": ("liter", "litre", "L", "litro", "litri"),
    "s": ("second", "sec", "sekunde", "sekunden", "seconde", "segundo", "secondi"),
    "min": ("minute", "minuten", "minuto", "minuti"),
    "h": ("hour", "hr", "stunde", "stunden", "std", "heure", "hora", "ore"),
    "day": ("d", "tage", "tagen", "jour", "día", "dia", "giorni"),
    "mph": ("mile per hour", "miles per hour", "mi/h", "mi/hr", "miles/hour"),
    "km/h": ("kilometer per hour", "kilometers per hour", "kilometres per hour", "kph", "kmh", "km/hr"),
    "m/s": ("meter per second", "meters per second", "metres per second", "m/sec"),
    "ft/s": ("foot per second", "feet per second", "ft/sec"),
    "percent": ("%", "percentage", "prozent", "procent", "pourcent", *_PER_CENT),
    "degree": (r"\degree", "deg"),
    "degree c": (r"\degree C", r"\degreeC", "degrees c", "degrees celsius", "celsius", "grad celsius"),
    "degree f": (r"\degree F", r"\degreeF", "degrees f", "degrees fahrenheit", "fahrenheit"),
    "dollar": (r"\$", "usd"),
    "euro": ("€", "eur"),
    "pound sterling": ("£", "gbp"),
    "cent": ("¢",),
    "radian": ("rad", "radiant", "radianten", "radianti", "radián", "radiane", "radiano"),
    "unit": (),
    "stück": ("stk", "stücke"),
    "ordered pair": (),
}
_BY_SPELLING = {spelling: unit for unit, others in _SPELLINGS.items() for spelling in (unit, *others)}
UNITS_OF_TWO_LETTERS = tuple(spelling for spelling in _BY_SPELLING if re.fullmatch("[a-z]{2}", spelling))
# Units that need no \text around them. Other short ones may be products: mg is a weight in mechanics.
_BARE_UNITS = frozenset(
    spelling
    for spelling in (*_BY_SPELLING, *_SCALES, "square", "cubic", "sq", "year")
    if len(spelling) > 2 or spelling in ("cm", "mm", "km", "kg", "ft", "yd", "lb", "oz", "hr", "sq")
)


def _words(table: str) -> frozenset[str]:
    return frozenset(table.split())


# Words that change the number before them, in addition to those of _CHANGES_NUMBER.
_NUMBERS = _words("""
    one two three four five six seven eight nine ten eleven twelve hundred thousand lakh lac crore wan oku myriad googol
    googolplex zillion gazillion bazillion jillion mille mil mio bn mn mln mld mrd bln trn tril thou thsd
    dozen gross ream couple pair duo trio quartet quintet sextet septet octet nonet dyad triad tetrad
    half halve third quarter fourth sixth seventh eighth ninth tenth hundredth thousandth
    permille permil ppm ppb ppt pct percentage basis kilo mega giga tera peta exa zetta yotta ronna quetta hecto deca
    deka myria deci centi milli micro nano pico femto atto zepto yocto
    twice thrice double treble quadruple doubled tripled halved inverse reciprocal ish
    zwei drei vier fünf fuenf sechs sieben acht neun zwölf paar paare paaren tsd teur dtzd hälfte promille anderthalb
    duizend honderd dozijn helft deux trois quatre cinq huit neuf dix onze douze vingt trente millier paire demi demie
    moitié dos tres cuatro cinco seis siete ocho nueve diez doce veinte treinta cien ciento docena decena centena
    centenar centenares mitad mitades medio media tercio cuarto quinto décimo décima centésimo centésima milésimo
    milésima doble triple tre quattro cinque sei sette otto nove dieci venti trenta cento mila dozzina dozzine decina
    decine centinaio centinaia migliaio migliaia coppia coppie paio paia mezzo mezza mezzi metà terzo terzi quarti
    decimi centesimi millesimi doppio triplo dois duas três quatro sete oito dez vinte dúzia duzia dezena metade meio
    meia terço dobro
""")
# The same, but not in the plural: 5 logs.
_OPERATORS = _words("""
    minus plus times over divided multiplied into out root sqrt factorial choose squared cubed power mod modulo base
    remainder fold log ln sine cosine sin cos tan exp pi infinity binary octal hexadecimal recurring repeating periodic
    mal fois veces vezes volte moins menos meno geteilt durch quadrat hoch
""")
# Words that withdraw an answer or cast doubt on it.
DENIALS = _words("""
    not no nor neither never none nope cannot wrong false incorrect incorrectly invalid impossible maybe possibly
    perhaps probably unsure unclear unknown guess error except excluding unless instead rather
    nicht kein keine keinen keiner niemals falsch vielleicht jamais nunca jamás quizá quizás não nao talvez forse
    incorrecto sbagliato errado
""")
# Words after a number are not the counted thing if one of these is among them.
_NOT_COUNTED = DENIALS | _words("""
    or and to by between more less fewer than about approximately approx approximate nearly almost roughly around
    estimated rounded under above below exceeding exactly least most if when for where with without except only is are
    was right true correct the other another point each either neither both percent debt loss deficit too zero negative
    positive answer solution undetermined undefined
    oder und mehr mill mia weniger als etwa ungefähr circa zirka knapp rund über ueber unter mindestens höchstens genau
    bis zwischen wenn für ohne außer ausser nur ist sind richtig schulden verlust null negativ negative negativo positiv
    antwort pas non faux plus que environ presque près entre sans avec sauf seulement est vrai dette perte zéro sin más
    mas par pares casi aproximadamente salvo deuda pérdida cero più piu quasi tra fra senza minder debito mais quase sem
""")
# Not units by themselves: 5 squared, a score, a grand, fivefold, and some 5.
_NOT_COUNTED_ALONE = frozenset(("square", "cube", "score", "grand", "odd", "something", "arab", "kharab", "bil"))
_CHANGES_NUMBER = re.compile(
    r"\w*illi(?:on|ard)\w*|(?:twen|thir|four|for|fif|six|seven|eigh|nine)t(?:een|y|ie)|\w*(?:eenth|ieth|llionth|fth)"
    r"|(?:two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|many)fold"
    r"|(?:m|b|tr)il[lhij]+(?:on|ón|oe|õe|ão|ard)\w*|mil[lh]ar(?:es)?|\w+zig|drei(?:ß|ss)ig|\w*fache?[mnrs]?"
    r"|\w*(?:zehn|hundert|tausend|dutzend|pro[cz]ent|doppelt)\w*|halb(?:e[mnrs]?)?"
    r"|(?:drit|vier|fünf|fuenf|sechs|sieb|ach|neun|zwölf)teln?|\w+igstel|\w+i[eè]me|(?:di|dou|quin|ving|tren|cen)[tz]aine"
)
_TRAILING_TEXT = re.compile(r"(?P<opened>\()?\\text\{(?P<words>[^{}]*)\}(?P<power>\^\{[23]\})?(?(opened)\))$")
_TRAILING_WORDS = re.compile(rf"(?:(?<=[0-9)}}])| )(?P<words>[{LETTER}][{LETTER}./ ]{{0,60}})(?P<power>\^\{{[23]\}})?$")
_TRAILING_SIGN = re.compile(r"(?P<words>%|\\degree(?: ?[CF]| ?\\text\{ *[CF] *\})?|€|£|¢|\\\$)$")
_TEXT_OF = re.compile(r"\\text\{ *([A-Za-z]) *\}")
_LEADING = re.compile(r"(?P<sign>[+-]?)(?P<currency>\\\$|€|£|¥|₹)(?P<rest>.+)")
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9][0-9.,/ ]*")


@dataclass(frozen=True)
class Unit:
    """`name` in one spelling; `power` 2 for square, 3 for cubic."""

    name: str
    power: int = 1


PERCENT, DEGREE, RADIAN = Unit("percent"), Unit("degree"), Unit("radian")


def split_unit(text: str) -> tuple[str, Unit | None, int]:
    r"""Split a cleaned answer into the rest, its unit or None, and the scale of words like `million`."""
    leading = _LEADING.fullmatch(text)
    rest = leading["sign"] + leading["rest"] if leading else text
    found = _TRAILING_SIGN.search(rest) or _TRAILING_TEXT.search(rest) or _bare_words(rest)
    named = _named(found["words"], found.groupdict().get("power")) if found and found.start() else None
    unit, scale = named or (None, 1)
    if found and named:
        rest = rest[: found.start()].strip()
    if leading is None:
        return rest, unit, scale
    currency = Unit(_CURRENCIES[leading["currency"]])
    return (rest, currency, scale) if unit in (None, currency) else (text, None, 1)


def _bare_words(text: str) -> re.Match[str] | None:
    r"""Words after a number without `\text`, if they are known units or the number is plain text too."""
    found = _TRAILING_WORDS.search(text)
    if found is None:
        return None
    words = found["words"].split()
    prose = text[found.start()] == " " and all(len(word) > 2 for word in words)
    in_prose = prose and _PLAIN_NUMBER.fullmatch(text, 0, found.start())
    return found if _singular(words[0]) in _BARE_UNITS or words[0] in _BARE_UNITS or in_prose else None


def _named(words: str, power: str | None) -> tuple[Unit | None, int] | None:
    """The unit and the scale that words name; None if they mean something else."""
    plain = _TEXT_OF.sub(r" \1", words).strip("() ").replace("-", " ").replace(".", "").split()
    scale = _SCALES.get(plain[0].lower().removesuffix("s"), 1) if plain else 1
    plain = plain[1:] if scale != 1 else plain
    if not plain:
        return (None, scale) if scale != 1 and not power else None
    exponent = int(power[2]) if power else 1
    if plain[0].lower() in ("square", "sq", "cubic"):
        exponent = 3 if plain.pop(0).lower() == "cubic" else 2
    elif len(plain) > 1 and plain[-1].lower() in ("squared", "cubed"):
        exponent = 3 if plain.pop().lower() == "cubed" else 2
    name = _unit_name(plain)
    return None if name is None else (Unit(name, exponent), scale)


def _unit_name(words: list[str]) -> str | None:
    """The normal spelling of a known unit, or the words themselves if a number may count them."""
    name = " ".join(words)
    folded = name.lower() if len(name) > 2 else name  # case distinguishes mega from milli in a symbol
    for spelling in (name, _singular(name), folded, _singular(folded)):
        if spelling in _BY_SPELLING:
            return _BY_SPELLING[spelling]
    countable = words and all(re.fullmatch(rf"[{LETTER}/']{{3,}}|of|in", word) for word in words)
    says_more = any(word in _NOT_COUNTED or changes_number(word) for word in folded.split())
    says_more = says_more or _singular(folded) in _NOT_COUNTED_ALONE
    return _singular(folded) if countable and not says_more else None


def changes_number(word: str) -> bool:
    """Whether a word after a number changes the number, in the singular or the plural: lakhs, quadrillion."""
    stems = (word.lower(), re.sub("(?<=[sx])es$|s$", "", word.lower()))
    is_number = any(stem in _NUMBERS or _CHANGES_NUMBER.fullmatch(stem) for stem in stems)
    return is_number or word.lower() in _OPERATORS


def _singular(name: str) -> str:
    return name[:-1] if len(name) > 2 and name.endswith("s") else name


def same_value(gold: Fraction, gold_unit: Unit | None, answer: Fraction, answer_unit: Unit | None) -> bool:
    """Whether two numbers with units are the same answer.

    One side may omit a unit, as exams and data sets do; two different units are two different answers. An answer must
    not add a unit that changes the value: 42 is neither 42 % nor 42 radians. It may omit a gold answer's per cent sign
    if the number is above 1, since 0.5 and 0.5 % are both likely answers. 50 % also equals one half.
    """
    if gold_unit == answer_unit:
        return gold == answer
    if gold_unit is not None and answer_unit is not None:
        return False
    if gold_unit == PERCENT:
        return answer == gold / 100 or (answer == gold and abs(gold) > 1)
    if answer_unit == PERCENT:
        return gold == answer / 100
    return answer_unit != RADIAN and gold == answer
