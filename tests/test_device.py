"""Targets: what the table says, how a name is found, and what a live device's attributes become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sweeper.device import TARGETS, DeviceIdentity, Target, from_query, target
from sweeper.dtypes import DTYPES
from sweeper.errors import ConfigError, SetupError

H200_ATTRIBUTES: Mapping[str, int] = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "CLOCK_RATE": 1_980_000,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
    "L2_CACHE_SIZE": 62_914_560,
    "WARP_SIZE": 32,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233_472,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
}
H200_MEMORY = 150_754_820_096


def test_the_h200_has_its_measured_figures() -> None:
    h200 = target("h200")
    assert (h200.cc, h200.arch, h200.sm_count, h200.clock_mhz) == ((9, 0), "sm_90a", 132, 1980)
    assert h200.max_shared_bytes == 232_448
    assert h200.shared_bytes_per_sm == 233_472
    assert h200.bandwidth_gbs == 4270
    assert h200.peak_bandwidth_gbs > h200.bandwidth_gbs


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("h200", "float32", 66.9),
        ("h200", "bfloat16", 1070),
        ("h200", "tf32", 535),
        ("h200", "float64", 66.9),
        ("a100", "float16", 312),
        ("a100", "tf32", 156),
        ("a100", "int8", 624),
        ("a100", "float32", 19.5),
        ("v100", "float16", 125),
        ("v100", "float64", 7.8),
        ("t4", "float16", 65),
        ("t4", "int8", 130),
        ("l40s", "float32", 91.6),
        ("l40s", "float16", 366),
        ("b200", "float64", 37.2),
    ],
)
def test_peak_rates_agree_with_the_published_ones(name: str, dtype: str, tflops: float) -> None:
    assert target(name).peak_gflops(dtype) / 1e3 == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize("key", TARGETS)
def test_every_target_is_complete_and_consistent(key: str) -> None:
    t = TARGETS[key]
    assert t.source
    assert set(t.flops_per_clock_per_sm) == set(DTYPES)
    assert all(rate > 0 for rate in t.flops_per_clock_per_sm.values())
    assert t.static_shared_bytes <= t.max_shared_bytes <= t.shared_bytes_per_sm
    assert t.max_shared_bytes + t.reserved_shared_bytes <= t.shared_bytes_per_sm
    assert 0 < t.bandwidth_gbs <= t.peak_bandwidth_gbs
    assert min(t.sm_count, t.clock_mhz, t.l2_bytes, t.memory_bytes, t.max_blocks_per_sm) > 0
    assert t.max_threads_per_sm % t.warp_size == 0


def test_classes_without_hardware_of_their_own_run_as_float32() -> None:
    turing = target("t4").flops_per_clock_per_sm
    assert turing["bfloat16"] == turing["tf32"] == turing["float32"]


def test_geforce_tensor_cores_run_at_half_rate_with_float32_accumulation() -> None:
    assert target("rtx4090").flops_per_clock_per_sm["float16"] == 512
    assert target("l40s").flops_per_clock_per_sm["float16"] == 1024


@pytest.mark.parametrize(
    "name", ["rtx4090", "RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090", "GeForce_RTX_4090"]
)
def test_a_target_is_found_however_it_is_spelt(name: str) -> None:
    assert target(name) is TARGETS["rtx4090"]


def test_an_unknown_target_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="unknown target 'h20'") as caught:
        target("h20")
    assert "did you mean h200?" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        target("abacus")
    assert "did you mean" not in str(caught.value)
    assert "a100" in str(caught.value)


def test_limits_are_the_names_that_expressions_use() -> None:
    assert target("h200").limits() == {
        "warp_size": 32,
        "max_threads": 1024,
        "max_shared_bytes": 232_448,
        "sm_count": 132,
        "cc": 90,
    }


def test_the_system_reserves_shared_memory_from_ampere_on() -> None:
    assert target("t4").reserved_shared_bytes == 0
    assert target("a100").reserved_shared_bytes == 1024


def test_targets_are_values() -> None:
    assert hash(target("h200")) == hash(replace(target("h200")))
    assert target("h200") != replace(target("h200"), sm_count=1)


def test_a_live_h200_is_the_table_s_with_its_measured_bandwidth() -> None:
    live = from_query(H200_ATTRIBUTES, name="NVIDIA H200", memory_bytes=H200_MEMORY)
    assert live == replace(target("h200"), memory_bytes=H200_MEMORY, source=live.source)
    assert live.source.startswith("queried")


@pytest.mark.parametrize(
    ("name", "changes", "memory_bytes"),
    [
        ("NVIDIA H200 MIG 1g.18gb", {"MULTIPROCESSOR_COUNT": 16}, 17 * 2**30),
        ("NVIDIA H200", {}, 40 * 2**30),
        ("Some H800", {}, H200_MEMORY),
    ],
)
def test_the_name_alone_does_not_make_it_the_table_s_device(
    name: str, changes: Mapping[str, int], memory_bytes: int
) -> None:
    live = from_query({**H200_ATTRIBUTES, **changes}, name=name, memory_bytes=memory_bytes)
    assert live.bandwidth_gbs == pytest.approx(4916.7, rel=1e-3)  # bus × clock, not the measured copy
    assert "bus width" in live.source
    assert live.name == name
    assert live.memory_bytes == memory_bytes


def test_a_device_that_is_not_in_the_table_gets_rates_by_compute_capability() -> None:
    attributes = {
        "COMPUTE_CAPABILITY_MAJOR": 8,
        "COMPUTE_CAPABILITY_MINOR": 6,
        "MULTIPROCESSOR_COUNT": 84,
        "CLOCK_RATE": 1_740_000,
        "MEMORY_CLOCK_RATE": 7_251_000,
        "GLOBAL_MEMORY_BUS_WIDTH": 384,
        "L2_CACHE_SIZE": 6 * 2**20,
    }
    a40 = from_query(attributes, name="NVIDIA A40", memory_bytes=48 * 2**30)
    assert a40.peak_gflops("float32") / 1e3 == pytest.approx(37.4, rel=0.01)
    assert a40.peak_gflops("float16") / 1e3 == pytest.approx(149.7, rel=0.01)
    assert a40.bandwidth_gbs == pytest.approx(696, rel=0.01)
    assert (a40.max_blocks_per_sm, a40.max_threads_per_sm, a40.max_shared_bytes) == (16, 1536, 99 * 1024)
    assert a40.arch == "sm_86"


def test_a_newer_compute_capability_takes_the_rates_of_the_newest_known_one() -> None:
    attributes = {**H200_ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR": 10, "COMPUTE_CAPABILITY_MINOR": 3}
    b300 = from_query(attributes, name="NVIDIA B300", memory_bytes=270 * 2**30)
    assert b300.arch == "sm_103a"
    assert b300.flops_per_clock_per_sm == target("b200").flops_per_clock_per_sm


def test_without_a_memory_clock_the_bandwidth_is_a_guess_and_says_so() -> None:
    attributes = {
        "COMPUTE_CAPABILITY_MAJOR": 9,
        "COMPUTE_CAPABILITY_MINOR": 0,
        "MULTIPROCESSOR_COUNT": 66,
    }
    half = from_query(attributes, name="half an H200", memory_bytes=70 * 2**30)
    assert half.bandwidth_gbs == pytest.approx(TARGETS["h200"].bandwidth_gbs / 2)
    assert "guessed" in half.source
    assert half.clock_mhz > 0
    assert half.max_shared_bytes == 232_448


def test_the_clock_is_the_highest_allowed_not_the_boost_clock() -> None:
    live = from_query(H200_ATTRIBUTES, name="NVIDIA H200", memory_bytes=H200_MEMORY, max_clock_mhz=2100)
    assert live.clock_mhz == 2100


def test_queried_limits_win_over_the_table_s() -> None:
    attributes = {**H200_ATTRIBUTES, "MAX_BLOCK_DIM_Z": 32, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 100_000}
    live = from_query(attributes, name="NVIDIA H200", memory_bytes=H200_MEMORY)
    assert live.max_block_dim == (1024, 1024, 32)
    assert live.max_shared_bytes == 100_000


def test_a_device_that_is_too_old_is_a_set_up_error() -> None:
    attributes = {**H200_ATTRIBUTES, "COMPUTE_CAPABILITY_MAJOR": 6, "COMPUTE_CAPABILITY_MINOR": 1}
    with pytest.raises(SetupError, match=r"compute capability 6\.1 is too old"):
        from_query(attributes, name="GTX 1080", memory_bytes=8 * 2**30)


@pytest.mark.parametrize("name", ["MULTIPROCESSOR_COUNT", "COMPUTE_CAPABILITY_MINOR"])
def test_a_device_without_the_least_attributes_is_a_set_up_error(name: str) -> None:
    attributes = {key: value for key, value in H200_ATTRIBUTES.items() if key != name}
    with pytest.raises(SetupError, match=f"does not report {name}"):
        from_query(attributes, name="odd", memory_bytes=1)


def test_an_identity_may_be_a_name_and_nothing_more() -> None:
    emulated = DeviceIdentity("emulator")
    assert (emulated.uuid, emulated.pci_bus_id, emulated.memory_bytes) == ("", "", 0)


def test_limits_by_hand_make_a_target_too() -> None:
    small: Target = replace(target("t4"), name="small", sm_count=2)
    assert small.peak_gflops("float32") == pytest.approx(target("t4").peak_gflops("float32") / 20)
