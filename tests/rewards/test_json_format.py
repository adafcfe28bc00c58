"""Scores of answers in JSON."""

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


@pytest.mark.parametrize("parameter", [{"schema": {"type": "text"}}, {"schema": 7}, {"parses": 2}])
def test_a_wrong_parameter_is_refused(parameter):
    with pytest.raises(UserError, match=f"json_format: {next(iter(parameter))}="):
        json_format([], **parameter)
