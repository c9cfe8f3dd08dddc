"""Requests: merging them is the same in whatever groups it is done, and asking twice adds nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.requests import NO_AGREED, NO_REQUEST, Request, agree, check_kinds, merge
from lumen.errors import WorldError

requests = st.builds(
    Request,
    stop=st.booleans(),
    save=st.booleans(),
    reason=st.sampled_from(["", "patience", "signal", "time is up; really"]),
    seconds=st.sampled_from([0.0, 1.5, 3.0]),
)


@given(requests, requests, requests)
def test_groups_do_not_matter(a: Request, b: Request, c: Request) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(requests)
def test_nothing_adds_nothing(a: Request) -> None:
    assert merge(a, NO_REQUEST) == merge(NO_REQUEST, a) == a


@given(requests, requests)
def test_asking_again_adds_nothing(a: Request, b: Request) -> None:
    once = merge(a, b)
    assert merge(once, a) == merge(once, b) == merge(once, once) == once


@given(st.lists(requests))
def test_what_one_rank_wants_all_do(asked: list[Request]) -> None:
    agreed = agree(asked)
    assert agreed.stop == any(request.stop for request in asked)
    assert agreed.save == any(request.save for request in asked)
    assert agreed.seconds == max((request.seconds for request in asked), default=0.0)
    for request in asked:
        assert request.reason in agreed.reason


@given(st.lists(requests, max_size=4))
def test_the_reasons_stay_in_the_order_of_the_ranks(asked: list[Request]) -> None:
    parts = list(dict.fromkeys(part for request in asked for part in request.reason.split("; ") if part))
    assert agree(asked).reason == "; ".join(parts)


def test_ranks_that_ask_for_nothing_agree_on_nothing() -> None:
    assert agree([]) is NO_AGREED
    assert agree([NO_REQUEST, Request()]) == NO_AGREED


def test_ranks_that_came_for_different_things_are_named() -> None:
    check_kinds({0: "requests", 1: "requests"})
    with pytest.raises(WorldError, match="1"):
        check_kinds({0: "requests", 1: "step values"})
