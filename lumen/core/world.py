"""World: how many ranks there are and which one this process is."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class World:
    """The ranks of a job as one of them sees it.

    Args:
        size: Number of ranks in the job, >= 1.
        rank: This process's global rank, 0 <= rank < size.
        local_size: Number of ranks on this process's node, 1 <= local_size <= size.
        local_rank: This process's rank on its node, 0 <= local_rank < local_size.
        node: Index of this process's node, >= 0.
    """

    size: int
    rank: int
    local_size: int
    local_rank: int
    node: int

    @classmethod
    def single(cls) -> World:
        """The world of one process."""
        return cls(size=1, rank=0, local_size=1, local_rank=0, node=0)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.rank == 0
