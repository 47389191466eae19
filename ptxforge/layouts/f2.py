"""Linear algebra over GF(2), the field of one bit.

A vector is an ``int`` whose bit *i* is coordinate *i*; addition is ``^``. A matrix is the sequence of its
columns. Multiplying a matrix by a vector therefore means: XOR the columns whose bit is set.

>>> columns = [0b001, 0b010, 0b011]        # 3 columns, the last is the sum of the others
>>> bin(multiply(columns, 0b101))          # column 0 ^ column 2
'0b10'
>>> rank(columns), [bin(v) for v in kernel(columns)]
(2, ['0b111'])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def multiply(columns: Sequence[int], vector: int) -> int:
    """The product matrix x vector: the XOR of the columns that ``vector`` selects."""
    result = 0
    while vector:
        low = vector & -vector
        result ^= columns[low.bit_length() - 1]
        vector ^= low
    return result


def set_bits(vector: int) -> list[int]:
    """The positions of the one bits, ascending: ``set_bits(0b1010) == [1, 3]``."""
    positions = []
    while vector:
        low = vector & -vector
        positions.append(low.bit_length() - 1)
        vector ^= low
    return positions


class Span:
    """A growing set of columns that knows which sums of them make a given vector.

    Each stored row is a pair (vector, combination): the vector is the XOR of the columns that the
    combination's bits name. Rows are kept by the leading bit of their vector, so that reducing a vector
    takes at most one step per leading bit.
    """

    __slots__ = ("rows", "count")

    def __init__(self, columns: Iterable[int] = ()):
        self.rows: dict[int, tuple[int, int]] = {}
        self.count = 0
        for column in columns:
            self.add(column)

    @property
    def rank(self) -> int:
        """Number of independent columns."""
        return len(self.rows)

    def add(self, column: int) -> int:
        """Append a column. Returns 0 when it is independent of the earlier ones, else the mask of columns
        (itself included) that sum to zero. A dependent column never appears in a later combination."""
        vector, combination = self._reduce(column)
        combination ^= 1 << self.count
        self.count += 1
        if not vector:
            return combination
        self.rows[vector.bit_length()] = (vector, combination)
        return 0

    def contains(self, vector: int) -> bool:
        """Whether ``vector`` is a sum of the columns."""
        return not self._reduce(vector)[0]

    def express(self, vector: int) -> int | None:
        """The mask of columns that sum to ``vector``, or None when there is none. Of a dependent set only
        the earliest columns are used, which makes the answer unique."""
        rest, combination = self._reduce(vector)
        return None if rest else combination

    def _reduce(self, vector: int) -> tuple[int, int]:
        combination = 0
        rows = self.rows
        top = vector.bit_length()
        while top:
            row = rows.get(top)
            if row is None:
                # A leading bit that no row has: lower bits may still be reducible, but the vector cannot
                # become zero, and the leading bit already makes it independent.
                return vector, combination
            vector ^= row[0]
            combination ^= row[1]
            top = vector.bit_length()
        return vector, combination


def deposit(value: int, positions: Sequence[int]) -> int:
    """The vector that has the bits of ``value``, lowest first, at ``positions``, and 0 elsewhere."""
    return sum((value >> i & 1) << position for i, position in enumerate(positions))


def rank(columns: Iterable[int]) -> int:
    """The number of independent columns."""
    return Span(columns).rank


def kernel(columns: Iterable[int]) -> list[int]:
    """A basis of the vectors that the matrix maps to zero, one per dependent column."""
    span = Span()
    return [relation for relation in map(span.add, columns) if relation]


def solve(columns: Sequence[int], targets: Iterable[int]) -> list[int] | None:
    """For each target the vector x with matrix · x = target, or None if some target has no solution."""
    span = Span(columns)
    solutions = []
    for target in targets:
        x = span.express(target)
        if x is None:
            return None
        solutions.append(x)
    return solutions


def invert(columns: Sequence[int], size: int) -> list[int] | None:
    """The columns of the inverse of a square ``size`` x ``size`` matrix, or None when it has none."""
    if len(columns) != size:
        return None
    return solve(columns, (1 << i for i in range(size)))


def complete(columns: Iterable[int], size: int) -> list[int]:
    """Unit vectors that extend the span of ``columns`` to all ``size`` bits, lowest bits first."""
    span = Span(columns)
    return [unit for unit in (1 << i for i in range(size)) if not span.add(unit)]


def intersection(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A basis of the vectors that lie in the span of ``a`` and in the span of ``b``.

    Every relation between the independent columns of both says that a sum of ``a`` equals a sum of ``b``.
    """
    left, right = independent(a), independent(b)
    mask = (1 << len(left)) - 1
    return [multiply(left, relation & mask) for relation in kernel([*left, *right])]


def independent(columns: Iterable[int]) -> list[int]:
    """The columns that are independent of those before them, in order."""
    span = Span()
    return [column for column in columns if not span.add(column)]
