"""Judge a host: what of the five things that a container needs for a GPU is missing, and what a person does about it. Pure.

Each check is one condition of the GpuNode: True, False with a sentence and a way out, or Unknown where the host does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_dra.lifecycle.preflight.facts import HostFacts, Kernel
    from gpu_dra.lifecycle.runtime.cri import RuntimeFacts

KNOWN_BAD: Final = (
    ((570, 124, 6), (570, 158, 1), "pods stay Pending on nodes that mix MIG and whole GPUs; 570.172.08 has it mended"),
)
"""First and last bad version, and what they do. Source: gpu-operator issue 1361."""


class Verdict(StrEnum):
    """`status` of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says."""

    type: str
    verdict: Verdict
    reason: str
    message: str


def check(facts: HostFacts, runtime: RuntimeFacts) -> tuple[Finding, ...]:
    """Every check, in the order in which a person would go."""
    return (*(each(facts) for each in _CHECKS), runtime_uses_cdi(runtime))


def kernel_module(facts: HostFacts) -> Finding:
    """The NVIDIA kernel module is loaded and has every GPU."""
    others = {driver for driver in facts.gpus.values() if driver not in (None, "nvidia")}
    held = ", ".join(sorted(pci for pci, driver in facts.gpus.items() if driver not in (None, "nvidia")))
    if "nouveau" in others:
        return _bad(
            "KernelModule", "Nouveau",
            f"the kernel's own driver nouveau has {held}; write 'blacklist nouveau' and 'options nouveau modeset=0' to "
            "/etc/modprobe.d/nouveau.conf, rebuild the initramfs and reboot",
        )  # fmt: skip
    if others:
        return _bad(
            "KernelModule",
            "OtherDriver",
            f"{held} is bound to {', '.join(sorted(map(str, others)))}, so that no container can use it",
        )
    if facts.module_version is None:
        return _not_loaded(facts)
    unbound = sorted(pci for pci, driver in facts.gpus.items() if driver is None)
    if unbound:
        return _bad("KernelModule", "NotBound", f"the module is loaded and has not taken {', '.join(unbound)}; dmesg says why")
    for first, last, what in KNOWN_BAD:
        if first <= _numbers(facts.module_version) <= last:
            return _bad("KernelModule", "KnownBadVersion", f"driver {facts.module_version}: {what}")
    flavour = {True: ", open modules", False: ", proprietary modules", None: ""}[facts.module_is_open]
    return _good("KernelModule", "Loaded", f"NVIDIA {facts.module_version}{flavour}")


def driver_libraries(facts: HostFacts) -> Finding:
    """User-space libraries are there and of the module's version."""
    if facts.library_trouble:
        return _bad("DriverLibraries", "NotFound", facts.library_trouble)
    if facts.library_version is None or facts.module_version is None:
        return _unknown("DriverLibraries", "VersionUnknown", "module or library does not tell its version")
    if facts.library_version != facts.module_version:
        return _bad(
            "DriverLibraries", "VersionMismatch",
            f"the libraries are {facts.library_version} and the loaded module is {facts.module_version}, so that no container can "
            "use a GPU; reboot, or drain the node and reload the module",
        )  # fmt: skip
    return _good("DriverLibraries", "SameVersion", f"{facts.library_version}, as the module")


def unified_memory(facts: HostFacts) -> Finding:
    """CUDA needs nvidia-uvm."""
    if facts.module_version is None:
        return _unknown("UnifiedMemory", "NoModule", "the NVIDIA module is not loaded")
    if not facts.uvm:
        return _bad(
            "UnifiedMemory", "NotLoaded", "nvidia-uvm is not loaded, without which CUDA does not start; run modprobe nvidia-uvm"
        )
    return _good("UnifiedMemory", "Loaded", "nvidia-uvm")


def next_kernel(facts: HostFacts) -> Finding:
    """The kernel that boots next has the module too."""
    kernel, running = facts.boots_next, facts.running
    if kernel is None or running is None:
        return _unknown("NextKernel", "NotTold", "the host does not say which kernel boots next")
    if kernel.release == running.release:
        return _good("NextKernel", "SameKernel", f"{kernel.release} runs and boots next")
    if kernel.has_nvidia_module:
        return _good("NextKernel", "ModuleReady", f"{kernel.release} boots next and has the module")
    if not facts.driver_is_hosts:
        if kernel.has_headers:
            return _good(
                "NextKernel", "HeadersReady", f"{kernel.release} boots next; its headers are there for the driver container"
            )
        return _bad("NextKernel", "NoHeaders", f"{kernel.release} boots next and {_headers_advice(facts, kernel)}")
    way_out = f"run dkms autoinstall -k {kernel.release}" if kernel.has_headers else _headers_advice(facts, kernel)
    return _bad(
        "NextKernel",
        "NoModule",
        f"after a reboot into {kernel.release} this node has no GPUs: no nvidia module is built for it; {way_out}",
    )


def fabric_manager(facts: HostFacts) -> Finding:
    """NVSwitch systems need it: without it CUDA fails with error 802 while nvidia-smi looks well."""
    if not facts.nvswitches:
        return _good("FabricManager", "NotNeeded", "no NVSwitch is here")
    if not facts.fabric_manager_runs:
        return _bad(
            "FabricManager", "NotRunning",
            f"{facts.nvswitches} NVSwitches are here and nv-fabricmanager does not run, so that CUDA fails with error 802; "
            f"install nvidia-fabricmanager {facts.module_version or 'of the driver’s version'} and start it",
        )  # fmt: skip
    return _good("FabricManager", "Running", f"nv-fabricmanager runs for {facts.nvswitches} NVSwitches")


def runtime_uses_cdi(runtime: RuntimeFacts) -> Finding:
    """The container runtime injects CDI devices."""
    if runtime.trouble:
        return _unknown("RuntimeCdi", "NotTold", runtime.trouble)
    who = f"{runtime.name} {runtime.version}"
    if runtime.cdi is False:
        return _bad(
            "RuntimeCdi", "Off",
            f"{who} has CDI off, so that claims give containers nothing; set enable_cdi = true in its CRI plugin's configuration "
            "and restart it",
        )  # fmt: skip
    if runtime.cdi is None:
        return _unknown("RuntimeCdi", "NotTold", f"{who} does not say whether CDI is on")
    return _good("RuntimeCdi", "On", f"{who} reads CDI files from {', '.join(runtime.directories) or 'its default directories'}")


_CHECKS: Final[tuple[Callable[[HostFacts], Finding], ...]] = (
    kernel_module,
    driver_libraries,
    unified_memory,
    next_kernel,
    fabric_manager,
)


def _not_loaded(facts: HostFacts) -> Finding:
    kernel = facts.running
    if kernel is not None and kernel.has_nvidia_module:
        signed = " (Secure Boot is on: 'Key was rejected' there means that the module is not signed)" if facts.secure_boot else ""
        return _bad(
            "KernelModule",
            "NotLoaded",
            f"the module is installed for {kernel.release} and not loaded; run modprobe nvidia, and see dmesg{signed}",
        )
    if not facts.driver_is_hosts:
        return _bad(
            "KernelModule",
            "NotLoaded",
            "the driver container has not loaded the module; kubectl logs of its pod on this node says why",
        )
    where = f" for the running kernel {kernel.release}" if kernel else ""
    advice = "install the NVIDIA driver"
    if kernel is not None and not kernel.has_headers:
        advice += f"; to build it, {_headers_advice(facts, kernel)}"
    if facts.secure_boot:
        advice += "; Secure Boot is on, so take your distribution's signed modules or enrol a key for DKMS"
    return _bad("KernelModule", "NotInstalled", f"there is no nvidia module{where}; {advice}")


def _headers_advice(facts: HostFacts, kernel: Kernel) -> str:
    package = "kernel-devel" if facts.os_id in {"rhel", "centos", "rocky", "almalinux", "fedora", "ol", "amzn"} else "linux-headers"
    return f"its headers are missing: install {package}-{kernel.release}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _good(kind: str, reason: str, message: str) -> Finding:
    return Finding(type=kind, verdict=Verdict.TRUE, reason=reason, message=message)


def _bad(kind: str, reason: str, message: str) -> Finding:
    return Finding(type=kind, verdict=Verdict.FALSE, reason=reason, message=message)


def _unknown(kind: str, reason: str, message: str) -> Finding:
    return Finding(type=kind, verdict=Verdict.UNKNOWN, reason=reason, message=message)
