"""Several training loaders as one."""

from __future__ import annotations

from typing import Any

import pytest

from lumen.core.combining import CombinedLoader, Mode
from lumen.errors import ConfigError
from lumen.shell.paddle_shim import paddle
from lumen.shell.sources.base import Span
from lumen_tests.shell.datasets import Numbers, Stateful, Stream, ended, flat, gone_on, opened, rank, stopped_after

io = paddle.io
LONG, SHORT = 23, 10


def loaders(mode: str = "max_size_cycle", *, workers: int = 0, stream: bool = False, **options: Any) -> Any:
    short = Stream(SHORT) if stream else Numbers(SHORT)
    each = {
        "a": io.DataLoader(Numbers(LONG), batch_size=4, shuffle=True, num_workers=workers),
        "b": io.DataLoader(short, batch_size=3, num_workers=workers, **({} if stream else {"shuffle": True})),
    }
    return CombinedLoader(each, mode)


def rows(items: list[Any]) -> list[dict[str, list[int]]]:
    return [{key: [int(i) for i in part["index"]] for key, part in batch.items()} for batch, _, _ in items]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_longest_decides_and_shorter_ones_start_again(workers: int, stream: bool) -> None:
    source = opened(loaders(workers=workers, stream=stream))
    items = ended(source)
    assert source.batches == (None if stream else 6)
    assert [last for _, _, last in items] == [False] * 5 + [True]
    batches = rows(items)
    assert sorted(flat([batch["a"] for batch in batches])) == list(range(LONG))
    short = [batch["b"] for batch in batches]
    assert sorted(flat(short[:4])) == list(range(SHORT))
    assert [len(batch) for batch in short] == [3, 3, 3, 1, 3, 3]
    if not stream:
        assert flat(short[4:]) != flat(short[:2])  # another pass, another order
    assert [samples for _, samples, _ in items] == [7, 7, 7, 5, 7, 6]


def test_the_shortest_ends_the_epoch_and_sequential_ones_follow_each_other() -> None:
    smallest = opened(loaders("min_size"))
    items = ended(smallest)
    assert (smallest.batches, len(items), items[-1][2]) == (4, 4, True)
    source = opened(loaders("sequential"))
    items = ended(source)
    assert source.batches == len(items) == 10
    assert [last for _, _, last in items] == [False] * 9 + [True]
    seen = [[int(i) for i in batch["index"]] for batch, _, _ in items]
    assert sorted(flat(seen[:6])) == list(range(LONG))
    assert sorted(flat(seen[6:])) == list(range(SHORT))


@pytest.mark.parametrize("mode", [mode.value for mode in Mode])
@pytest.mark.parametrize("stream", [False, True])
def test_a_resume_at_any_batch_goes_on_in_each_loader(mode: str, stream: bool) -> None:
    whole = [str(batch) for batch, _, _ in ended(opened(loaders(mode, stream=stream)), Span(2))]
    for done in range(1, len(whole)):
        items, state, span = stopped_after(opened(loaders(mode, stream=stream)), done, Span(2))
        source = opened(loaders(mode, stream=stream))
        source.restore([state], span, 0)
        assert source.left(span) in (len(whole) - done, None)
        rest = ended(source, span)
        got = [str(strip(batch)) for batch, _, _ in items + rest]
        assert got == [str(strip(batch)) for batch, _, _ in ended(opened(loaders(mode, stream=stream)), Span(2))]


def strip(batch: Any) -> Any:
    """The indices alone: in this process random numbers are the run's own."""
    return batch["index"] if "index" in batch else {key: part["index"] for key, part in batch.items()}


def test_a_resume_on_other_ranks_loses_and_repeats_nothing_in_any_loader() -> None:
    parts = [stopped_after(opened(loaders(), rank(2, number)), 2) for number in range(2)]
    seen = rows([item for items, _, _ in parts for item in items])
    (_, state, span), _ = parts
    rest = rows(gone_on(loaders(), [state, state], span))
    assert sorted(flat([b["a"] for b in seen + rest])) == list(range(LONG))


def test_a_loader_that_keeps_its_own_place_goes_on_from_it() -> None:
    def made(dataset: Any) -> Any:
        return {"a": io.DataLoader(Numbers(LONG), batch_size=4), "b": io.DataLoader(dataset, batch_size=3)}

    _, state, span = stopped_after(opened(made(Stateful(40))), 3)
    dataset = Stateful(40)
    rest = rows(gone_on(made(dataset), [state], span))
    assert flat([batch["b"] for batch in rest]) == list(range(9, 40))
    assert dataset.read == 31


def test_a_limit_a_list_and_names() -> None:
    source = opened([io.DataLoader(Numbers(8), batch_size=2), io.DataLoader(Numbers(4), batch_size=2)])
    items = ended(source, Span(limit=3))
    assert [last for _, _, last in items] == [False, False, True]
    assert isinstance(items[0][0], list)
    assert source.facts()["length"] == [8, 4]
    with pytest.raises(ConfigError, match="Did you mean 'min_size'"):
        CombinedLoader([1], "min_sise")
    with pytest.raises(ConfigError, match="at least one loader"):
        CombinedLoader({})
