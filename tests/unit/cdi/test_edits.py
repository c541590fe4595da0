"""What a container gets, with and without the hook program."""

import pytest

from gpu_dra.cdi.driver_files import scan
from gpu_dra.cdi.edits import common_edits, device_edits, missing_without_hook
from gpu_dra.hardware.devnodes import NodeSpec
from gpu_dra.model.pci import PciAddress
from tests.unit.cdi.host_tree import UBUNTU, VERSION

PCI = PciAddress.parse("00000000:65:00.0")
CONTROL = (NodeSpec(path="/dev/nvidiactl", major=195, minor=255, file_mode=0o666),)
GPU = NodeSpec(path="/dev/nvidia0", major=195, minor=0, file_mode=0o666)
CARD = NodeSpec(path="/dev/dri/card1", major=226, minor=1, file_mode=0o660, gid=44)
RENDER = NodeSpec(path="/dev/dri/renderD129", major=226, minor=129, file_mode=0o660, gid=109)
HOOK = "/usr/bin/nvidia-cdi-hook"


@pytest.fixture
def files(tree):
    return scan(tree.host(), VERSION)


def common(files, hook=HOOK):
    return common_edits(files, nodes=CONTROL, sockets=(), hook=hook)


def by_place(edits):
    return {mount.container_path: mount.host_path for mount in edits.mounts}


def test_older_wrappers_are_told_to_add_nothing(files):
    """An image that sets NVIDIA_VISIBLE_DEVICES=all would else get every GPU of the node."""
    assert "NVIDIA_VISIBLE_DEVICES=void" in common(files).env
    assert "NVIDIA_VISIBLE_DEVICES=void" in common(files, hook=None).env


def test_hooks_run_in_the_order_in_which_they_build_on_each_other(files):
    hooks = common(files).hooks
    assert [hook.args[1] for hook in hooks] == [
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
    ]
    assert {(hook.hook_name, hook.path, hook.args[0]) for hook in hooks} == {("createContainer", HOOK, "nvidia-cdi-hook")}


def test_hooks_are_told_links_version_and_loader_directories(files):
    links, compat, cache, _ = common(files).hooks
    assert ("--link", f"libcuda.so.1::/{UBUNTU}/libcuda.so") in zip(links.args, links.args[1:], strict=False)
    assert compat.args[2:] == (f"--host-driver-version={VERSION}",)
    assert cache.args[2:] == ("--folder", f"/{UBUNTU}")


def test_with_hooks_each_file_is_mounted_once_at_its_own_place(files):
    edits = common(files)
    assert by_place(edits) == {file.container_path: file.host_path for file in files.files}
    assert f"NVIDIA_CTK_LIBCUDA_DIR=/{UBUNTU}" in edits.env


def test_driver_files_are_read_only_for_the_container(files):
    assert {mount.options for mount in common(files).mounts} == {("ro", "nosuid", "nodev", "rbind", "rprivate")}


def test_without_hooks_a_library_stands_under_every_name_it_is_loaded_by(files):
    """There is nobody to make links or a loader cache in the container."""
    edits = common(files, hook=None)
    real = f"/{UBUNTU}/libcuda.so.{VERSION}"
    names = ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}")
    assert [by_place(edits)[f"/usr/local/nvidia/lib64/{name}"] for name in names] == [real] * 3
    assert edits.hooks == ()


def test_without_hooks_the_library_path_leads_to_nothing_but_the_driver(files):
    """A system directory in it would put the image's system libraries before those that its programs bring along."""
    path = next(entry for entry in common(files, hook=None).env if entry.startswith("LD_LIBRARY_PATH="))
    assert path.startswith("LD_LIBRARY_PATH=/usr/local/nvidia/lib64:")
    assert UBUNTU not in path


def test_without_hooks_plugins_stay_where_they_are_loaded_from(files):
    places = by_place(common(files, hook=None))
    assert f"/{UBUNTU}/vdpau/libvdpau_nvidia.so.1" in places
    assert places[f"/{UBUNTU}/gbm/nvidia-drm_gbm.so"] == f"/{UBUNTU}/libnvidia-allocator.so.{VERSION}"


def test_what_the_hookless_form_lacks_is_said_with_the_way_out():
    sentences = missing_without_hook((HOOK,), drm=False)
    assert HOOK in sentences[0]
    assert "--nvidia-cdi-hook-path" in sentences[0]
    assert any("forward compatibility" in sentence for sentence in sentences)
    assert len(missing_without_hook((HOOK,), drm=True)) == len(sentences) + 1


def test_a_gpu_open_to_all_needs_no_group():
    edits = device_edits((GPU,), pci=PCI, hook=HOOK)
    assert edits.additional_gids == ()
    assert edits.hooks == ()
    assert edits.device_nodes[0].gid is None


def test_the_groups_of_restricted_nodes_are_given_to_the_container():
    """A process that is not root could not open its render node otherwise."""
    edits = device_edits((GPU, CARD, RENDER), pci=PCI, hook=HOOK)
    assert edits.additional_gids == (44, 109)
    assert [node.file_mode for node in edits.device_nodes] == [0o666, 0o660, 0o660]


def test_graphics_nodes_get_their_names_by_pci_address():
    """In the spelling of sysfs and udev: four digits of domain, lower case."""
    (hook,) = device_edits((GPU, CARD, RENDER), pci=PCI, hook=HOOK).hooks
    assert hook.args[2:] == (
        "--link",
        "../card1::/dev/dri/by-path/pci-0000:65:00.0-card",
        "--link",
        "../renderD129::/dev/dri/by-path/pci-0000:65:00.0-render",
    )


def test_nodes_carry_their_numbers_and_never_an_owner():
    """With type and numbers no runtime has to find the node, and none loses it over a reload of systemd."""
    (node,) = device_edits((GPU,), pci=PCI, hook=None).device_nodes
    assert (node.type, node.major, node.minor, node.permissions, node.host_path) == ("c", 195, 0, "rwm", None)
