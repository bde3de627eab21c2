"""The CUDA backend on a pretended PyCUDA: what it opens, loads, launches, and whom it blames."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_rig import POINT, QUICK, FakeNvml, Rig, make_rig, product
from fake_pycuda import Behaviour, FakeDriver, Lost, Refused
from specs import gemm_spec, saxpy_spec

from sweeper.backend.cuda import identity as cuda_identity
from sweeper.backend.cuda.arguments import scalar_format
from sweeper.device.nvml import NvmlReadings
from sweeper.dtypes import dtype
from sweeper.errors import ConfigError, SetupError, TrialFailed
from sweeper.model import KernelSpec, Launch, Stage, Status
from sweeper.problem import resolve
from sweeper.problem.arguments import ResolvedScalar
from sweeper.resources.geometry import launch_of


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return make_rig(tmp_path, monkeypatch)


# --- Opening ------------------------------------------------------------------------------------------


def test_limits_and_identity_are_the_devices_own(rig):
    rig.install(FakeDriver(devices=2, attributes={"MULTIPROCESSOR_COUNT": 78}))
    limits, identity = rig.backend().open(1, "a100")
    assert (limits.sm_count, limits.cc, limits.clock_mhz) == (78, (9, 0), 1980)
    assert (identity.index, identity.pci_bus_id, identity.uuid) == (1, "0000:05:00.0", "GPU-of-0000:05:00.0")
    assert (identity.driver, identity.cuda_driver) == ("580.1", "13.1")


class DriverLibrary:
    """What `ctypes.CDLL` gives for libcuda, as far as it is asked for a UUID."""

    result = 0

    def cuDeviceGet(self, device: Any, index: int) -> int:  # noqa: N802 - the driver's own names
        return self.result

    def cuDeviceGetUuid_v2(self, raw: Any, device: Any) -> int:  # noqa: N802
        raw[:] = list(range(16))
        return 0


def test_the_uuid_is_cudas_where_the_driver_tells_it(rig, monkeypatch):
    monkeypatch.setattr(cuda_identity.ctypes, "CDLL", lambda name: DriverLibrary())
    assert rig.backend().open(0, None)[1].uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_the_uuid_is_nvmls_where_the_driver_does_not_tell_it(rig, monkeypatch):
    monkeypatch.setattr(DriverLibrary, "result", 101)
    monkeypatch.setattr(cuda_identity.ctypes, "CDLL", lambda name: DriverLibrary())
    assert rig.backend().open(0, None)[1].uuid == "GPU-of-0000:04:00.0"


def test_the_highest_clock_comes_from_nvml_where_it_is_known(rig):
    rig.nvml = FakeNvml(NvmlReadings(max_sm_clock_mhz=2100.0))
    assert rig.backend().open(0, None)[0].clock_mhz == 2100


def test_no_pycuda_is_a_set_up_error_with_the_way_to_get_it(rig, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(SetupError, match="PyCUDA cannot be used") as caught:
        rig.backend().open(0, None)
    assert "install" in caught.value.hint


def test_no_device_of_that_number_names_those_there_are(rig):
    with pytest.raises(SetupError, match="no CUDA device 3: 1 found") as caught:
        rig.backend().open(3, None)
    assert "0 to 0" in caught.value.hint


def test_no_device_at_all_points_at_visibility(rig):
    rig.install(FakeDriver(devices=0))
    with pytest.raises(SetupError) as caught:
        rig.backend().open(0, None)
    assert "CUDA_VISIBLE_DEVICES" in caught.value.hint


def test_a_driver_that_will_not_start_is_a_set_up_error(rig):
    rig.driver.refuse_init = "unknown error"
    with pytest.raises(SetupError, match="cuInit failed"):
        rig.backend().open(0, None)


def test_a_device_that_others_use_is_refused_unless_allowed(rig):
    rig.nvml = FakeNvml(NvmlReadings(processes=(4711,)))
    with pytest.raises(SetupError, match="in use by process 4711"):
        rig.backend().open(0, None)
    rig.backend(allow_shared=True).open(0, None)


def test_a_device_that_another_sweep_uses_is_refused_until_it_is_closed(rig):
    first = rig.backend()
    first.open(0, None)
    with pytest.raises(SetupError, match="in use by another sweep"):
        rig.backend().open(0, None)
    first.close()
    rig.backend().open(0, None)


def test_a_process_that_lingers_after_its_death_is_waited_for(rig, monkeypatch):
    monkeypatch.setattr(cuda_identity, "_LINGER_S", 5.0)
    rig.nvml = FakeNvml(NvmlReadings(processes=(4711,)), NvmlReadings(processes=()))
    rig.backend().open(0, None)


def test_a_folder_in_which_no_lock_can_be_made_is_no_error(rig, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    rig.backend().open(0, None)
    rig.nvml = FakeNvml(NvmlReadings(processes=(1,)))
    with pytest.raises(SetupError, match="in use"):
        rig.backend().open(0, None)


def test_closing_gives_everything_back(rig):
    rig.prepared()
    rig.cuda.close()
    assert rig.driver.contexts == []
    assert rig.driver.memory.used == 0
    assert rig.nvml.closed
    rig.cuda.close()


def test_nothing_can_be_done_before_opening_and_preparing(rig):
    backend = rig.backend()
    with pytest.raises(SetupError, match="not open"):
        backend.canary()
    rig.prepared()
    rig.cuda._prepared = None
    with pytest.raises(SetupError, match="no problem is prepared"):
        rig.measure()


def test_variables_that_change_a_librarys_precision_are_dropped(rig, monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    rig.backend().open(0, None)
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


# --- The canary ---------------------------------------------------------------------------------------


def test_a_sound_device_passes_the_canary(rig):
    rig.prepared().cuda.canary()


def test_a_device_that_computes_wrongly_fails_the_canary(rig):
    rig.prepared()
    rig.driver.canary_is_right = False
    with pytest.raises(SetupError, match="wrongly"):
        rig.cuda.canary()


def test_a_device_that_cannot_launch_fails_the_canary(rig):
    rig.prepared()
    rig.driver.lost = "an illegal memory access was encountered"
    with pytest.raises(SetupError, match="simplest kernel"):
        rig.cuda.canary()


# --- A right kernel -----------------------------------------------------------------------------------


def test_a_right_kernel_passes_with_figures_that_loading_reveals(rig):
    behaviour = Behaviour(product, registers=40, shared_bytes=512, local_bytes=8)
    outcome = rig.prepared().measure(behaviour)
    assert outcome.check.passed
    assert outcome.check.checked == 120
    assert (outcome.build.registers, outcome.build.static_shared_bytes, outcome.build.local_bytes) == (
        40,
        512,
        8,
    )
    assert outcome.launch.static_shared_bytes == 512
    assert outcome.note == ""


def test_arguments_arrive_in_order_and_type(rig):
    behaviour = Behaviour(product)
    rig.prepared().measure(behaviour)
    first = behaviour.launches[0]
    assert first["numbers"][3:] == (12, 10, 8)
    assert (first["block"], first["grid"]) == ((8, 8, 1), (2, 2, 1))


def test_many_shared_bytes_are_opted_into(rig):
    rig.prepared().measure(launch=Launch((8, 8, 1), (2, 2, 1), 100_000))
    assert rig.driver.set_attributes == [("dynamic", 100_000)]


def test_few_shared_bytes_need_no_opting_in(rig):
    rig.prepared().measure(launch=Launch((8, 8, 1), (2, 2, 1), 48 * 1024))
    assert rig.driver.set_attributes == []


def test_memory_stays_flat_over_many_trials(rig):
    rig.prepared()
    rig.measure()
    rig.failure(lambda *_: None)
    used = rig.driver.memory.used
    for _ in range(20):
        rig.measure()
        rig.failure(lambda *_: None)
    gc.collect()
    assert rig.driver.memory.used == used


def test_a_kernel_that_reads_and_writes_finds_its_input_fresh_each_time(rig):
    def saxpy(memory, n, a, x, y):
        out = memory.array(y, (n,), np.float32)
        out += np.float32(a) * memory.array(x, (n,), np.float32)

    rig.prepared(_saxpy(rig), {"N": 64})
    rig.driver.behaviours["saxpy"] = Behaviour(saxpy)
    geometry = launch_of(rig.spec, rig.spec.default_point, {"N": 64}, rig.target)
    outcome = rig.cuda.measure(rig.spec.default_point, geometry, rig.build("saxpy"), QUICK)
    assert outcome.check.passed
    assert outcome.timing.method == "events"


def _saxpy(rig: Rig) -> KernelSpec:
    path = rig.folder / "saxpy.py"
    path.write_text("def reference(a, x, y):\n    return a * x + y\n")
    return saxpy_spec(path)


# --- Launches refused, contexts lost ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "geometry", "reason"),
    [
        (Behaviour(product), Launch((64, 32, 1), (1, 1, 1), 0), "threads 2048 > 1024"),
        (Behaviour(product), Launch((8, 8, 1), (1, 70000, 1), 0), "grid y 70000 > 65535"),
        (Behaviour(product), Launch((8, 8, 1), (1, 1, 1), 300_000), "300000"),
        (Behaviour(product, registers=162), Launch((512, 1, 1), (1, 1, 1), 0), "162"),
        (Behaviour(product, max_threads=256), Launch((512, 1, 1), (1, 1, 1), 0), "256"),
    ],
)
def test_a_broken_limit_is_named_before_anything_is_launched(rig, behaviour, geometry, reason):
    failure = rig.prepared().failure(behaviour, launch=geometry)
    assert (failure.status, failure.stage) == (Status.LAUNCH_ERROR, Stage.LAUNCH)
    assert reason in failure.reason
    assert not behaviour.launches
    assert "sticky" not in failure.details


def refuse(text: str, kind: str = "LogicError") -> Callable[..., None]:
    def run(memory, *numbers):
        raise Refused(text, kind)

    return run


def test_a_launch_that_the_driver_refuses_leaves_the_device_usable(rig):
    failure = rig.prepared().failure(refuse("too many resources requested for launch", "LaunchError"))
    assert failure.status is Status.LAUNCH_ERROR
    assert failure.reason == "too many resources requested for launch (cuLaunchKernel)"
    assert rig.measure().check.passed


def test_a_launch_that_needs_too_much_memory_is_out_of_memory(rig):
    failure = rig.prepared().failure(refuse("out of memory", "MemoryError"))
    assert failure.status is Status.OUT_OF_MEMORY
    assert failure.details["free_bytes"] > 0


@pytest.mark.parametrize(
    "cause",
    ["an illegal memory access was encountered", "misaligned address", "unspecified launch failure"],
)
def test_a_lost_context_is_a_crash_and_sticky(rig, cause):
    def run(memory, *numbers):
        raise Lost(cause)

    failure = rig.prepared().failure(run)
    assert failure.status is Status.CRASH
    assert failure.details["sticky"] is True
    assert cause in failure.reason


def test_a_missing_kernel_names_those_there_are(rig):
    rig.prepared()
    rig.driver.behaviours["_Z6matmulIfEvPKT_"] = Behaviour(product)
    build = replace(rig.build("_Z6matmulIfEvPKT_"), entry="matmul")
    with pytest.raises(TrialFailed, match="no kernel 'matmul'") as caught:
        rig.cuda.measure(POINT, Launch((8, 8, 1), (2, 2, 1), 0), build, QUICK)
    assert "matmul<…> (_Z6matmulIfEvPKT_)" in caught.value.reason
    assert caught.value.status is Status.BUILD_ERROR


def test_an_image_that_is_no_kernel_fails_alone(rig):
    rig.prepared()
    build = rig.build("matmul")
    build.artifact.write_bytes(b"garbage")
    with pytest.raises(TrialFailed, match="image is invalid"):
        rig.cuda.measure(POINT, Launch((8, 8, 1), (2, 2, 1), 0), build, QUICK)


def test_a_module_that_cannot_be_asked_for_its_kernel_keeps_the_drivers_words(rig):
    rig.prepared()
    build = rig.build("matmul")
    rig.driver.behaviours["matmul"] = Behaviour(product)

    def refuse_function(self, name):
        raise rig.driver.LogicError("cuModuleGetFunction failed: invalid argument")

    module = type("Module", (), {"get_function": refuse_function})
    rig.driver.module_from_buffer = lambda image: module()
    with pytest.raises(TrialFailed, match="invalid argument"):
        rig.cuda.measure(POINT, Launch((8, 8, 1), (2, 2, 1), 0), build, QUICK)


def test_a_build_that_is_gone_is_a_build_error(rig):
    rig.prepared()
    build = rig.build("matmul")
    build.artifact.unlink()
    with pytest.raises(TrialFailed) as caught:
        rig.cuda.measure(POINT, Launch((8, 8, 1), (2, 2, 1), 0), build, QUICK)
    assert caught.value.status is Status.BUILD_ERROR


# --- Memory -------------------------------------------------------------------------------------------


def test_a_problem_beyond_the_memory_fails_before_anything_is_computed_and_a_small_one_passes(rig):
    rig.prepared()
    huge = resolve(gemm_spec(), {"M": 200_000, "N": 200_000, "K": 200_000}, POINT, seed=0)
    with pytest.raises(TrialFailed) as caught:
        rig.cuda.prepare(gemm_spec(), huge)
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert "B of device memory wanted" in caught.value.reason
    assert caught.value.details["wanted_bytes"] > caught.value.details["free_bytes"]
    rig.cuda.prepare(rig.spec, rig.problem)
    assert rig.measure().check.passed


def test_an_allocation_is_tried_again_after_a_collection(rig):
    rig.prepared()
    refused = [rig.driver.MemoryError("cuMemAlloc failed: out of memory")]
    allocate = rig.driver.mem_alloc

    def once_refused(nbytes):
        if refused:
            raise refused.pop()
        return allocate(nbytes)

    rig.driver.mem_alloc = once_refused
    rig.problem = resolve(rig.spec, {"M": 16, "N": 16, "K": 16}, POINT, seed=3)
    rig.cuda.prepare(rig.spec, rig.problem)
    assert not refused
    assert rig.measure().check.passed


def test_an_allocation_that_fails_twice_is_out_of_memory(rig):
    rig.prepared()

    def refused(nbytes):
        raise rig.driver.MemoryError("cuMemAlloc failed: out of memory")

    rig.driver.mem_alloc = refused
    another = resolve(rig.spec, {"M": 16, "N": 16, "K": 16}, POINT, seed=3)
    with pytest.raises(TrialFailed) as caught:
        rig.cuda.prepare(rig.spec, another)
    assert caught.value.status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("float32", np.float32(2.5), ("f", 2.5)),
        ("float64", np.float64(0.1), ("d", 0.1)),
        ("float16", np.float16(1.5), ("H", 0x3E00)),
        ("bfloat16", ml_dtypes.bfloat16(1.5), ("H", 0x3FC0)),
        ("tf32", np.float32(1.0), ("f", 1.0)),
        ("int8", np.int8(-3), ("b", -3)),
        ("int32", np.int32(-7), ("i", -7)),
        ("int64", np.int64(2**40), ("q", 2**40)),
        ("uint32", np.uint32(2**32 - 1), ("I", 2**32 - 1)),
        ("uint64", np.uint64(2**64 - 1), ("Q", 2**64 - 1)),
    ],
)
def test_a_scalar_is_packed_as_declared(name, value, expected):
    letter, number = scalar_format(ResolvedScalar("s", dtype(name), value))
    assert (letter, number) == expected
    assert type(number) in (int, float)


@pytest.mark.parametrize(
    ("name", "output"),
    [("float64", None), ("float16", None), ("bfloat16", None), ("int8", "int32"), ("tf32", None)],
)
def test_every_class_is_filled_poisoned_and_compared(rig, name, output):
    kernel = gemm_spec(dtype=name, output=output)
    storage = kernel.dtype.storage
    result = dtype(output).storage if output else storage

    def run(memory, a, b, c, m, n, k):
        left, right = memory.array(a, (m, k), storage), memory.array(b, (k, n), storage)
        memory.array(c, (m, n), result)[:] = (left.astype(np.float64) @ right.astype(np.float64)).astype(
            result
        )

    rig.prepared(kernel)
    assert rig.measure(run).check.passed
    assert rig.failure(lambda *_: None).details["check"].wrong == 120


def test_unsigned_arrays_are_never_negated(rig):
    kernel = gemm_spec(dtype="uint32")

    def run(memory, a, b, c, m, n, k):
        left, right = memory.array(a, (m, k), np.uint32), memory.array(b, (k, n), np.uint32)
        memory.array(c, (m, n), np.uint32)[:] = left @ right

    assert rig.prepared(kernel).measure(run).check.passed


# --- Other users, faults of the device ----------------------------------------------------------------


def test_a_trial_that_a_stranger_disturbed_is_timed_again(rig):
    rig.nvml = FakeNvml(NvmlReadings(processes=()))
    rig.prepared()
    busy, quiet = NvmlReadings(processes=(4711,)), NvmlReadings(processes=())
    rig.nvml.queue = [quiet, busy, quiet, quiet]
    outcome = rig.measure()
    assert outcome.note == ""
    assert len(rig.nvml.queue) == 1


def test_a_stranger_that_stays_is_noted(rig):
    rig.nvml = FakeNvml(NvmlReadings(processes=()))
    rig.prepared()
    rig.nvml.queue = [NvmlReadings(processes=(4711,))]
    assert rig.measure().note == "timed while others used the GPU: process 4711"


def test_processes_that_were_allowed_at_the_start_are_no_strangers(rig):
    rig.nvml = FakeNvml(NvmlReadings(processes=(4711,)))
    assert rig.prepared(allow_shared=True).measure().note == ""


@pytest.mark.parametrize(
    ("readings", "fault"),
    [(NvmlReadings(ecc_errors=1), "uncorrected ECC error"), (NvmlReadings(xids=(79,)), "Xid 79")],
)
def test_a_fault_of_the_device_stops_the_sweep(rig, readings, fault):
    rig.nvml = FakeNvml(NvmlReadings(ecc_errors=0))
    rig.prepared()
    rig.nvml.queue = [readings]
    with pytest.raises(SetupError, match=fault):
        rig.measure()


def test_a_fault_of_the_device_outweighs_the_failure_it_caused(rig):
    rig.prepared()
    rig.nvml.queue = [NvmlReadings(lost=True)]
    with pytest.raises(SetupError, match="is lost"):
        rig.measure(lambda *_: None)


def test_a_memory_error_that_the_driver_reports_stops_the_sweep(rig):
    with pytest.raises(SetupError, match="ECC"):
        rig.prepared().measure(refuse("uncorrectable ECC error encountered"))


# --- Baselines ----------------------------------------------------------------------------------------


def test_an_unknown_library_is_a_configuration_error(rig):
    with pytest.raises(ConfigError, match="magma") as caught:
        rig.prepared().cuda.baseline("magma", QUICK)
    assert "cublas" in caught.value.hint
