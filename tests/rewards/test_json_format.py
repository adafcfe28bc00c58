"""Scores of answers in JSON."""

import socket
import time

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library.json_answers import json_format

PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer", "minimum": 0}}}


@pytest.mark.parametrize(
    ("turn", "score", "reason"),
    [
        ('{"age": 7}', 1.0, "JSON that holds to its schema"),
        ('<think>{</think>\n```json\n{"age": 7}\n```\n', 1.0, "JSON that holds to its schema"),
        ('{"age": "7"}', 0.5, "against its schema at $.age: '7' is not of type 'integer'"),
        ("{}", 0.5, "against its schema at $: 'age' is a required property"),
        ('{"age": NaN}', 0.0, "no JSON: NaN is no number of JSON"),
        ('It is {"age": 7}', 0.0, "no JSON"),
        ('{"age": 7}\n```json\n{"age": 7}\n```', 0.0, "no JSON"),
        ("", 0.0, "no JSON"),
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


@pytest.mark.parametrize(
    "parameter", [{"schema": {"type": "text"}}, {"schema": 7}, {"schema": {"pattern": "("}}, {"parses": 2}]
)
def test_a_wrong_parameter_is_refused(parameter):
    with pytest.raises(UserError, match=f"json_format: {next(iter(parameter))}="):
        json_format([], **parameter)


DOUBLED = {f"a{depth}": {"allOf": [{"$ref": f"#/$defs/a{depth + 1}"}] * 2} for depth in range(30)} | {"a30": {}}


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"pattern": "^(a+)+$"}, '"' + "a" * 40 + 'b"'),
        ({"patternProperties": {"^(a|a)*$": {}}}, '{"' + "a" * 40 + 'b": 1}'),
        ({"propertyNames": {"pattern": "(.*a){25}"}}, '{"' + "a" * 60 + '": 1}'),
        ({"$ref": "#/$defs/a0", "$defs": DOUBLED}, "1"),
        ({"$ref": "#"}, "1"),
        ({"uniqueItems": True}, "[" + ",".join(f'{{"a": {i}}}' for i in range(20_000)) + "]"),
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
