"""What stands around a number is told apart from it, and what it takes for two numbers with units to be the same."""

from fractions import Fraction

import pytest

from rlvr_vocab.verify import verify
from rlvr_vocab.verify.reading.cleaning import clean
from rlvr_vocab.verify.reading.units import Unit, same_value, split_unit


@pytest.mark.parametrize(
    ("text", "number", "unit", "scale"),
    [
        (r"12\text{ cm}", "12", Unit("cm"), 1),
        (r"12\,\mathrm{centimetres}", "12", Unit("cm"), 1),
        (r"30\text{ m}^2", "30", Unit("m", 2), 1),
        (r"30\text{ square meters}", "30", Unit("m", 2), 1),
        (r"8\text{ feet cubed}", "8", Unit("ft", 3), 1),
        (r"60\text{ miles per hour}", "60", Unit("mph"), 1),
        (r"9.8\text{ m/s}^2", "9.8", Unit("m/s", 2), 1),
        (r"\$12.50", "12.50", Unit("dollar"), 1),
        (r"-\$5", "-5", Unit("dollar"), 1),
        (r"\pounds 30", "30", Unit("pound sterling"), 1),
        (r"\$1.5\text{ million}", "1.5", Unit("dollar"), 10**6),
        (r"3\text{ thousand people}", "3", Unit("people"), 1_000),
        (r"25\%", "25", Unit("percent"), 1),
        ("25 percent", "25", Unit("percent"), 1),
        (r"45^\circ", "45", Unit("degree"), 1),
        (r"100^\circ\text{C}", "100", Unit("degree c"), 1),
        (r"42\text{ apples}", "42", Unit("apple"), 1),
        ("42", "42", None, 1),
    ],
)
def test_units_are_taken_off(text: str, number: str, unit: Unit | None, scale: int) -> None:
    assert split_unit(clean(text)) == (number, unit, scale)


@pytest.mark.parametrize(
    "text",
    [
        r"7\text{ or }8",
        r"7\text{ tenths}",
        r"7\text{ dozen}",
        r"7\text{ squared}",
        r"7\text{ is wrong}",
        r"7\text{ x}",
        r"7\text{th}",
        r"12\text{ cm}^{-1}",
        r"\$5\text{ euros}",
        "2mg",
        "3x",
        r"\text{cm}",
    ],
)
def test_what_is_no_unit_stays(text: str) -> None:
    assert split_unit(clean(text)) == (clean(text), None, 1)


CM, KM, PERCENT, DEGREE, RADIAN = map(Unit, ("cm", "km", "percent", "degree", "radian"))


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ((12, CM), (12, CM), True),
        ((12, CM), (12, None), True),
        ((12, CM), (12, KM), False),
        ((12, Unit("cm", 2)), (12, CM), False),
        ((45, DEGREE), (45, None), True),
        ((45, DEGREE), (45, RADIAN), False),
        ((60, None), (60, RADIAN), False),
        ((50, PERCENT), (50, None), True),
        ((50, PERCENT), (Fraction(1, 2), None), True),
        ((Fraction(1, 2), None), (50, PERCENT), True),
        ((42, None), (42, PERCENT), False),
        ((Fraction(1, 2), PERCENT), (Fraction(1, 2), None), False),
        ((1, PERCENT), (1, None), False),
    ],
)
def test_a_unit_may_be_left_out_but_not_changed(
    gold: tuple[Fraction, Unit | None], answer: tuple[Fraction, Unit | None], right: bool
) -> None:
    assert same_value(*gold, *answer) is right


CHANGING = """
    quadrillion tens ppm twice lakhs crores myriads googols quadrillions nonillions grosses grand mil tera hecto deca
    trios pairs squares ish fold tenfold zetta duos sixes fives thirteenths thousandths twenties milliards bn reams
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("words", [*CHANGING, "percentage points", "too many", "per mille", "per thousand", "is wrong"])
@pytest.mark.parametrize("form", [r"5\text{ %s}", "5 %s", "5 (%s)"])
def test_a_word_that_changes_the_number_is_no_unit_of_it(words, form):
    [verdict] = verify(["5"], [form % words])
    assert not verdict.correct


@pytest.mark.parametrize("words", ["km", "pies", "miles per gallon", "boxes", "ordered pairs", "test scores", "logs"])
def test_a_word_that_a_number_may_count_is_a_unit_of_it(words):
    assert [
        verdict.correct for verdict in verify(["5"] * 3, [rf"5\text{{ {words}}}", f"5 {words}", f"5 ({words})"])
    ] == [True] * 3


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("9 (apples)", ["9", "9 apples", r"9\text{ apples}", "9 (apples)"], ["8", "9 pears"]),
        ("3,400 (USD)", ["3400", r"\$3{,}400"], ["340"]),
        ("478 (lbs)", ["478", r"478\text{ pounds}"], ["478 kg"]),
        ("5 (m)", ["5", r"5\text{ m}"], ["5m^2"]),
        ("5 (m^2)", ["5", r"5\text{ m}^2"], [r"5\text{ m}"]),
        ("14 (times)", ["14", "14 times", r"14\text{ times}", "14 (times)"], ["15 times", "14 books"]),
        ("5 (million)", ["5000000", r"5\text{ million}"], ["5"]),
        ("500", ["5 hundred", "500 [apples]", r"5\text{ hundred}"], ["50 [apples]"]),
        ("12 [cm]", ["12", r"12\text{ cm}", "12 (cm)"], ["12 kg"]),
    ],
)
def test_a_gold_answer_may_have_its_unit_in_brackets(gold, right, wrong):
    verdicts = verify([gold] * (len(right) + len(wrong)), [*right, *wrong])
    assert [verdict.correct for verdict in verdicts] == [True] * len(right) + [False] * len(wrong)
