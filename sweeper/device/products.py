"""Published figures of GPUs: by compute capability, and by product. Data only.

Figures of a compute capability come from the CUDA C++ Programming Guide (tables "Technical
Specifications per Compute Capability" and "Throughput of Native Arithmetic Instructions") and, for
tensor cores, from the architecture whitepapers' peak rates divided by SMs and clock; those of a
product from what its `source` names: the data sheet and the architecture's whitepaper, both NVIDIA's,
or the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ARCHITECTURES", "GIB", "KIB", "PRODUCTS", "Architecture", "Product"]

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Architecture:
    """One compute capability. Rates in FLOP a clock and SM, dense, a multiply-add counting two.

    `float64` includes the tensor cores where they take it; `float16` and `tf32` are tensor-core rates
    with float32 accumulation on a data-centre part, half of which GeForce parts have (0: no unit).
    `l2_bytes_per_clock` is an SM's share when all read at once, from microbenchmarks (V100 and T4: Jia
    et al., 2018 and 2019; A100: 5120 B a clock over 108 SMs, its whitepaper); `shared_bytes_per_clock`
    that of shared memory and L1.
    """

    threads_per_sm: int
    blocks_per_sm: int
    shared_kib_per_sm: int
    shared_kib_per_block: int
    float32: int
    float64: int
    float16: int
    tf32: int
    int8: int
    l2_bytes_per_clock: float
    shared_bytes_per_clock: int = 128
    int32: int = 128


ARCHITECTURES: Final[dict[tuple[int, int], Architecture]] = {
    (7, 0): Architecture(2048, 32, 96, 96, 128, 64, 1024, 0, 512, 24.0),
    (7, 5): Architecture(1024, 16, 64, 64, 128, 4, 1024, 0, 2048, 20.0, shared_bytes_per_clock=64),
    (8, 0): Architecture(2048, 32, 164, 163, 128, 128, 2048, 1024, 4096, 47.0),
    (8, 6): Architecture(1536, 16, 100, 99, 256, 4, 1024, 512, 2048, 16.0),
    (8, 9): Architecture(1536, 24, 100, 99, 256, 4, 1024, 512, 2048, 16.0),
    (9, 0): Architecture(2048, 32, 228, 227, 256, 256, 4096, 2048, 8192, 46.6),
    (10, 0): Architecture(2048, 32, 228, 227, 256, 128, 8192, 4096, 16384, 46.6),
    (12, 0): Architecture(1536, 24, 100, 99, 256, 4, 1024, 512, 2048, 16.0, int32=256),
}


@dataclass(frozen=True, slots=True)
class Product:
    """One GPU. `clock_mhz` is the highest SM clock; on GeForce the driver's limit, above the boost clock.

    `bandwidth_gbs` is the pins' (10⁹ B/s), `copy_gbs` what a device-to-device copy was measured to
    reach, read and written bytes together (0: not measured).
    """

    name: str
    cc: tuple[int, int]
    sm_count: int
    clock_mhz: int
    bandwidth_gbs: float
    memory_bytes: int
    l2_bytes: int
    source: str
    copy_gbs: float = 0.0


PRODUCTS: Final[dict[str, Product]] = {
    # Limits queried; the copy measured; bandwidth = 6144 bit × 3201 MHz × 2.
    "h200": Product(
        "NVIDIA H200", (9, 0), 132, 1980, 4916.7, 143771 * MIB, 60 * MIB, "measured", copy_gbs=4270.0
    ),
    "h100": Product(
        "NVIDIA H100 80GB HBM3", (9, 0), 132, 1980, 3352.3, 80 * GIB, 50 * MIB, "H100 whitepaper, SXM5"
    ),
    "a100": Product(
        "NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410, 2039.0, 80 * GIB, 40 * MIB, "A100 data sheet, whitepaper"
    ),
    "l40s": Product(
        "NVIDIA L40S", (8, 9), 142, 2520, 864.0, 48 * GIB, 96 * MIB, "L40S data sheet, Ada whitepaper"
    ),
    # GeForce: the clock is the limit that the driver reports; the advertised boost clock is lower.
    "rtx4090": Product(
        "NVIDIA GeForce RTX 4090", (8, 9), 128, 3105, 1008.0, 24 * GIB, 72 * MIB, "Ada whitepaper, driver"
    ),
    "rtx3090": Product(
        "NVIDIA GeForce RTX 3090", (8, 6), 82, 2100, 936.2, 24 * GIB, 6 * MIB, "GA102 whitepaper, driver"
    ),
    "rtx2080ti": Product(
        "NVIDIA GeForce RTX 2080 Ti",
        (7, 5),
        68,
        2100,
        616.0,
        11 * GIB,
        5632 * KIB,
        "Turing whitepaper, driver",
    ),
    "t4": Product("Tesla T4", (7, 5), 40, 1590, 320.0, 16 * GIB, 4 * MIB, "T4 data sheet, Turing whitepaper"),
    "v100": Product(
        "Tesla V100-SXM2-16GB", (7, 0), 80, 1530, 900.0, 16 * GIB, 6 * MIB, "V100 data sheet, whitepaper"
    ),
    # One GPU of an HGX board's eight; the L2 size is what the driver reports.
    "b200": Product(
        "NVIDIA B200", (10, 0), 148, 1965, 7700.0, 180 * GIB, 126 * MIB, "HGX B200 data sheet, driver"
    ),
}
