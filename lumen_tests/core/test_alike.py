"""What ranks have differently."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumen.core.alike import first_difference

RANKS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")), min_size=1, max_size=4)


@given(RANKS)
def test_a_difference_is_found_where_there_is_one_and_is_true(ranks: list[dict[str, str]]) -> None:
    found = first_difference(ranks)
    if all(rank == ranks[0] for rank in ranks):
        assert found is None
        return
    assert found is not None
    for number, value in (found.first, found.second):
        assert ranks[number].get(found.name, "absent") == value
    assert found.first[1] != found.second[1]
