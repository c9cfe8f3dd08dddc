"""Streams: the same shares as a sequential dataset has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lumen.core.sampling import Cursor, SamplerConfig, Tail, plan_epoch
from lumen.core.streaming import deal_stream
from lumen_tests.core.test_sampling import ranks


@given(st.integers(0, 80), st.integers(1, 5), st.integers(1, 7), st.sampled_from(list(Tail)), st.integers(0, 80))
def test_a_stream_is_dealt_as_a_dataset_in_its_own_order(
    length: int, size: int, batch_size: int, tail: Tail, start: int
) -> None:
    start = min(start, length)
    config = SamplerConfig(length=length, batch_size=batch_size, tail=tail)
    for world in ranks(size):
        plan = plan_epoch(config, world, Cursor(consumed=start))
        chunks = list(deal_stream(iter(range(start, length)), world, batch_size=batch_size, tail=tail, position=start))
        shares = [chunk.samples for chunk in chunks if chunk.samples]
        expected = [plan.indices(number).tolist() for number in range(plan.batches)]
        if tail is Tail.PAD and (length - start) % size:  # padded from another place
            real = (length - start) % (size * batch_size)
            assert [len(share) for share in shares] == [len(batch) for batch in expected]
            assert shares[:-1] == expected[:-1]
            assert shares[-1][: -(-real // size) - 1] == expected[-1][: -(-real // size) - 1]
            assert set(shares[-1]) <= set(range(length - real, length))
        else:
            assert shares == expected
        assert [chunk.total for chunk in chunks][: plan.batches] == [plan.samples(n) for n in range(plan.batches)]
        if tail is not Tail.DROP and chunks:
            assert chunks[-1].position == length


def test_no_more_is_read_than_the_batch_needs() -> None:
    read: list[int] = []

    def stream():
        for number in range(100):
            read.append(number)
            yield number

    chunks = deal_stream(stream(), ranks(2)[1], batch_size=3, tail=Tail.PAD)
    assert next(chunks).samples == [1, 3, 5]
    assert read == [0, 1, 2, 3, 4, 5]
