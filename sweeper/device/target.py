"""Limits, rates and identity of a target GPU: from a table, or from a live device's attributes.

Published figures and where they come from are in `products`. Clocks are the highest that the device
allows, never a live reading: what is pruned or called implausible does not depend on how hot it is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sweeper.device.products import ARCHITECTURES, KIB, PRODUCTS, Architecture, Product
from sweeper.errors import ConfigError, SetupError

__all__ = ["TARGETS", "DeviceIdentity", "Target", "from_query", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a kernel may use of one GPU, and how fast the GPU can be.

    `max_shared_bytes` is a block's limit with the opt-in attribute, `static_shared_bytes` the one
    without. `clock_mhz` is the highest SM clock. `bandwidth_gbs` (10⁹ B/s) is what a copy reaches
    where that was measured, else the data sheet's figure; `peak_bandwidth_gbs` is always the pins'
    (0: the same). `flops_per_clock_per_sm` gives, by precision class, the fastest dense rate of any
    unit, tensor cores included (a multiply-add is two), accumulating in the class's accumulator.
    """

    name: str
    cc: tuple[int, int]
    arch: str
    sm_count: int
    clock_mhz: int
    bandwidth_gbs: float
    memory_bytes: int
    l2_bytes: int
    max_shared_bytes: int
    shared_bytes_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    flops_per_clock_per_sm: Mapping[str, int] = field(hash=False)
    peak_bandwidth_gbs: float = 0.0
    l2_bytes_per_clock_per_sm: float = 32.0
    shared_bytes_per_clock_per_sm: int = 128
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_block_dim: tuple[int, int, int] = (1024, 1024, 64)
    max_grid_dim: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    static_shared_bytes: int = 48 * KIB
    registers_per_sm: int = 65536
    max_registers_per_thread: int = 255
    source: str = ""

    @property
    def reserved_shared_bytes(self) -> int:
        """Shared memory that the system keeps for itself in each resident block (from cc 8.0 on)."""
        return KIB if self.cc >= (8, 0) else 0

    def limits(self) -> dict[str, int]:
        """The device's names in an expression; `cc` is 10 × major + minor."""
        return {
            "warp_size": self.warp_size,
            "max_threads": self.max_threads_per_block,
            "max_shared_bytes": self.max_shared_bytes,
            "sm_count": self.sm_count,
            "cc": 10 * self.cc[0] + self.cc[1],
        }

    def peak_gflops(self, dtype_name: str) -> float:
        """Highest rate in 10⁹ FLOP/s for a precision class, at the highest clock."""
        return self.flops_per_clock_per_sm[dtype_name] * self.sm_count * self.clock_mhz * 1e-3


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """Which device it was. Texts are empty and numbers 0 where nothing could be asked (emulator).

    `pci_bus_id` (`0000:18:00.0`) is what maps a CUDA ordinal to an NVML device: CUDA's own order is
    fastest first and obeys `CUDA_VISIBLE_DEVICES`; NVML's is neither.
    """

    name: str
    uuid: str = ""
    pci_bus_id: str = ""
    driver: str = ""
    cuda_driver: str = ""
    memory_bytes: int = 0
    index: int = 0


def _architecture(cc: tuple[int, int]) -> Architecture:
    """The row of `cc`, or of the newest known capability below it."""
    known = [row for row in ARCHITECTURES if row <= cc]
    if not known:
        raise SetupError(
            f"compute capability {cc[0]}.{cc[1]} is too old",
            hint="the oldest supported is 7.0 (Volta)",
        )
    return ARCHITECTURES[max(known)]


def _rates(cc: tuple[int, int], *, geforce: bool) -> dict[str, int]:
    """FLOP a clock and SM by precision class.

    A class without hardware of its own runs as float32: bfloat16 and tf32 before cc 8.0, float8 before 8.9. Integers
    wider than 8 bits are bounded by the 32-bit multiply-add.
    """
    row = _architecture(cc)
    float16, tf32 = (rate // 2 if geforce else rate for rate in (row.float16, row.tf32))
    return {
        "float64": row.float64,
        "float32": row.float32,
        "tf32": max(tf32, row.float32),
        # Three products of tf32 for each.
        "tf32x3": max(tf32 // 3, row.float32),
        "float16": float16,
        "bfloat16": float16 if cc >= (8, 0) else row.float32,
        # As fast as int8 since there are instructions for it.
        "float8_e4m3": row.int8 if cc >= (8, 9) else row.float32,
        "int8": row.int8,
        **dict.fromkeys(("int32", "int64", "uint32", "uint64"), row.int32),
    }


def _of_product(product: Product) -> Target:
    cc = product.cc
    row = _architecture(cc)
    # The instructions for TMA and warpgroups exist only in the architecture-specific "a" targets.
    suffix = "a" if cc >= (9, 0) else ""
    return Target(
        name=product.name,
        cc=cc,
        arch=f"sm_{cc[0]}{cc[1]}{suffix}",
        sm_count=product.sm_count,
        clock_mhz=product.clock_mhz,
        bandwidth_gbs=product.copy_gbs or product.bandwidth_gbs,
        peak_bandwidth_gbs=product.bandwidth_gbs,
        memory_bytes=product.memory_bytes,
        l2_bytes=product.l2_bytes,
        max_shared_bytes=row.shared_kib_per_block * KIB,
        shared_bytes_per_sm=row.shared_kib_per_sm * KIB,
        max_threads_per_sm=row.threads_per_sm,
        max_blocks_per_sm=row.blocks_per_sm,
        flops_per_clock_per_sm=_rates(cc, geforce="GeForce" in product.name),
        l2_bytes_per_clock_per_sm=row.l2_bytes_per_clock,
        shared_bytes_per_clock_per_sm=row.shared_bytes_per_clock,
        source=product.source,
    )


TARGETS: Final[dict[str, Target]] = {key: _of_product(product) for key, product in PRODUCTS.items()}


def _plain(name: str) -> str:
    """`NVIDIA GeForce RTX 4090`, `rtx-4090` and `RTX_4090` are one name."""
    return re.sub(r"nvidia|geforce|tesla|[^a-z0-9]", "", name.lower())


def target(name: str) -> Target:
    """The table's target of that name, whatever its case and separators.

    Raises ConfigError, with the nearest name, for one that is not in the table.
    """
    names = {_plain(t.name): key for key, t in TARGETS.items()} | {key: key for key in TARGETS}
    plain = _plain(str(name))
    if plain in names:
        return TARGETS[names[plain]]
    close = difflib.get_close_matches(plain, names, n=1)
    guess = f"did you mean {names[close[0]]}? " if close else ""
    raise ConfigError(f"unknown target {name!r}", hint=f"{guess}known targets: {', '.join(sorted(TARGETS))}")


def _same_product(name: str, cc: tuple[int, int], sm_count: int, memory_bytes: int) -> Target | None:
    """The table's entry for a live device, if it is that product: name, SMs and memory must agree.

    The name alone does not do: an H100 PCIe and one MIG slice of an H200 carry the same words.
    """
    for key, known in TARGETS.items():
        alike = key in _plain(name) and (known.cc, known.sm_count) == (cc, sm_count)
        if alike and abs(memory_bytes / known.memory_bytes - 1) < 0.15:
            return known
    return None


def _bandwidth_gbs(attrs: Mapping[str, int], cc: tuple[int, int], sm_count: int) -> tuple[float, str]:
    """Pin bandwidth: bus width × memory clock × 2 transfers a clock, both as the driver gives them."""
    bus_bits, clock_khz = attrs.get("GLOBAL_MEMORY_BUS_WIDTH", 0), attrs.get("MEMORY_CLOCK_RATE", 0)
    if bus_bits and clock_khz:
        return bus_bits / 8 * clock_khz * 2e-6, "bandwidth from bus width and memory clock"
    like = min(TARGETS.values(), key=lambda t: (abs(t.cc[0] - cc[0]), abs(t.cc[1] - cc[1])))
    guess = like.bandwidth_gbs * sm_count / like.sm_count
    return guess, f"bandwidth guessed from {like.name}'s per SM"


def from_query(
    attrs: Mapping[str, int], *, name: str, memory_bytes: int, max_clock_mhz: int | None = None
) -> Target:
    """The target that a live device is, from its attributes.

    `attrs` maps the names of CUDA's device attributes (`MULTIPROCESSOR_COUNT`, `CLOCK_RATE` in kHz…)
    to integers; one that the driver does not know may be missing, except the compute capability and
    the SM count. `max_clock_mhz` (from NVML) replaces CUDA's clock, which on GeForce is below what
    the device allows. A device that is in the table keeps the table's bandwidth.

    Raises SetupError for a missing attribute or a compute capability below 7.0.
    """
    try:
        cc = (attrs["COMPUTE_CAPABILITY_MAJOR"], attrs["COMPUTE_CAPABILITY_MINOR"])
        sm_count = attrs["MULTIPROCESSOR_COUNT"]
    except KeyError as missing:
        raise SetupError(
            f"device {name!r} does not report {missing.args[0]}", hint="check the driver with nvidia-smi"
        ) from None
    known = _same_product(name, cc, sm_count, memory_bytes)
    if known is None:
        peak, source = _bandwidth_gbs(attrs, cc, sm_count)
        base = _of_product(Product(name, cc, sm_count, 0, peak, memory_bytes, 0, f"queried; {source}"))
    else:
        base = replace(known, name=name, source=f"queried; {known.source}")
    return replace(
        base,
        memory_bytes=memory_bytes,
        clock_mhz=max_clock_mhz or attrs.get("CLOCK_RATE", 0) // 1000 or base.clock_mhz or 1000,
        l2_bytes=attrs.get("L2_CACHE_SIZE") or base.l2_bytes,
        warp_size=attrs.get("WARP_SIZE", base.warp_size),
        max_threads_per_block=attrs.get("MAX_THREADS_PER_BLOCK", base.max_threads_per_block),
        max_block_dim=_triple(attrs, "MAX_BLOCK_DIM", base.max_block_dim),
        max_grid_dim=_triple(attrs, "MAX_GRID_DIM", base.max_grid_dim),
        max_shared_bytes=attrs.get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", base.max_shared_bytes),
        static_shared_bytes=attrs.get("MAX_SHARED_MEMORY_PER_BLOCK", base.static_shared_bytes),
        shared_bytes_per_sm=attrs.get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", base.shared_bytes_per_sm),
        registers_per_sm=attrs.get("MAX_REGISTERS_PER_MULTIPROCESSOR", base.registers_per_sm),
        max_threads_per_sm=attrs.get("MAX_THREADS_PER_MULTIPROCESSOR", base.max_threads_per_sm),
        max_blocks_per_sm=attrs.get("MAX_BLOCKS_PER_MULTIPROCESSOR", base.max_blocks_per_sm),
    )


def _triple(attrs: Mapping[str, int], prefix: str, known: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, z = (attrs.get(f"{prefix}_{axis}", value) for axis, value in zip("XYZ", known, strict=True))
    return x, y, z
