"""The problems of another set, and which of them occur in a set to train on."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from rlvr_vocab.data.overlap import OtherSet, check_other_set, find_overlap, read_other_set
from rlvr_vocab.data.wording import words_of
from rlvr_vocab.errors import UserError

LONG = " ".join(f"w{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")  # 26 words: 19 runs of 8


def test_the_same_words_are_the_same_problem_whatever_their_writing() -> None:
    overlap = find_overlap(["other", "Find $x$: x+1=2."], ["find \\(x\\) x + 1 = 2", "find y"])
    [match] = overlap.same
    assert (match.measured, match.trained, match.contained) == (0, 1, 1.0)
    assert overlap.nearly_same == overlap.other_numbers == []
    assert overlap.trained == (1,)


def test_short_problems_are_compared_as_a_whole_only() -> None:
    overlap = find_overlap(["Prove that one two three four"], ["one two three four"])
    assert overlap.matches == ()


@pytest.mark.parametrize(
    ("changed", "contained"),
    # A change in the first word touches 1 of 19 runs of 8 words, one in the third 3, one in the fourth 4, in the
    # middle 8: 18/19, 16/19 = 0.842, 15/19 = 0.789.
    [(0, 18 / 19), (2, 16 / 19), (3, None), (12, None)],
)
def test_a_long_problem_is_nearly_the_same_from_80_percent_of_its_runs_of_eight_words(
    changed: int, contained: float | None
) -> None:
    words = LONG.split()
    words[changed] = "changed"
    matches = find_overlap(["x " + " ".join(words) + " y z"], [LONG]).nearly_same
    assert [match.contained for match in matches] == ([] if contained is None else [pytest.approx(contained)])


def test_a_shorter_problem_is_compared_by_runs_of_five_words() -> None:
    ten = " ".join(LONG.split()[:10])  # 6 runs of 5 words; without the first, 5/6 = 0.833; without two, 4/6
    assert find_overlap([f"begin {' '.join(ten.split()[1:])}"], [ten]).nearly_same[0].contained == pytest.approx(5 / 6)
    assert find_overlap([f"begin {' '.join(ten.split()[2:])}"], [ten]).matches == ()


def test_other_numbers_are_set_apart_and_concern_no_training_problem() -> None:
    text = f"{LONG} there are {{}} apples"
    overlap = find_overlap([text.format(7)], [f"Now {text.format(8)}", text.format(9)])
    assert [match.measured for match in overlap.other_numbers] == [0, 1]
    assert overlap.nearly_same == overlap.same == []
    assert overlap.trained == ()


def test_the_closest_of_several_matches_counts_and_all_of_training_are_named() -> None:
    nearly = "changed " + LONG.split(" ", 1)[1]
    overlap = find_overlap([nearly, LONG, f"{nearly} more", "nothing"], [LONG])
    assert [(match.trained, match.same) for match in overlap.matches] == [(1, True)]
    assert overlap.trained == (0, 1, 2)


def test_words_that_stand_in_every_problem_make_no_two_of_them_alike() -> None:
    begin = "Solve the following math problem step by step and take all the time that you need for it"
    end = "Remember to put your final answer on its own line after the word Answer and to write nothing behind it"
    asked = [f"{begin}. {problem}. {end}" for problem in ("a b c", "d e f", "g h i", "j k l", "m n o", "p q r")]
    overlap = find_overlap([f"{begin}. s t u. {end}", "s t u v w", f"{begin}. j k l. {end}"], asked)
    assert [(match.measured, match.trained) for match in overlap.matches] == [(3, 2)]
    without_the_frame = find_overlap(["one two three four five six seven eight nine"], [*asked, f"{begin} {asked[0]}"])
    assert without_the_frame.matches == ()


def test_a_problem_is_found_without_the_words_that_stand_around_every_other() -> None:
    end = "Remember to put your final answer on its own line after the word Answer and to write nothing behind it"
    asked = [f"{' '.join(f'{letter}{word}' for word in LONG.split())} {end}" for letter in "abcdefg"]
    [match] = find_overlap([" ".join(f"c{word}" for word in LONG.split())], asked).nearly_same
    assert (match.measured, match.contained) == (2, 1.0)


def test_progress_ends_with_everything_done() -> None:
    reports: list[tuple[int, int]] = []
    find_overlap(["x"] * 1100, ["y"], lambda done, total: reports.append((done, total)))
    assert reports == [(500, 1100), (1000, 1100), (1100, 1100)]


def runs(words: tuple[str, ...], length: int) -> set[tuple[str, ...]]:
    return {words[start : start + length] for start in range(len(words) - length + 1)}


def compared_one_by_one(trained: list[str], measured: list[str]) -> dict[int, float]:
    """Measured problem -> the best share of its runs of words in any one trained problem, from 0.8 on."""
    found = {}
    for key, text in enumerate(measured):
        words = words_of(text)
        if len(words) < 8:
            continue
        length = 8 if len(words) >= 16 else 5
        wanted = runs(words, length)
        best = max(len(wanted & runs(words_of(other), length)) / len(wanted) for other in trained)
        if best >= 0.8:
            found[key] = best
    return found


def test_the_index_misses_nothing_that_a_comparison_one_by_one_finds() -> None:
    generator = random.Random(0)
    base = [[generator.choice("abcdefgh") * 2 for _ in range(generator.randint(8, 40))] for _ in range(60)]

    def varied(words: list[str]) -> str:
        return " ".join("zz" if generator.random() < 0.02 else word for word in words)

    trained = [varied(words) for words in base for _ in range(2)]
    measured = [varied(words) for words in base]
    expected = compared_one_by_one(trained, measured)
    assert 20 < len(expected) < 60
    found = find_overlap(trained, measured)
    assert {match.measured: match.contained for match in found.matches} == pytest.approx(expected)


@pytest.mark.slow
def test_the_288_problems_that_two_real_sets_share_are_found(real_data: Path) -> None:
    aime, math = (
        [row["problem"] for row in json.loads((real_data / name).read_text(encoding="utf-8"))]
        for name in ("deepscaler_aime.json", "deepscaler_math.json")
    )
    in_math = {" ".join(text.split()) for text in math}
    verbatim = {key for key, text in enumerate(aime) if " ".join(text.split()) in in_math}
    same = {match.measured for match in find_overlap(math, aime).same}
    assert len(verbatim) == 288
    assert verbatim <= same
    assert len(same) == 326  # 38 more differ in case, punctuation or LaTeX alone


WriteJsonl = Callable[..., Path]


def test_texts_come_with_their_row_numbers_and_need_no_answer(write_jsonl: WriteJsonl) -> None:
    rows = [{"question": "a"}, {"question": " "}, 5, {"other": 1}, {"question": 17}]
    found = read_other_set(OtherSet(str(write_jsonl(*rows)), "question"))
    assert [tuple(text) for text in found] == [(1, "a"), (5, "17")]


def test_a_folder_is_read_by_its_split(
    write_jsonl: WriteJsonl, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    write_jsonl({"q": "trained"}, name="train.jsonl")
    folder = write_jsonl({"q": "tested"}, name="test.jsonl").parent
    assert [text for _, text in read_other_set(OtherSet(str(folder), "q"))] == ["tested"]
    assert [text for _, text in read_other_set(OtherSet(str(folder), "q", split="train"))] == ["trained"]


@pytest.mark.parametrize("read", [check_other_set, read_other_set])
def test_a_missing_column_names_those_there_are_and_the_key(
    read: Callable[[OtherSet], object], write_jsonl: WriteJsonl
) -> None:
    path = write_jsonl({"question": "a", "answer": 1})
    with pytest.raises(UserError) as caught:
        read(OtherSet(str(path), "problem"))
    assert str(caught.value) == (
        f'{path} has no column "problem"; its columns are question, answer;'
        " name the column of its problems with against_problem_column"
    )


@pytest.mark.parametrize("read", [check_other_set, read_other_set])
def test_a_file_without_rows_or_not_there_is_refused(read: Callable[[OtherSet], object], tmp_path: Path) -> None:
    (tmp_path / "no_rows.json").write_text("[]")
    with pytest.raises(UserError, match="has no rows"):
        read(OtherSet(str(tmp_path / "no_rows.json"), "q"))
    with pytest.raises(UserError, match="does not exist"):
        read(OtherSet(str(tmp_path / "nowhere.jsonl"), "q"))


def test_a_file_whose_problems_are_all_empty_is_refused(write_jsonl: WriteJsonl) -> None:
    with pytest.raises(UserError, match='has no problem in its column "q"'):
        read_other_set(OtherSet(str(write_jsonl({"q": ""}, {"q": None})), "q"))


def test_checking_does_not_look_a_hub_set_up() -> None:
    check_other_set(OtherSet("no-such-org/no-such-set", "q"))
