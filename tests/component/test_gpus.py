"""GPUs, NVML and drivers that fail, hang, come late, change or go: what is published, and that one never hides another."""

from __future__ import annotations

import re
import signal
import time

import pytest

from tests.component.plugin import free_endpoint, get, prepared
from tests.support.fake_kubelet import watch_health

NEEDED = [
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetName",
]
"""What identifies a GPU; without it there is nothing to offer."""
OPTIONAL = [
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetFieldValues",
]
UNKNOWN_ERROR, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND = 999, 3, 4, 13
"""`nvmlReturn_t`."""
VERSION = re.compile(r"\d{3}\.\d+\.\d+")
UNHEALTHY, HEALTHY = 2, 1


@pytest.mark.parametrize("function", NEEDED)
async def test_a_gpu_that_cannot_be_identified_leaves_the_others_published(world, function):
    world.host.mock.fault(function, gpu=3, error=UNKNOWN_ERROR)
    plugin = await world.registered()
    devices = await world.until("the devices", world.devices)
    assert sorted(devices) == [f"gpu-{minor}" for minor in range(8) if minor != 3]
    assert await prepared(plugin, await world.claims.create("gpu-4")) == ["gpu-4"]


@pytest.mark.parametrize("error", [UNKNOWN_ERROR, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND])
async def test_no_optional_fact_is_needed_to_offer_a_gpu(world, error):
    for function in OPTIONAL:
        world.host.mock.fault(function, gpu=3, error=error)
    plugin = await world.registered()
    devices = await world.until("the devices", world.devices)
    assert len(devices) == 8
    assert "architecture" in devices["gpu-4"]["attributes"]
    assert "architecture" not in devices["gpu-3"]["attributes"]
    assert await prepared(plugin, await world.claims.create("gpu-3")) == ["gpu-3"]


async def test_a_lost_gpu_is_tainted_and_unhealthy_and_heals(world, plugin):
    world.host.mock.lose(5)
    await world.until("the taint", lambda: is_tainted(world, "gpu-5"))
    await reported(plugin, gpu_5=UNHEALTHY, gpu_4=HEALTHY)
    world.host.mock.restore(5)
    await world.until("no taint", lambda: is_clean(world, "gpu-5"), within=40)
    await reported(plugin, gpu_5=HEALTHY)


async def test_a_gpu_whose_call_hangs_is_set_aside_while_the_others_are_served(world):
    """Its deadline is 10 s; nothing else waits for it."""
    endpoint = free_endpoint()
    plugin = await world.registered("--http-endpoint", endpoint)
    await world.until("the slices", world.devices)
    world.host.mock.fault("nvmlDeviceGetFieldValues", gpu=5, hang=True)
    begun = time.monotonic()
    assert await prepared(plugin, await world.claims.create("gpu-4")) == ["gpu-4"]
    assert (await get(endpoint, "/healthz"))[0] == 200
    assert time.monotonic() - begun < 2
    await world.until("the taint", lambda: is_tainted(world, "gpu-5"), within=30)
    await reported(plugin, gpu_5=UNHEALTHY, gpu_4=HEALTHY)
    world.host.mock.clear_faults()
    await world.until("no taint", lambda: is_clean(world, "gpu-5"), within=30)


async def test_sigterm_ends_it_while_nvml_hangs(world, plugin):
    world.host.mock.fault("*", hang=True)
    world.processes[-1].send_signal(signal.SIGTERM)
    assert await world.ended() == 0


async def test_the_kubelet_is_answered_from_memory_while_nvml_hangs(world):
    """The fake kubelet gives GetInfo one second, as the real one."""
    world.host.mock.fault("nvmlDeviceGetUUID", hang=True)
    plugin = await world.registered()
    assert plugin.info.name == "gpu.nvidia.com"


async def test_a_driver_that_comes_later_is_noticed_without_a_restart(world):
    endpoint = free_endpoint()
    world.host.mock.driver_loaded(loaded=False)
    await world.registered("--http-endpoint", endpoint)
    await world.until("the reason", lambda: ready_says(endpoint, "kernel driver is not loaded"))
    world.host.mock.driver_loaded(loaded=True)
    await world.until("the devices", world.devices, within=20)
    await world.until("readiness", lambda: ready_says(endpoint, "ok"))


async def test_a_library_that_is_not_there_yet_is_told_with_the_places_looked_at(world):
    endpoint = free_endpoint()
    library = world.host.tree.library_directory / "libnvidia-ml.so.1"
    hidden = library.rename(library.with_name("hidden"))
    library.mkdir()
    await world.registered("--http-endpoint", endpoint)
    await world.until("the reason", lambda: ready_says(endpoint, f"{library} (not a file)"))
    library.rmdir()
    hidden.rename(library)
    await world.until("the devices", world.devices, within=20)


async def test_a_library_that_does_not_match_the_kernel_module_is_told_with_both_versions(world):
    """A package upgrade without a reboot."""
    endpoint = free_endpoint()
    library, module = world.host.tree.driver_version, "590.44.01"
    set_kernel_module(world, module)
    await world.registered("--http-endpoint", endpoint)
    await world.until("the reason", lambda: ready_says(endpoint, f"the kernel module is {module}"))
    assert f"libnvidia-ml.so.{library}" in (await get(endpoint, "/readyz"))[1]
    set_kernel_module(world, library)
    await world.until("the devices", world.devices, within=20)


async def test_a_partition_made_by_hand_takes_the_whole_gpus_place_and_gives_it_back(world, plugin):
    world.host.mock.mig_mode(2, enabled=True)
    world.host.mock.partition(2, 9, start=4)
    await world.until("the partition", lambda: offers(world, "gpu-2-mig-3g40gb-9-4", instead_of="gpu-2"))
    (instance,) = world.host.mock.show()["gpus"][2]["gpu_instances"]
    world.host.mock.unpartition(2, instance["id"])
    world.host.mock.mig_mode(2, enabled=False)
    await world.until("the whole GPU", lambda: offers(world, "gpu-2", instead_of="gpu-2-mig-3g40gb-9-4"))


async def test_a_gpu_in_mig_mode_without_a_partition_offers_nothing_and_harms_nobody(world):
    world.host.mock.mig_mode(2, enabled=True)
    await world.registered()
    devices = await world.until("the devices", world.devices)
    assert sorted(devices) == [f"gpu-{minor}" for minor in range(8) if minor != 2]


def set_kernel_module(world, version):
    shown = world.host.tree.nvidia_proc / "version"
    shown.write_text(VERSION.sub(version, shown.read_text(), count=1))
    world.host.mock.kernel_version(version)


async def ready_says(endpoint, words):
    return words in (await get(endpoint, "/readyz"))[1]


async def is_tainted(world, device):
    return bool((await world.devices())[device].get("taints"))


async def is_clean(world, device):
    return not await is_tainted(world, device)


async def offers(world, device, *, instead_of):
    devices = await world.devices()
    return device in devices and instead_of not in devices


async def reported(plugin, **health):
    """Read the health stream until it says so of the devices."""
    wanted = {name.replace("_", "-"): state for name, state in health.items()}
    async for report in watch_health(plugin):
        if all(report[name][0] == state for name, state in wanted.items()):
            return
    raise AssertionError(f"the stream ended without {wanted}")
