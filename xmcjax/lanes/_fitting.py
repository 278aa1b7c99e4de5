"""How many lanes a device takes, by XLA's count of the program that makes their step.

The program is compiled for the lanes that :func:`xmcjax.lanes.lanes_that_fit` guesses, and the first step
finds it compiled. It is compiled for another number only where they do not fit, or where they fill less than
half of what they may.
"""

from __future__ import annotations

from collections.abc import Callable

from xmcjax._device_memory import DeviceMemoryError, smaller
from xmcjax._memory import size
from xmcjax.lanes._devices import BLOCKS, MOST, PART, whole_tiles


class Fitting:
    """Chooses lanes and blocks for one device.

    Args:
        count: gives the bytes that a number of lanes takes beside X.
        free: bytes that are free beside X.
        what: the lanes and the device, for the error, such as "over 3 rows and 2 features, on cuda:0".
        dtype: of the lanes.
    """

    def __init__(self, count: Callable[[int], int], free: int, what: str, dtype):
        self._count, self._free, self._what, self._dtype = count, free, what, dtype

    def chosen(self, guess: int) -> int:
        """As many lanes as fill about 0.8 of what is free, up to 512; fewer than 16 where no more fit.

        Args:
            guess: the lanes that are counted first.

        Raises:
            DeviceMemoryError: not even one fits.
        """
        lanes, usable = guess, int(PART * self._free)
        while (needed := self._count(lanes)) > usable:
            if lanes == 1:
                if needed > self._free:
                    raise self._error("one lane", needed, "")
                break
            lanes = whole_tiles(min(lanes * usable // needed, lanes - 1))
        if lanes == guess < MOST and 2 * needed <= usable:
            # a part of `needed` does not grow with the lanes, so that this many fit
            lanes = whole_tiles(min(lanes * usable // needed, MOST))
        return lanes

    def check(self, lanes: int) -> None:
        """Checks that the lanes which the caller asks for fit.

        Raises:
            DeviceMemoryError: they do not; the text says how many would.
        """
        needed = self._count(lanes)
        if needed > self._free:
            fewer = self.chosen(whole_tiles(max(1, min(lanes - 1, lanes * self._free // needed))))
            raise self._error(f"block_size={lanes}", needed, f"block_size={fewer} would fit; ")

    def blocks(self, lanes: int) -> int:
        """How many blocks of so many lanes fit, up to those that a device has use for."""
        needed = self._count(lanes)
        return max(1, min(BLOCKS, int(PART * self._free) // needed)) if needed else 1

    def _error(self, lanes: str, needed: int, remedy: str) -> DeviceMemoryError:
        return DeviceMemoryError(
            f"expected lanes that fit into the memory of the device: {lanes} {self._what} needs "
            f"{size(needed)} beside X, by XLA's count, and {size(self._free)} are free: "
            f"{remedy}{smaller(self._dtype)}"
        )
