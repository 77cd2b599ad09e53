"""Amounts of everything as one integer, so that "is there enough?" and "take it" are one subtraction."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from iris_cli.core.model.capacity import Amounts


class Parcel(Struct, frozen=True):
    """What one task takes, packed. `taken`: the numbers of the amounts that it takes any of, `signs` their signs."""

    need: Amounts
    packed: int
    taken: tuple[int, ...]
    signs: int


class Packing:
    """One field for each amount. The top bit of a field is its sign: set where the amount isn't negative.

    Fields are wide enough for the difference of any two of the amounts, so that none borrows from the next.
    """

    def __init__(self, amounts: Iterable[Amounts]) -> None:
        largest = max((abs(amount) for each in amounts for amount in each), default=0)
        self._width = largest.bit_length() + 2
        self._shifts = [number * self._width for number in range(len(Amounts._fields))]
        self._field = (1 << self._width) - 1
        self._zero = 1 << (self._width - 1)
        self.signs = sum(self._zero << shift for shift in self._shifts)

    def stock(self, left: Amounts) -> int:
        """What a worker has left."""
        return self.signs + self._pack(left)

    def parcel(self, need: Amounts) -> Parcel:
        """What a task takes. A stock minus `packed` is the new stock if all signs are still set."""
        taken = tuple(number for number, amount in enumerate(need) if amount)
        return Parcel(need, self._pack(need), taken, sum(self._zero << self._shifts[each] for each in taken))

    def left(self, stock: int) -> Amounts:
        """The amounts in a stock."""
        return Amounts(*(self.amount(stock, number) for number in range(len(self._shifts))))

    def amount(self, stock: int, number: int) -> int:
        """One of the amounts in a stock."""
        return (stock >> self._shifts[number] & self._field) - self._zero

    def _pack(self, amounts: Amounts) -> int:
        return sum(amount << shift for amount, shift in zip(amounts, self._shifts, strict=True))
