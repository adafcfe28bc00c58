"""What a set's name stands for, and rows as they were written in its file; a failure is one line."""

import csv
import gzip
import json
import unicodedata

import datasets
import pytest

from rlvr_vocab.data.files import hub_rows, local_file, read_rows
from rlvr_vocab.errors import UserError

ROWS = [{"problem": "1+1=", "answer": 2}, {"problem": "½ of 1?", "answer": 0.5}]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ROWS),
        json.dumps({"version": "1", "data": ROWS}),
        "\ufeff" + json.dumps(ROWS, ensure_ascii=False),
        json.dumps({"examples": ROWS, "version": 1, "authors": ["A", "B"]}),
        json.dumps({"version": "1", "of": {f"id{n}": row for n, row in enumerate(ROWS)}}),
        "\n".join(map(json.dumps, ROWS)),
        "\n\n".join(json.dumps(row, indent=1) for row in ROWS),
        json.dumps({"result": {"page": 1, "data": {"rows": ROWS}}}),
    ],
)
def test_every_layout_of_json_gives_the_same_rows(write, content):
    assert read_rows(write("p.json", content)) == ROWS


def test_of_several_lists_in_json_the_split_names_one(write):
    path = write("p.json", json.dumps({"info": {"by": ["A"]}, "data": {"train": ROWS, "dev": ROWS[:1]}}))
    assert read_rows(path, "data.dev") == ROWS[:1]
    with pytest.raises(UserError, match=r"2 lists of objects, data\.train \(2 rows\), data\.dev \(1 row\): name one"):
        read_rows(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(("p.json", text, r"p\.json holds no list of objects") for text in ('{"problem": "1+1="}', "3", '{"a": [1]}')),
        ("p.json", '[{"a": 1},\n {"b": 2', r"\.json is not valid JSON: .*line 2 column 9 \(char 19\)$"),
        ("p.json", '{"a": 1}\n{"a" 2}\n', r"\.json is not valid JSON: .*line 2 column 6"),
        ("p.csv.gz", gzip.compress(b"problem,answer\n1,2\n")[:-9], r"\.csv\.gz cannot be read: Compressed file ended"),
        ("p.jsonl", '{"a": 1}\n\n{"a": \n', r"\.jsonl:3 is not valid JSON: .*\(char 6\)$"),
        ("p.parquet", "not parquet at all", r"\.parquet is not a readable Parquet file: .*Parquet magic bytes"),
        ("p.csv", "problem,answer\na,1\nb,2,3\n", r":3 has 3 cells where the first line names 2 columns"),
        ("p.csv", 'problem,answer\na,1\n"b,2\n', r":3 breaks the quoting rules of CSV: unexpected end of data"),
        ("p.csv", "answer,answer\n1,2\n", r': the first line names the column "answer" twice; names must differ'),
    ],
)
def test_a_broken_file_or_one_without_rows_is_one_line_with_the_place(write, name, content, said):
    with pytest.raises(UserError, match=said) as caught:
        read_rows(write(name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "problem,answer\n1+1=,2\n"),
        ("p.tsv", "problem\tanswer\n1+1=\t2\n"),
        ("p.jsonl", '{"problem": "1+1=", "answer": "2"}\n'),
    ],
)
def test_a_compressed_file_is_read_like_the_file(write, name, text):
    for path in (write(name, text), write(f"{name}.gz", gzip.compress(text.encode()))):
        assert local_file(str(path)) == path and read_rows(path) == [{"problem": "1+1=", "answer": "2"}]


def test_a_table_without_a_header_has_the_names_that_are_given(write):
    path, names = write("p.csv", "Wie viel ist 1,5 + 1?;2,5\nWie viel ist 7 + 1?;8\n"), ["problem", "answer"]
    assert [row["answer"] for row in read_rows(path, header=names)] == ["2,5", "8"]
    with pytest.raises(UserError, match=r"p\.csv:1 has 2 cells where dataset\.header names 3 columns"):
        read_rows(path, header=[*names, "level"])
    with pytest.raises(UserError, match=r"p\.jsonl names its own"):
        read_rows(write("p.jsonl", "{}"), header=names)


def test_jsonl_breaks_only_at_line_feeds_and_skips_blank_lines(write):
    path = write("p.jsonl", '{"a": "x\u2028y"}\r\n\n{"a": "\u0085"}\n  \n5')
    assert read_rows(path) == [{"a": "x\u2028y"}, {"a": "\u0085"}, 5]


def test_csv_cells_stay_text_with_quotes_line_breaks_and_commas(write):
    path = write("p.csv", '\ufeffproblem,answer\r\n"a ""b"",\r\nc",007\r\nd,1/2\r\n\r\ne,NA\r\nf,\r\ng\r\n')
    assert read_rows(path) == [
        {"problem": 'a "b",\r\nc', "answer": "007"},
        {"problem": "d", "answer": "1/2"},
        {"problem": "e", "answer": "NA"},
        {"problem": "f", "answer": ""},
        {"problem": "g", "answer": None},
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("opening", ['"Moby Dick', '"Blue" is which', 'He said "no'])
def test_quotes_in_a_table_that_quotes_no_cell_are_text(write, opening, end):
    questions = [opening, *(f"What is {n}+1?" for n in range(5)), "a board of 5' 10\""]
    lines = ["question\tanswer", *(f"{question}\t{n}" for n, question in enumerate(questions))]
    for mark in ("", "\ufeff"):
        rows = read_rows(write("p.tsv", mark + end.join(lines)))
        assert [row["question"] for row in rows] == questions and [row["answer"] for row in rows] == list("0123456")


def test_a_tsv_file_of_a_writer_that_quotes_is_read_as_it_was_written(tmp_path):
    cells = ['He said "no"', "two\nlines", "a\ttab", "plain"]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        with (tmp_path / "p.tsv").open("w", newline="") as file:
            csv.writer(file, delimiter="\t", quoting=quoting).writerows([("question", "n"), *((c, "1") for c in cells)])
        assert [row["question"] for row in read_rows(tmp_path / "p.tsv")] == cells


@pytest.mark.parametrize(
    ("name", "delimiter"), [("p.csv", ";"), ("p.csv", "\t"), ("p.csv", "|"), ("p.tsv", ";"), ("p.tsv", ",")]
)
def test_the_first_line_tells_the_delimiter(write, name, delimiter):
    text = "question,answer\nPrix de 2 ?,4\n".replace(",", delimiter)
    for first in ("", f"sep={delimiter}\n"):
        assert read_rows(write(name, first + text)) == [{"question": "Prix de 2 ?", "answer": "4"}]


def test_a_csv_file_whose_quote_takes_rows_into_its_cell_is_refused_and_prose_is_not(write):
    prose = 'question,answer\n"Let a, b be.\nFind a+b",5\n"Red, blue\nand then,\nwhat?",3\n'
    assert [row["answer"] for row in read_rows(write("p.csv", prose))] == ["5", "3"]
    text = 'question,answer\nx,0\n"Moby,Melville\na,1\nb,2\nc,3\n5\' 10",70\ny,1\n'
    with pytest.raises(UserError, match=r"p\.csv:3 opens a quote and line 7 closes it, around whole rows"):
        read_rows(write("p.csv", text))


@pytest.mark.parametrize("extra", ["", ";;", ';"";'])
def test_empty_columns_without_a_name_are_left_out_and_names_are_composed(write, extra):
    name = unicodedata.normalize("NFD", "Lösung")
    content = f'Frage;{name}{extra}\n"a;b";1{extra}\nc;{extra}\n'
    rows = [{"Frage": "a;b", "Lösung": "1"}, {"Frage": "c", "Lösung": ""}]
    assert read_rows(write("p.csv", content)) == rows


def test_text_that_is_not_utf8_is_refused_by_its_byte(write):
    content = "problem,answer\ncafé,1\n".encode("latin-1")
    with pytest.raises(UserError, match=rf"byte {content.index(0xE9)} is 0xe9; as cp1252.*café,1.*iconv -f cp1252 "):
        read_rows(write("p.csv", content))
    with pytest.raises(UserError, match=r"byte 0 is 0xff; as utf-16.*problem,answer.* iconv -f utf-16 -t utf-8 "):
        read_rows(write("p.csv", "problem,answer\nx,1\n".encode("utf-16")))


def test_a_missing_file_is_named_absolutely_with_the_nearest_in_its_folder(write, tmp_path):
    write("gsm8k_train.jsonl", "x")
    write("other.csv", "x")
    with pytest.raises(UserError) as caught:
        local_file("gsm8k_trian.jsonl")
    expected = f"data file {tmp_path}/gsm8k_trian.jsonl does not exist; the nearest file there is gsm8k_train.jsonl"
    assert str(caught.value) == expected


def test_a_set_out_of_reach_is_one_line_with_the_way_to_a_local_file(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = r"^dataset no-such-org/no-such-set \(configuration main, split train\) .*Couldn't reach.* set dataset=FILE$"
    with pytest.raises(UserError, match=said):
        hub_rows("no-such-org/no-such-set", "main", "train")
