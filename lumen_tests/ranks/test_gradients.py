"""Gradients averaged at the step: the weights of one process, whatever each rank used of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumen_tests.ranks.sync_script import CASES
from lumen_tests.ranks.test_two_ranks import run

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module", params=[1, 2], ids=["every batch a step", "two batches a step"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The weights of one process, then those of both ranks."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    arguments = ["-m", "lumen_tests.ranks.sync_script", "--accumulate", str(request.param), "--out"]
    run([*arguments, str(one)])
    run([*arguments, str(two), "--devices", "2"])
    read = [one / "weights-0.json", two / "weights-0.json", two / "weights-1.json"]
    return [json.loads(Path(path).read_text()) for path in read]


@pytest.mark.parametrize("name", list(CASES))
def test_ranks_that_use_different_parts_of_a_model_stay_together(trained: list[Any], name: str) -> None:
    alone, first, second = (weights[name] for weights in trained)
    assert (first.pop("rank"), second.pop("rank")) == (0, 1)
    assert first == second
    for key, value in first.items():
        np.testing.assert_allclose(value, alone[key], atol=2e-5, rtol=0, err_msg=key)
