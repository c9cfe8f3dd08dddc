"""Alike: whether all ranks have the same, by name, and the first name in which they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class Difference:
    """The first thing that two ranks have differently.

    Args:
        name: Its name.
        first: A rank, and what it has.
        second: Another rank, and what that one has.
    """

    name: str
    first: tuple[int, str]
    second: tuple[int, str]

    def __str__(self) -> str:
        (one, has), (other, other_has) = self.first, self.second
        return f"{self.name} is {has} on rank {one} and {other_has} on rank {other}"


def first_difference(ranks: Sequence[Mapping[str, str]], absent: str = "absent") -> Difference | None:
    """The first name that a rank has otherwise than rank 0; None if all are alike.

    Args:
        ranks: For each rank what it has under each name.
        absent: What is said of a name that a rank lacks.

    Example:
        >>> print(first_difference([{"a": "[2]", "b": "[4]"}, {"a": "[2]", "b": "[5]"}]))
        b is [4] on rank 0 and [5] on rank 1
        >>> print(first_difference([{"a": "[2]"}, {"a": "[2]", "b": "[5]"}]))
        b is absent on rank 0 and [5] on rank 1
    """
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        own = ranks[0].get(name, absent)
        for number, rank in enumerate(ranks):
            other = rank.get(name, absent)
            if other != own:
                return Difference(name, (0, own), (number, other))
    return None
