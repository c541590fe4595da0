"""Flags that say where the host's trees are, the same for every role that looks at the host, and those of logging."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpu_dra.cli.flags import absolute, add_flag
from gpu_dra.core import logs
from gpu_dra.hardware.host import HostPaths


def add_host_flags(parser: argparse.ArgumentParser) -> None:
    """Driver root, `/proc`, `/sys`, `/dev`."""
    add_flag(
        parser, "--nvidia-driver-root", env="NVIDIA_DRIVER_ROOT", default="/", type=absolute,
        help="the driver's installation as the host sees it: /, /run/nvidia/driver, /home/kubernetes/bin/nvidia",
    )  # fmt: skip
    add_flag(
        parser, "--container-driver-root", env="DRIVER_ROOT_CTR_PATH", default="", type=absolute_if_given,
        help="the same directory as this process sees it; empty: the same path",
    )  # fmt: skip
    add_flag(parser, "--proc-root", env="GPU_DRA_PROC_ROOT", default="/proc", type=absolute, help="the host's /proc")
    add_flag(parser, "--sys-root", env="GPU_DRA_SYS_ROOT", default="/sys", type=absolute, help="the host's /sys")
    add_flag(parser, "--dev-root", env="GPU_DRA_DEV_ROOT", default="/dev", type=absolute, help="the host's /dev")


def add_plugins_directory(parser: argparse.ArgumentParser) -> None:
    """Where plugin and agent meet."""
    add_flag(
        parser, "--kubelet-plugins-directory-path", env="KUBELET_PLUGINS_DIRECTORY_PATH", default="/var/lib/kubelet/plugins",
        type=absolute, help="the kubelet's plugins directory, by the same path on the host",
    )  # fmt: skip


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """How the log looks."""
    add_flag(parser, "--log-format", env="LOG_FORMAT", default="text", choices=("text", "json"), help="how log lines look")
    add_flag(
        parser, "--log-level", env="LOG_LEVEL", default="info", choices=("debug", "info", "warning", "error"),
        help="the least level that is written",
    )  # fmt: skip


def configure_logs(options: argparse.Namespace) -> None:
    """As the flags say."""
    logs.configure(log_format=options.log_format, level=options.log_level)


def host_paths(options: argparse.Namespace, *, cdi_hook: Path | None = None) -> HostPaths:
    """What `add_host_flags` says."""
    return HostPaths(
        proc=options.proc_root,
        sys=options.sys_root,
        dev=options.dev_root,
        driver_root=options.container_driver_root or options.nvidia_driver_root,
        host_driver_root=options.nvidia_driver_root,
        cdi_hook=cdi_hook,
    )


def absolute_if_given(text: str) -> Path | None:
    """A flag's type: an absolute path, or nothing."""
    return absolute(text) if text else None
