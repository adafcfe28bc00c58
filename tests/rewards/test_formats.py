"""Scores of the form of a turn: tags, elements, boxes, JSON."""

import socket
import time

import pytest
from trl.rewards import think_format_reward

from rlvr_vocab.rewards.library.formats import boxed, json_format, think_format, xml_format, xml_tags


def test_think_format_agrees_with_trl_but_where_it_says_so():
    same = ["<think>\na\n</think>\nb", "<think>a", "b", "", "a</think>b", "x<think>a</think>b"]
    same += ["<think>a<think>b</think>c", "<think>a</think>b<think>c</think>d"]
    other = ["<think>a</think>", "<think>a</think> \n", "<think>a</think>b</think>c", "\n<think>a</think>b"]
    theirs = think_format_reward([[{"role": "assistant", "content": turn}] for turn in same + other])
    assert think_format(same) + [1.0 - score for score in think_format(other)] == theirs
    # The opening tag of a prompt may be missing or not.
    assert think_format([*same, "<think>a</think>"], prefilled=True) == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]


ON_LINES = "<reasoning>\n6 * 7\nis 42\n</reasoning>\n<answer>\n42\n</answer>\n"


@pytest.mark.parametrize(
    ("turn", "loose", "strict"),
    [
        (ON_LINES, 1.0, 1.0),
        (ON_LINES + "\n", 1.0, 0.0),
        (ON_LINES.replace("\n<answer>", "\n\n<answer>"), 1.0, 0.0),
        ("<reasoning>a</reasoning><answer>b</answer>", 1.0, 0.0),
        (ON_LINES + "Bye", 0.0, 0.0),
        ("<answer>b</answer><reasoning>a</reasoning>", 0.0, 0.0),
        (ON_LINES + ON_LINES, 0.0, 0.0),
    ],
)
def test_two_elements_and_nothing_else(turn, loose, strict):
    assert xml_format([turn]) == [loose]
    assert xml_format([turn], strict_newlines=True) == [strict]


@pytest.mark.parametrize(
    ("turn", "value", "reason"),
    [
        (ON_LINES + "x" * 100, 0.4, "4 of 4 tags, 100 characters after the end"),
        (ON_LINES + "x" * 10_000, 0.0, "4 of 4 tags, 10,000 characters after the end"),
        ("<reasoning>\na\n</reasoning>\nb\n</answer>", 0.375, "3 of 4 tags"),
        ("  <reasoning>a</reasoning> <answer>b</answer>\n\n", 0.5, "4 of 4 tags"),
        ("<reasoning>" + ON_LINES, 0.375, "3 of 4 tags"),
    ],
)
def test_each_tag_in_its_place_earns_an_eighth(turn, value, reason):
    [score] = xml_tags.explain([turn])
    assert score.value == pytest.approx(value, abs=1e-12) and score.reason == reason
    turns = [ON_LINES + "x" * size for size in (1_000, 1_000_000)]
    assert xml_tags(turns, least=-1.0) == pytest.approx([-0.5, -1.0])
    assert xml_tags(turns, penalty=0.0001) == pytest.approx([0.4, 0.0])


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (r"<think>a</think>b \boxed{\frac{1}{2}} c", "one box"),
        (r"<think>\boxed{1}</think>b", "the box is in the thinking"),
        (r"\boxed{\boxed{1}}", "2 boxes"),
        (r"<think>\boxed{1}", "thinking never closed"),
        (r"\boxed{1", "the box is not closed"),
        (r"\boxedly{1}", "no box"),
    ],
)
def test_one_box_stands_in_the_answer(turn, reason):
    [score] = boxed.explain([turn])
    assert (score.reason, score.value) == (reason, float(reason == "one box"))


PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}}


@pytest.mark.parametrize(
    ("turn", "score", "reason"),
    [
        ('{"age": 7}', 1.0, "JSON that holds to its schema"),
        ('<think>{</think>\n```json\n{"age": 7}\n```\n', 1.0, "JSON that holds to its schema"),
        ('{"age": "7"}', 0.5, "against its schema at $.age: '7' is not of type 'integer'"),
        ('{"age": NaN}', 0.0, "no JSON: NaN is not a JSON number"),
        ('It is {"age": 7}', 0.0, "no JSON"),
        ('{"age": 7}\n```json\n{"age": 7}\n```', 0.0, "no JSON"),
        ("[" * 100_000, 0.0, "no JSON"),
        (f'{{"age": {"9" * 5000}}}', 0.0, "no JSON"),
        ("<think>{}", 0.0, "thinking never closed"),
    ],
)
def test_an_answer_parses_and_holds_to_the_schema(turn, score, reason):
    [found] = json_format.explain([turn], schema=PERSON, parses=0.5)
    assert found.value == score and found.reason.startswith(reason)


def test_a_row_s_own_schema_goes_before_that_of_the_run():
    schemas = ['{"type": "string"}', {"type": "string"}, None, '{"type": "text"}', "{"]
    assert json_format(['"a"'] * 5, json_schema=schemas, schema=PERSON) == [1.0, 1.0, 0.0, None, None]
    assert json_format(["[1]"]) == [1.0]


DOUBLED = {f"a{depth}": {"allOf": [{"$ref": f"#/$defs/a{depth + 1}"}] * 2} for depth in range(30)} | {"a30": {}}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"pattern": "^(a+)+$"}, '"' + "a" * 40 + 'b"'),
        ({"$ref": "#/$defs/a0", "$defs": DOUBLED}, "1"),
        ({"$ref": "#"}, "1"),
        ({"multipleOf": 0.1}, "1e999"),
    ],
)
def test_an_answer_that_cannot_be_checked_in_time_is_json_and_no_more(schema, answer):
    begun = time.monotonic()
    [hangs, fine] = json_format.explain([answer, "7"], json_schema=[schema, None], parses=0.5, deadline=0.5)
    assert hangs.value == 0.5 and hangs.reason.startswith("not checked: ") and fine.value == 1.0
    assert time.monotonic() - begun < 20


def test_a_schema_that_refers_to_an_address_fetches_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        [score] = json_format.explain(["1"], json_schema=[{"$ref": address}])
        with pytest.raises(TimeoutError):
            server.accept()
    assert score.value is None and address in score.reason
