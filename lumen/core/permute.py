"""The epoch order: a keyed bijection of range(n), any slice of it in the time and memory of the slice.

Small sets are sorted by keyed hashes. Larger ones go through a generalised Feistel network (Black and Rogaway, "Ciphers
with arbitrary finite domains", 2002) on a grid of a columns and b rows, a * b just above n, with cycle walking for the
few cells beyond n.
"""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from lumen.errors import ConfigError

LARGEST = 2**62
_SMALL = 512  # up to here sorting all hashes costs less than the network's rounds, and reaches every order
_ROUNDS = 8  # even
_BLOCK = 1 << 16  # positions computed at once: bounds the memory of a long slice's intermediate arrays

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_U = np.uint64
_MIX_1, _MIX_2 = _U(0xBF58476D1CE4E5B9), _U(0x94D049BB133111EB)  # splitmix64 (Steele, Lea, Flood, 2014)


def _mix(words: Words) -> Words:
    """The finaliser of splitmix64: every bit of a word depends on all of its bits."""
    words = (words ^ (words >> _U(30))) * _MIX_1
    words = (words ^ (words >> _U(27))) * _MIX_2
    mixed: Words = words ^ (words >> _U(31))
    return mixed


def _scaled(words: Words, size: int) -> Words:
    """Words spread over range(size), size <= 2**32, by their upper halves (Lemire, 2019): a product, no division."""
    scaled: Words = ((words >> _U(32)) * _U(size)) >> _U(32)
    return scaled


@attrs.frozen
class Permutation:
    """A permutation of ``range(n)``, computed where it is asked for.

    Args:
        n: Number of positions, from 0 to 2**62.
        keys: One 64-bit key per round.

    Example:
        >>> shuffled = permutation(10**12, seed=0, epoch=3)
        >>> len(shuffled[10**11 : 10**11 + 4])
        4
        >>> sorted(permutation(5, seed=0, epoch=0)[:].tolist())
        [0, 1, 2, 3, 4]
    """

    n: int
    keys: tuple[int, ...]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, part: slice) -> Integers:
        """The samples at the positions of a slice with step 1."""
        start, stop, step = part.indices(self.n)
        if step != 1:
            raise ConfigError("permutation[a:b:step]", got=step, allowed="a step of 1")
        return self.at(np.arange(start, max(start, stop), dtype=np.int64))

    def at(self, positions: Integers) -> Integers:
        """The samples at any positions.

        Args:
            positions: int64, each in range(n), any shape [k].
        """
        if self.n <= _SMALL:
            return self._sorted()[positions]
        blocks = [self._permute(positions[i : i + _BLOCK]) for i in range(0, len(positions), _BLOCK)]
        return np.concatenate(blocks) if blocks else positions

    def _sorted(self) -> Integers:
        cells = np.arange(self.n, dtype=np.uint64)
        words = _mix(_mix(cells + _U(self.keys[0])) ^ _U(self.keys[1]))
        return np.argsort(words, kind="stable").astype(np.int64)

    def _permute(self, positions: Integers) -> Integers:
        cells = self._network(positions.astype(np.uint64))
        outside = np.flatnonzero(cells >= _U(self.n))
        while outside.size:  # a few of ceil(sqrt(n)) cells: walk on until back inside
            cells[outside] = self._network(cells[outside])
            outside = outside[cells[outside] >= _U(self.n)]
        return cells.astype(np.int64)

    def _network(self, cells: Words) -> Words:
        columns = math.isqrt(self.n - 1) + 1
        rows = -(-self.n // columns)
        left, right = cells % _U(columns), cells // _U(columns)
        sizes = (columns, rows)
        with np.errstate(over="ignore"):
            for index, key in enumerate(self.keys):
                size = sizes[index % 2]
                left = left + _scaled(_mix(right * _U(0x9E3779B97F4A7C15) + _U(key)), size)
                left = np.where(left >= _U(size), left - _U(size), left)
                left, right = right, left
        # after an even number of rounds the halves are where they were
        joined: Words = left + right * _U(columns)
        return joined


def permutation(n: int, seed: int, epoch: int) -> Permutation:
    """The order of an epoch: the same on every rank, platform and numpy version.

    Args:
        n: Number of samples, from 0 to 2**62.
        seed: The run's seed, >= 0.
        epoch: The epoch, >= 0. Seed and epoch are mixed, not added: no two epochs of two seeds share an order.

    Raises:
        ConfigError: n, seed or epoch is out of range.
    """
    for name, value, most in (("n", n, LARGEST), ("seed", seed, None), ("epoch", epoch, None)):
        if value < 0 or (most is not None and value > most):
            raise ConfigError(f"permutation({name})", got=value, allowed=f"from 0 to {most}" if most else ">= 0")
    keys = np.random.SeedSequence((seed, epoch)).generate_state(_ROUNDS, np.uint64)
    return Permutation(n, tuple(int(key) for key in keys))


def hashes(places: Integers, *key: int) -> Words:
    """A keyed 64-bit hash of each number: random words that are the same on every platform and in any slice.

    Args:
        places: int64, any shape.
        key: Integers >= 0 that choose the hash.

    Example:
        >>> int(hashes(np.arange(3), 7)[1]) == int(hashes(np.arange(1, 2), 7)[0])
        True
    """
    first, second = np.random.SeedSequence(key).generate_state(2, np.uint64)
    with np.errstate(over="ignore"):
        return _mix(_mix(places.astype(np.uint64) + first) ^ second)
