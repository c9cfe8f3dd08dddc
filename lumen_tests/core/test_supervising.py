"""Supervision: what may be asked for, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumen.core.supervising import OUTPUTS, Supervision
from lumen.errors import ConfigError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (5, 5.0),
        (0.5, 0.5),
        ("90 s", 90.0),
        ("30 min", 1800.0),
        ("1.5 h", 5400.0),
    ],
)
def test_a_time_without_progress(value: Any, seconds: float | None) -> None:
    assert Supervision(hang_timeout=value).hang_seconds == seconds


def test_what_holds_unless_it_is_said() -> None:
    assert Supervision() == Supervision(hang_timeout="30 min", max_restarts=0, rank_output="all")
    assert Supervision().folder is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hang_timeout": 0}, "hang_timeout: got 0; allowed: seconds > 0"),
        ({"hang_timeout": -1.0}, "hang_timeout: got -1.0"),
        ({"hang_timeout": True}, "hang_timeout: got True"),
        ({"hang_timeout": float("inf")}, "hang_timeout: got inf"),
        ({"hang_timeout": float("nan")}, "hang_timeout: got nan"),
        ({"hang_timeout": [5]}, "hang_timeout"),
        ({"hang_timeout": "3 epochs"}, "hang_timeout: 3 epochs; allowed: a time"),
        ({"hang_timeout": "soon"}, "hang_timeout"),
        ({"hang_timeout": "0 s"}, "hang_timeout"),
        ({"max_restarts": -1}, "max_restarts: got -1; allowed: an int >= 0"),
        ({"max_restarts": 1.0}, "max_restarts: got 1.0"),
        ({"max_restarts": True}, "max_restarts: got True"),
        ({"max_restarts": None}, "max_restarts"),
        ({"rank_output": ""}, "rank_output: got ''; allowed: 'all', 'errors', 'none' or a folder"),
        ({"rank_output": None}, "rank_output: allowed: 'all', 'errors', 'none' or a folder"),
        ({"rank_output": 3}, "rank_output: got 3"),
        ({"rank_output": "error"}, r"Did you mean 'errors'\? A folder of that name is '\./error'"),
        ({"rank_output": "nonne"}, "Did you mean 'none'"),
    ],
)
def test_wrong_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Supervision(**options)


@pytest.mark.parametrize("value", ["logs", "./error", "a/all", Path("logs"), Path("all") / "x"])
def test_any_other_name_is_a_folder(value: Any) -> None:
    assert Supervision(rank_output=value).folder == str(value)


@pytest.mark.parametrize("value", OUTPUTS)
def test_the_three_words_are_none(value: str) -> None:
    assert Supervision(rank_output=value).folder is None


@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats()),
    st.one_of(st.none(), st.integers(), st.text(max_size=8)),
)
def test_any_values_give_a_supervision_that_can_be_used_or_a_config_error(
    timeout: Any, restarts: Any, output: Any
) -> None:
    try:
        made = Supervision(hang_timeout=timeout, max_restarts=restarts, rank_output=output)
    except ConfigError:
        return
    assert made.hang_seconds is None or 0 < made.hang_seconds < float("inf")
    assert made.max_restarts >= 0
    assert made.folder is None or made.folder == output
