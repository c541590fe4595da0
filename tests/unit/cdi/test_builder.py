"""From devices to a spec that holds, and what stands in its way."""

import re
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gpu_dra.cdi.builder import CdiBuilder, ClaimDevice
from gpu_dra.core.errors import Broken, NotReady, Refused
from tests.unit.cdi.host_tree import CAPS_MAJOR, UBUNTU, VERSION, HostTree, gpu, mig_device, partitioned_gpu

UID = "0f7d3c1e-5b0a-4b53-9a5e-2f1f5f6b7a10"


def whole(minor=0):
    return ClaimDevice(name=f"gpu-{minor}", gpu=gpu(minor))


def build(tree, *devices, builder=None, **host):
    return (builder or CdiBuilder(tree.host(**host))).build(UID, devices or (whole(),), driver_version=VERSION)


def nodes(edits):
    return {node.path: (node.major, node.minor, node.file_mode) for node in edits.device_nodes}


def test_a_gpu_is_asked_for_by_the_claims_uid_and_its_name(hooked):
    built = build(hooked)
    assert built.spec.kind == "k8s.gpu.nvidia.com/claim"
    assert built.cdi_ids == {"gpu-0": (f"k8s.gpu.nvidia.com/claim={UID}-gpu-0",)}
    assert built.missing == ()


def test_what_all_gpus_share_is_said_once_and_each_device_has_its_own_nodes(hooked):
    """A container that asks for one of two requests must see that GPU only."""
    spec = build(hooked, whole(0), whole(3)).spec
    assert nodes(spec.edits) == {
        "/dev/nvidiactl": (195, 255, 0o666),
        "/dev/nvidia-modeset": (195, 254, 0o666),
        "/dev/nvidia-uvm": (510, 0, 0o666),
        "/dev/nvidia-uvm-tools": (510, 1, 0o666),
    }
    assert [nodes(device.edits) for device in spec.devices] == [
        {"/dev/nvidia0": (195, 0, 0o666)},
        {"/dev/nvidia3": (195, 3, 0o666)},
    ]


def test_every_node_of_the_spec_is_named_for_later_checks(hooked):
    assert set(build(hooked).node_paths) == {
        "/dev/nvidiactl",
        "/dev/nvidia-modeset",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia0",
    }


def test_on_a_fresh_boot_every_node_is_made_with_the_right_numbers(hooked):
    """Nothing has asked the driver for its nodes yet; a spec without them would start a pod without its GPU."""
    build(hooked)
    made = (hooked.directory / "dev/nvidia-uvm").stat()
    assert stat.S_ISCHR(made.st_mode)
    assert (made.st_rdev >> 8 & 0xFFF, made.st_rdev & 0xFF) == (510, 0)


def test_a_mig_device_has_its_gpus_node_and_two_capabilities(hooked):
    parent = partitioned_gpu()
    mig = mig_device(parent)
    hooked.mig_capabilities(0, mig, gi=84, ci=85)
    (device,) = build(hooked, ClaimDevice(name=mig.name, gpu=parent, mig=mig)).spec.devices
    assert nodes(device.edits) == {
        "/dev/nvidia0": (195, 0, 0o666),
        "/dev/nvidia-caps/nvidia-cap84": (CAPS_MAJOR, 84, 0o444),
        "/dev/nvidia-caps/nvidia-cap85": (CAPS_MAJOR, 85, 0o444),
    }


@pytest.mark.parametrize(("profile", "graphics"), [("1g.24gb+gfx", True), ("1g.24gb", False), ("1g.10gb+me", False)])
def test_only_a_graphics_profile_brings_graphics_nodes(hooked, profile, graphics):
    parent = partitioned_gpu()
    mig = mig_device(parent, profile=profile)
    hooked.mig_capabilities(0, mig, gi=84, ci=85)
    hooked.drm(parent, card=1, render=128)
    (device,) = build(hooked, ClaimDevice(name=mig.name, gpu=parent, mig=mig)).spec.devices
    assert ("/dev/dri/renderD128" in nodes(device.edits)) is graphics


def test_a_partition_the_driver_no_longer_knows_is_waited_for(hooked):
    parent = partitioned_gpu()
    mig = mig_device(parent)
    with pytest.raises(NotReady, match=re.escape(mig.name)):
        build(hooked, ClaimDevice(name=mig.name, gpu=parent, mig=mig))


def test_graphics_nodes_come_with_their_group(hooked):
    hooked.drm(gpu(), card=0, render=128)
    spec = build(hooked).spec
    assert spec.devices[0].edits.additional_gids == (44,)
    assert b'"cdiVersion": "0.7.0"' in spec.to_json()


def test_nodes_that_the_administrator_restricts_stay_restricted(hooked):
    """NVreg_DeviceFileMode and NVreg_DeviceFileGID hold in containers too."""
    hooked.device_file_policy(mode=0o660, gid=44)
    spec = build(hooked).spec
    assert nodes(spec.devices[0].edits) == {"/dev/nvidia0": (195, 0, 0o660)}
    assert spec.edits.additional_gids == (44,)


def test_a_node_that_may_not_be_made_fails_the_build_and_is_named(hooked):
    hooked.device_file_policy(modify=0)
    with pytest.raises(NotReady, match="/dev/nvidiactl is missing"):
        build(hooked)


def test_a_node_with_another_number_fails_the_build_and_is_named(hooked):
    """After a driver reload uvm may have another major; the old node would open nothing, or something else."""
    hooked.node("nvidia-uvm", 234, 0)
    with pytest.raises(Broken, match=r"/dev/nvidia-uvm .*234:0.*510:0"):
        build(hooked)


def test_a_kernel_module_that_is_not_loaded_fails_the_build_and_is_named(hooked):
    """Without uvm the GPU is seen and CUDA fails: worse than a pod that waits."""
    hooked.load_modules(names=("nvidia",))
    with pytest.raises(NotReady, match="modprobe nvidia-uvm"):
        build(hooked)


def test_no_libraries_fail_the_build(tmp_path):
    with pytest.raises(NotReady, match=f"libcuda.so.{VERSION}"):
        build(HostTree(tmp_path))


def test_a_driver_container_that_is_replaced_is_waited_for_and_then_used(tree):
    """NVIDIA's driver keeps the empty answer for minutes; here the next call sees what is there."""
    builder = CdiBuilder(tree.age().host())
    before = build(tree, builder=builder)
    tree.uninstall_driver()
    with pytest.raises(NotReady):
        build(tree, builder=builder)
    tree.install_driver()
    assert build(tree, builder=builder) == before


def test_a_file_that_vanishes_behind_a_link_is_noticed(tree):
    """The directory with the link did not change, so only a look at the file itself shows it."""
    real = tree.write("opt/nvidia/nvidia-debugdump")
    (tree.root / "usr/bin/nvidia-debugdump").symlink_to("/opt/nvidia/nvidia-debugdump")
    builder = CdiBuilder(tree.age().host())
    spec = build(tree, builder=builder).spec
    real.unlink()
    assert builder.missing_paths(spec) == ("/opt/nvidia/nvidia-debugdump",)
    assert "nvidia-debugdump" not in build(tree, builder=builder).spec.to_json().decode()


def test_missing_paths_names_nodes_and_files_that_are_gone(hooked):
    builder = CdiBuilder(hooked.host())
    spec = build(hooked, builder=builder).spec
    (hooked.directory / "dev/nvidia0").unlink()
    (hooked.root / "usr/bin/nvidia-smi").unlink()
    (hooked.root / "usr/bin/nvidia-cdi-hook").unlink()
    assert builder.missing_paths(spec) == ("/dev/nvidia0", "/usr/bin/nvidia-smi", "/usr/bin/nvidia-cdi-hook")


def test_sockets_of_the_drivers_daemons_are_there_as_long_as_the_daemons_are(tree):
    def mounted():
        return {mount.container_path: mount.options for mount in build(tree).spec.edits.mounts}

    path = tree.root / "run/nvidia-persistenced/socket"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert mounted()["/run/nvidia-persistenced/socket"] == ("nosuid", "nodev", "rbind", "rprivate", "noexec")
    path.unlink()
    assert "/run/nvidia-persistenced/socket" not in mounted()


def test_pipes_of_the_hosts_mps_daemon_are_shared(tree):
    (tree.root / "tmp/nvidia-mps").mkdir(parents=True)
    assert "/tmp/nvidia-mps" in {mount.container_path for mount in build(tree).spec.edits.mounts}


@pytest.mark.parametrize("place", ["usr/bin", "usr/local/bin", "usr/local/nvidia/toolkit"])
def test_the_hook_program_is_found_where_packages_and_the_operator_put_it(tree, place):
    tree.install_hook(f"{place}/nvidia-cdi-hook")
    spec = build(tree, host_driver_root="/run/nvidia/driver").spec
    assert {hook.path for hook in spec.edits.hooks} == {f"/run/nvidia/driver/{place}/nvidia-cdi-hook"}


def test_a_hook_program_outside_our_sight_is_taken_on_trust(tree):
    spec = build(tree, host_driver_root="/run/nvidia/driver", cdi_hook="/opt/toolkit/nvidia-cdi-hook").spec
    assert spec.edits.hooks[0].path == "/opt/toolkit/nvidia-cdi-hook"


def test_a_configured_hook_program_that_is_missing_fails_the_build(tree):
    """A container with a hook that cannot run does not start, and the runtime's message names neither us nor the flag."""
    with pytest.raises(NotReady, match=r"/usr/bin/nvidia-cdi-hook: not there.*--nvidia-cdi-hook-path"):
        build(tree, cdi_hook="/usr/bin/nvidia-cdi-hook")


def test_without_a_hook_program_the_answer_says_what_is_missing(tree):
    built = build(tree)
    assert built.spec.edits.hooks == ()
    assert any("nvidia-cdi-hook was not found" in sentence for sentence in built.missing)


def test_a_device_that_is_named_twice_is_in_the_spec_once(hooked):
    """Two shares of one GPU in one claim are one device to the runtime."""
    assert [device.name for device in build(hooked, whole(), whole()).spec.devices] == [f"{UID}-gpu-0"]


def test_a_uid_that_is_no_file_name_is_refused(hooked):
    with pytest.raises(Refused, match="UID"):
        CdiBuilder(hooked.host()).build("../x", (whole(),), driver_version=VERSION)


def test_equal_claims_on_one_host_give_equal_bytes(hooked):
    assert build(hooked).spec.to_json() == build(hooked).spec.to_json()


def test_a_spec_names_paths_of_the_host_and_none_of_ours(tmp_path):
    tree = HostTree(tmp_path, driver_root="driver-root").install_driver().install_hook()
    content = build(tree, host_driver_root="/run/nvidia/driver").spec.to_json().decode()
    assert str(tmp_path) not in content
    assert f'"hostPath": "/run/nvidia/driver/{UBUNTU}/libcuda.so.{VERSION}"' in content


def test_many_threads_build_at_once(hooked):
    """64 claims of a burst come in on as many threads as the pool has."""
    builder = CdiBuilder(replace(hooked.age().host()))
    with ThreadPoolExecutor(8) as pool:
        specs = list(pool.map(lambda minor: build(hooked, whole(minor), builder=builder).spec, range(16)))
    assert len({spec.edits for spec in specs}) == 1
