"""What is found below a driver root, and what is passed over."""

import os
import re

import pytest

from gpu_dra.cdi.driver_files import scan
from gpu_dra.core.errors import NotReady
from hack.testbed.elf_stub import AARCH64, X86_64
from tests.unit.cdi.host_tree import OURS, UBUNTU, VERSION, HostTree

FOREIGN = AARCH64 if OURS is X86_64 else X86_64


def container_paths(files):
    return {file.container_path for file in files}


def links(found):
    return {link.path.removeprefix(f"/{UBUNTU}/"): link.target for link in found.links}


def test_every_library_of_the_driver_version_is_found_and_no_other(tree):
    tree.library("libcuda.so.570.10.01", "libcuda.so.1")
    tree.library("libc.so.6", "libc.so.6")
    found = container_paths(scan(tree.host(), VERSION).libraries)
    assert f"/{UBUNTU}/libcuda.so.{VERSION}" in found
    assert f"/{UBUNTU}/vdpau/libvdpau_nvidia.so.{VERSION}" in found
    assert not [path for path in found if "570" in path or "libc.so" in path]


def test_libraries_with_a_version_of_their_own_come_along(tree):
    found = container_paths(scan(tree.host(), VERSION).libraries)
    assert {f"/{UBUNTU}/libnvidia-egl-gbm.so.1.1.2", f"/{UBUNTU}/libnvidia-nvvm70.so.4"} <= found


def test_libraries_are_linked_under_their_soname_and_the_names_that_programs_load(tree):
    found = links(scan(tree.host(), VERSION))
    assert found["libcuda.so.1"] == f"libcuda.so.{VERSION}"
    assert found["libnvidia-nvvm.so.4"] == f"libnvidia-nvvm.so.{VERSION}"
    assert found["libcuda.so"] == "libcuda.so.1"
    assert found["libGLX_indirect.so.0"] == "libGLX_nvidia.so.0"
    assert found["libnvidia-opticalflow.so"] == "libnvidia-opticalflow.so.1"
    assert found["gbm/nvidia-drm_gbm.so"] == "../libnvidia-allocator.so.1"


def test_an_unversioned_name_that_the_driver_offers_is_offered_too(tree):
    tree.libraries.joinpath("libnvidia-ml.so").symlink_to(f"libnvidia-ml.so.{VERSION}")
    assert links(scan(tree.host(), VERSION))["libnvidia-ml.so"] == "libnvidia-ml.so.1"


def test_the_newer_of_two_libraries_with_one_soname_gets_the_link(tree):
    tree.library("libnvidia-egl-gbm.so.1.1.10", "libnvidia-egl-gbm.so.1")
    assert links(scan(tree.host(), VERSION))["libnvidia-egl-gbm.so.1"] == "libnvidia-egl-gbm.so.1.1.10"


def test_a_version_of_two_parts_is_a_version(tmp_path):
    """Driver 580.142 has no third part; its files do not either."""
    tree = HostTree(tmp_path).install_driver(version="580.142")
    assert f"/{UBUNTU}/libcuda.so.580.142" in container_paths(scan(tree.host(), "580.142").libraries)


def test_programs_firmware_and_configuration_go_to_their_standard_places(tree):
    assert container_paths(scan(tree.host(), VERSION).others) == {
        "/usr/bin/nvidia-smi",
        "/usr/bin/nvidia-cuda-mps-control",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/etc/vulkan/icd.d/nvidia_icd.json",
        "/etc/OpenCL/vendors/nvidia.icd",
    }


def test_x_modules_are_found_with_the_name_the_server_loads(tree):
    tree.write(f"{UBUNTU}/nvidia/xorg/nvidia_drv.so")
    tree.write(f"{UBUNTU}/nvidia/xorg/libglxserver_nvidia.so.{VERSION}")
    found = scan(tree.host(), VERSION)
    assert f"/{UBUNTU}/nvidia/xorg/nvidia_drv.so" in container_paths(found.others)
    assert links(found)["nvidia/xorg/libglxserver_nvidia.so"] == f"libglxserver_nvidia.so.{VERSION}"


def test_a_driver_container_is_named_as_the_runtime_sees_it(tmp_path):
    """The plugin sees /driver-root, the runtime /run/nvidia/driver, the container neither."""
    tree = HostTree(tmp_path, driver_root="driver-root").install_driver()
    found = scan(tree.host(host_driver_root="/run/nvidia/driver"), VERSION)
    libcuda = next(file for file in found.libraries if "libcuda" in file.container_path)
    assert libcuda.seen_at == f"{tree.root}/{UBUNTU}/libcuda.so.{VERSION}"
    assert libcuda.host_path == f"/run/nvidia/driver/{UBUNTU}/libcuda.so.{VERSION}"
    assert libcuda.container_path == f"/{UBUNTU}/libcuda.so.{VERSION}"


def test_the_layout_of_container_optimized_os_is_understood(tmp_path):
    tree = HostTree(tmp_path, driver_root="nvidia", libraries="lib64")
    tree.library(f"libcuda.so.{VERSION}", "libcuda.so.1")
    tree.write("bin/nvidia-smi")
    found = scan(tree.host(host_driver_root="/home/kubernetes/bin/nvidia"), VERSION)
    assert {file.host_path: file.container_path for file in found.files} == {
        f"/home/kubernetes/bin/nvidia/lib64/libcuda.so.{VERSION}": f"/lib64/libcuda.so.{VERSION}",
        "/home/kubernetes/bin/nvidia/bin/nvidia-smi": "/bin/nvidia-smi",
    }


def test_absolute_links_of_the_root_are_followed_inside_it(tmp_path):
    """Debian keeps the files in nvidia/current and links to them through /etc/alternatives."""
    tree = HostTree(tmp_path, libraries=f"{UBUNTU}/nvidia/current").install_driver()
    alternatives = tree.root / "etc/alternatives"
    alternatives.mkdir(parents=True)
    (tree.root / "usr/bin/nvidia-smi").rename(tree.root / "usr/bin/nvidia-smi.real")
    (tree.root / "usr/bin/nvidia-smi").symlink_to("/etc/alternatives/nvidia-smi")
    (alternatives / "nvidia-smi").symlink_to("/usr/bin/nvidia-smi.real")
    found = scan(tree.host(host_driver_root="/run/nvidia/driver"), VERSION)
    programs = {file.container_path: file.host_path for file in found.others}
    assert programs["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi.real"


def test_lib_and_usr_lib_that_are_one_directory_count_once(tree):
    (tree.root / "lib" / OURS.triplet).symlink_to(f"/usr/lib/{OURS.triplet}")
    found = [file.host_path for file in scan(tree.host(), VERSION).libraries]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("kind", ["directory", "dangling-link", "other-architecture", "no-elf-file"])
def test_what_only_has_the_name_of_a_library_is_passed_over(tree, kind):
    path = tree.libraries / f"libnvidia-encode.so.{VERSION}"
    match kind:
        case "directory":
            path.mkdir()
        case "dangling-link":
            path.symlink_to("gone.so")
        case "other-architecture":
            tree.library(path.name, "libnvidia-encode.so.1", arch=FOREIGN)
        case _:
            path.write_bytes(b"INPUT(libcuda.so)")
    assert "libnvidia-encode" not in "".join(container_paths(scan(tree.host(), VERSION).libraries))


def test_a_32_bit_copy_does_not_hide_the_native_library(tree):
    """usr/lib64 is looked at first; what is there for another machine must not stand for the one further on."""
    tree.library(f"libcuda.so.{VERSION}", "libcuda.so.1", directory=tree.root / "usr/lib64", arch=FOREIGN)
    assert f"/{UBUNTU}/libcuda.so.{VERSION}" in container_paths(scan(tree.host(), VERSION).libraries)


def test_missing_firmware_is_no_obstacle(tree):
    """The kernel has loaded it already; containers only look at it."""
    (tree.root / f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin").unlink()
    assert not [file for file in scan(tree.host(), VERSION).others if "firmware" in file.container_path]


def test_firmware_of_the_kernels_own_search_path_comes_first(tree):
    setting = tree.directory / "sys/module/firmware_class/parameters/path"
    setting.parent.mkdir(parents=True)
    setting.write_text("/opt/firmware\n")
    tree.write(f"opt/firmware/nvidia/{VERSION}/gsp_tu10x.bin")
    firmware = [file for file in scan(tree.host(), VERSION).others if "firmware" in file.container_path]
    assert [(file.host_path, file.container_path) for file in firmware] == [
        (f"/opt/firmware/nvidia/{VERSION}/gsp_tu10x.bin", f"/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin")
    ]


def test_a_program_that_cannot_be_run_is_none(tree):
    (tree.root / "usr/bin/nvidia-smi").chmod(0o644)
    assert "/usr/bin/nvidia-smi" not in container_paths(scan(tree.host(), VERSION).others)


def test_a_driver_of_another_version_is_waited_for_by_name(tree):
    """An upgrade in progress: the module is new, the files are still old. Mounting those would give CUDA error 803."""
    with pytest.raises(
        NotReady, match=re.escape(f"libcuda.so.590.1.1 is not below the driver root {tree.root} (only {VERSION} is there)")
    ):
        scan(tree.host(), "590.1.1")


def test_an_empty_driver_root_is_waited_for_with_its_path(tmp_path):
    tree = HostTree(tmp_path)
    with pytest.raises(NotReady, match=re.escape(f"{tree.root} (looked in")):
        scan(tree.host(), VERSION)


def test_two_scans_of_one_tree_are_equal(tree):
    """The order of a directory listing must not show in a CDI file."""
    first = scan(tree.host(), VERSION)
    for path in sorted(tree.libraries.glob("*.so.*")):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    assert scan(tree.host(), VERSION) == first


def test_the_answer_names_the_directories_that_make_it_old(tree):
    watched = scan(tree.host(), VERSION).watched
    assert {str(tree.root), str(tree.libraries), str(tree.root / "usr/bin"), str(tree.root / "etc")} <= set(watched)
    assert all(os.path.isdir(path) for path in watched)  # noqa: PTH112
