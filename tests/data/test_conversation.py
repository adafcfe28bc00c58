"""Problems given as chat messages: the prompt is the conversation, and its text is what makes it the same problem."""

import pytest
from datasets import Dataset

from rlvr_vocab.data.load import check_source, lay_out, read_problems
from rlvr_vocab.data.rows import usable_rows
from rlvr_vocab.data.source import Columns, ProblemSource, PromptStyle, Split
from rlvr_vocab.data.table import problem_table
from rlvr_vocab.errors import UserError

COLUMNS = Columns("prompt", None)
BRIEF = {"role": "system", "content": "Be brief."}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def laid_out(*cells, system_prompt="Fill the gap."):
    found = usable_rows([{"prompt": cell} for cell in cells], ProblemSource("p", COLUMNS))
    assert not found.dropped
    return list(problem_table(found.problems, PromptStyle(system_prompt), COLUMNS))


def test_a_conversation_is_the_prompt_as_it_stands_and_a_system_prompt_only_fills_a_gap():
    with_system, without, turns, text = laid_out([BRIEF, user("1+1=")], [user("2+2=")], [user("a"), assistant("b"),
                                                 user("c")], "3+3=")  # fmt: skip
    gap = {"role": "system", "content": "Fill the gap."}
    assert with_system["prompt"] == [BRIEF, user("1+1=")]
    assert without["prompt"] == [gap, user("2+2=")]
    assert turns["prompt"] == [gap, user("a"), assistant("b"), user("c")]
    assert text["prompt"] == [gap, user("3+3=")]
    assert [row["prompt"] for row in laid_out([user("2+2=")], system_prompt=None)] == [[user("2+2=")]]


def test_the_problem_is_what_the_messages_say_but_for_those_of_the_system():
    one, several, parts = laid_out([BRIEF, user(" 1+1= \n")], [BRIEF, user("a"), assistant("b"), user("c")],
                                   [user([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}])])  # fmt: skip
    assert (one["problem"], several["problem"], parts["problem"]) == (" 1+1= \n", "a\n\nb\n\nc", "xy")
    assert parts["prompt"][-1] == user("xy")


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ([BRIEF, user(" \n")], "empty problem"),
        ([{"role": "user"}], "a message is no object"),
        ([{"role": "tool", "content": "4"}, user("a")], "a message is no object"),
        ([user("a"), BRIEF, user("b")], "messages begin with the system's"),
        ([user(None)], "a message is no object with text"),
        ([user([{"type": "image", "image": "x.png"}])], "a message is no object with text"),
        ([user("a"), assistant("b")], "messages begin with the system's, if any, and end with the user's"),
    ],
)
def test_what_is_no_conversation_is_dropped_with_its_reason(cell, reason):
    found = usable_rows([{"prompt": [user("a")]}, {"prompt": cell}], ProblemSource("p", COLUMNS))
    [dropped] = found.dropped
    assert dropped.row_number == 2 and dropped.reason.startswith(reason)
    assert len(found.problems) == 1


def test_solved_turns_before_conversations_are_refused_when_checking_and_when_loading(write_jsonl):
    source = ProblemSource(str(write_jsonl({"prompt": "a"}, {"prompt": [user("b")]})), COLUMNS)
    style = PromptStyle(None, examples=(("1+1=", "2"),))
    for load in (check_source, lambda source, style: lay_out(read_problems(source, Split()), style)):
        with pytest.raises(UserError, match=r"dataset\.examples: problems that are chat messages"):
            load(source, style)


def test_conversations_are_read_from_parquet_json_and_folders_and_divided_by_their_text(write_jsonl, tmp_path):
    rows = [{"prompt": [BRIEF, user(f"{number}+1=")]} for number in range(8)]
    rows += [{"prompt": [user(f"what is {number}?")]} for number in range(8)] + [{"prompt": [user("0 + 1 =")]}]
    Dataset.from_list(rows).to_parquet(tmp_path / "p.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_jsonl(*rows, name="folder/train.jsonl")
    sets = [
        lay_out(
            read_problems(ProblemSource(str(place), COLUMNS), Split(eval_fraction=0.25, seed=1)), PromptStyle("Hi.")
        )
        for place in (write_jsonl(*rows), tmp_path / "p.parquet", folder)
    ]
    assert len({(str(each.train["prompt"][:]), str(each.eval["prompt"][:])) for each in sets}) == 1
    assert len(sets[0].reserved_keys) == 4
    assert any(line.endswith("unless it is held out: 1") for line in sets[0].account)
    assert {len(prompt) for prompt in sets[0].train["prompt"]} == {2}


@pytest.mark.parametrize(
    ("systems", "trained", "held_out"), [(1, 0, 1), (3, 0, 1), (4, 0, 1), (11, 30, 3), (40, 30, 10)]
)
def test_system_messages_tell_problems_apart_where_the_users_all_ask_the_same(systems, trained, held_out, write_jsonl):
    rows = [[{"role": "system", "content": f"Document {number % systems}"}, user("Summarise.")] for number in range(40)]
    divided = read_problems(
        ProblemSource(str(write_jsonl(*({"prompt": row} for row in rows))), COLUMNS), Split(eval_fraction=0.25)
    )
    assert (len(divided.parts.train), len(divided.parts.held_out)) == (trained, held_out)
