"""How plain values become typed ones, and what one line says where they cannot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Lt

from rlvr_vocab.bounds import Count, UserPath
from rlvr_vocab.config.values import keys_of, read, refuse_impossible_values
from rlvr_vocab.errors import UserError


@dataclass(frozen=True)
class Inner:
    size: Count
    share: Annotated[float, Lt(1)] = 0.5
    names: Literal["all"] | tuple[str, ...] = "all"


@dataclass(frozen=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...]
    place: UserPath | None
    free: dict[str, Any]


WHOLE = {"inner": {"size": 3}, "many": [{"size": 1e3}], "place": "~/x", "free": {"a": [1]}}


def test_lists_paths_and_whole_floats_are_what_the_type_says() -> None:
    found = read(Outer, WHOLE)
    assert found == Outer(Inner(3), (Inner(1000),), Path.home() / "x", {"a": [1]})
    assert type(found.many[0].size) is int
    assert {"inner", "inner.size", "many[].names", "place", "free"} <= set(keys_of(Outer))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"inner": {"size": "None"}}, "k.inner.size=None: should be a valid integer; YAML's None is null"),
        ({"many": [{"size": 1}, {"size": 0}]}, "k.many[1].size=0: should be greater than or equal to 1"),
        ({"inner": {"size": 1, "names": ["a", 2]}}, "k.inner.names[1]=2: should be a valid string"),
        ({"inner": {"size": 1, "names": "al"}}, "should be 'all' or should be a valid array; did you mean all?"),
        ({"inner": {}}, "k.inner.size is missing"),
        ({"inner": {"size": 1, "shar": 1}}, "unknown key k.inner.shar; did you mean k.inner.share?"),
        ({"place": ""}, "k.place=: must not be empty"),
    ],
)
def test_what_does_not_fit_is_named_with_its_whole_key(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        read(Outer, {**WHOLE, **changed}, "k")
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 2**63])
def test_a_number_that_is_not_finite_or_too_large_is_refused_wherever_it_stands(value: float) -> None:
    with pytest.raises(UserError, match=r"^a\.b: |^a\.b="):
        refuse_impossible_values({"a": {"b": [1, value]}})
