"""What a launch must leave alone: its inputs, the guards of all arrays, and what it is judged by.

Everything is digested on the device, 64 bits a region, and compared with the digests of when it was right.
Only where one differs is memory fetched, to say what happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweeper.backend.cuda.arguments import Arguments
from sweeper.backend.cuda.arrays import Region
from sweeper.backend.cuda.device import CudaDevice
from sweeper.model import Direction

__all__ = ["Watch"]


@dataclass(frozen=True, slots=True)
class _Watched:
    """One region; `array` names the argument it belongs to, and is empty for what is not the kernel's."""

    region: Region
    array: str
    what: str = ""


class Watch:
    """Watches `arguments`, and `others` by what they are called. `seal` it once all is as it should be."""

    def __init__(
        self, device: CudaDevice, arguments: Arguments, others: Mapping[str, Sequence[Region]]
    ) -> None:
        self._device = device
        self._arguments = arguments
        self._watched = [*_of_arguments(arguments)]
        self._watched += [
            _Watched(region, "", what) for what, regions in others.items() for region in regions
        ]
        self._digests = np.zeros(len(self._watched), np.uint64)
        self._sealed = self._digests.copy()
        self._on_device = device.allocate(self._digests.nbytes)

    def seal(self) -> None:
        """Take everything as it is now for right. Waits for the device."""
        self.queue()
        self._read()
        self._sealed[:] = self._digests

    def queue(self) -> None:
        """Digest once the stream has come so far."""
        address = int(self._on_device)
        self._device.drv.memset_d8_async(address, 0, self._digests.nbytes, self._device.stream)
        for n, watched in enumerate(self._watched):
            self._device.code.digest(*watched.region, address + 8 * n)

    def _read(self) -> list[_Watched]:
        self._device.synchronize()
        self._device.drv.memcpy_dtoh(self._digests.view(np.uint8), int(self._on_device))
        changed = np.flatnonzero(self._digests != self._sealed)
        return [self._watched[i] for i in changed]

    def damage(self) -> list[str]:
        """What the digests queued last say was written that ought not to be. Waits for the device."""
        changed = self._read()
        if not changed:
            return []
        names = dict.fromkeys(watched.array for watched in changed if watched.array)
        arrays = [self._arguments.arrays[name] for name in names]
        found = [text for array in arrays if (text := array.damage())]
        for array in arrays:
            name = array.array.name
            if array.array.direction is Direction.IN and not array.equals(self._arguments.inputs[name]):
                found.append(f"wrote into its input {name}")
        found += dict.fromkeys(f"wrote into {w.what}, far outside its arrays" for w in changed if w.what)
        return found or [f"memory of {', '.join(names)} changed for a while"]

    def heal(self) -> list[str]:
        """Restore the arguments where they have changed; what else has changed cannot be helped, and is named."""
        self.queue()
        changed = self._read()
        names = dict.fromkeys(watched.array for watched in changed if watched.array)
        if names:
            self._arguments.restore(*names)
            self._device.synchronize()
        return list(dict.fromkeys(watched.what for watched in changed if watched.what))


def _of_arguments(arguments: Arguments) -> list[_Watched]:
    watched = []
    for name, array in arguments.arrays.items():
        whole = array.array.direction is Direction.IN
        regions = (array.with_guards,) if whole else array.guards
        watched += [_Watched(region, name) for region in regions]
    stored = arguments.stored.items()
    return watched + [_Watched(region, "", f"the stored content of {name}") for name, region in stored]
