"""Which classes each board and partition belongs to, written by hand from what people ask for and not from the table of classes."""

from typing import Any

WHOLE = {"gpu.nvidia.com", "gpu-monitoring"}
"""Of every GPU that is offered whole."""
GPU_SIZES = (16, 24, 32, 40, 48, 80, 96, 141, 180, 192, 288)
MIG_SIZES = (5, 6, 10, 12, 18, 20, 24, 35, 40, 48, 70, 80, 96, 141, 180, 278)

GPUS = {
    "NVIDIA A10": ("gpu-a10", 24),
    "NVIDIA A100-SXM4-40GB": ("gpu-a100", 40),
    "NVIDIA A30": ("gpu-a30", 24),
    "NVIDIA B200": ("gpu-b200", 192),
    "NVIDIA GB200": ("gpu-gb200", 192),
    "NVIDIA GB300": ("gpu-gb300", 288),
    "NVIDIA GH200 480GB": ("gpu-gh200", 96),
    "NVIDIA H100 80GB HBM3": ("gpu-h100", 80),
    "NVIDIA H200": ("gpu-h200", 141),
    "NVIDIA L4": ("gpu-l4", 24),
    "NVIDIA L40S": ("gpu-l40s", 48),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": ("gpu-rtx-pro-6000", 96),
    "Tesla T4": ("gpu-t4", 16),
}
"""Boards of the machine profiles: class of the model, and the largest memory class."""

PARTITIONS = {
    "NVIDIA A100-SXM4-40GB": {"5gb": 5, "10gb": 10, "20gb": 20, "40gb": 40},
    "NVIDIA A30": {"6gb": 6, "12gb": 12, "24gb": 24},
    "NVIDIA B200": {"23gb": 24, "45gb": 48, "90gb": 96, "180gb": 180},
    "NVIDIA GB200": {"23gb": 24, "47gb": 48, "93gb": 96, "186gb": 180},
    "NVIDIA GB300": {"35gb": 35, "70gb": 70, "139gb": 141, "278gb": 278},
    "NVIDIA GH200 480GB": {"12gb": 12, "24gb": 24, "48gb": 48, "96gb": 96},
    "NVIDIA H100 80GB HBM3": {"10gb": 10, "20gb": 20, "40gb": 40, "80gb": 80},
    "NVIDIA H200": {"18gb": 18, "35gb": 35, "71gb": 70, "141gb": 141},
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": {"24gb": 24, "48gb": 48, "96gb": 96},
}
"""Largest memory class of a partition by board and by the size in the name of its profile."""

NAMES = {
    "gpu-a2": ("NVIDIA A2",),
    "gpu-a10": ("NVIDIA A10",),
    "gpu-a16": ("NVIDIA A16",),
    "gpu-a30": ("NVIDIA A30",),
    "gpu-a40": ("NVIDIA A40",),
    "gpu-a100": ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "A100-SXM4-40GB"),
    "gpu-a800": ("NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe"),
    "gpu-b200": ("NVIDIA B200",),
    "gpu-b300": ("NVIDIA B300 SXM6 AC",),
    "gpu-gb200": ("NVIDIA GB200",),
    "gpu-gb300": ("NVIDIA GB300",),
    "gpu-gh200": ("NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e"),
    "gpu-h20": ("NVIDIA H20",),
    "gpu-h100": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"),
    "gpu-h200": ("NVIDIA H200", "NVIDIA H200 NVL"),
    "gpu-h800": ("NVIDIA H800", "NVIDIA H800 PCIe"),
    "gpu-l4": ("NVIDIA L4",),
    "gpu-l20": ("NVIDIA L20",),
    "gpu-l40": ("NVIDIA L40",),
    "gpu-l40s": ("NVIDIA L40S",),
    "gpu-rtx-a6000": ("NVIDIA RTX A6000",),
    "gpu-rtx-pro-6000": (
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    ),
    "gpu-t4": ("Tesla T4", "NVIDIA T4"),
    "gpu-v100": ("Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB"),
}
"""Product names as NVML prints them, by the one class of a model they belong to."""

NO_MODEL = (
    "NVIDIA T400 4GB",
    "NVIDIA T4G",
    "NVIDIA A10G",
    "NVIDIA A100X",
    "NVIDIA RTX A2000",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA RTX PRO 6000D",
    "NVIDIA RTX PRO 4500 Blackwell",
    "NVIDIA L400",
    "nvidia h100 80gb hbm3",
    "Quadro RTX 6000",
    "NVIDIA",
    "",
    "H",
)
"""Product names near those of the classes, and worse, that are in no class of a model."""


def classes_of(device: dict[str, Any]) -> set[str]:
    """The classes of a device that the product made from a machine profile."""
    attributes = {name: value.get("string", "") for name, value in device["attributes"].items()}
    if attributes["type"] == "gpu":
        model, largest = GPUS[attributes["productName"]]
        return {*WHOLE, model, *(f"gpu-mem-{size}" for size in GPU_SIZES if size <= largest)}
    slices, rest = attributes["profile"].split("g.", 1)
    largest = PARTITIONS[attributes["productName"]][rest.split("+")[0].removesuffix("-me")]
    return {"mig.nvidia.com", f"mig-{slices}g", *(f"mig-mem-{size}" for size in MIG_SIZES if size <= largest)}
