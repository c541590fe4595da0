"""Every file this product can write is one that a container runtime accepts (`api/cdi/schema.json`)."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from gpu_dra.cdi.builder import CdiBuilder, ClaimDevice
from gpu_dra.core.errors import GpuDraError
from tests.unit.cdi.generated_specs import specs
from tests.unit.cdi.host_tree import OURS, SONAMES, HostTree, gpu, mig_device, partitioned_gpu

SCHEMA = json.loads((Path(__file__).parents[2] / "api/cdi/schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
UID = "0f7d3c1e-5b0a-4b53-9a5e-2f1f5f6b7a10"
MINIMAL = {"cdiVersion": "0.3.0", "kind": "a.b/c", "devices": [{"name": "x", "containerEdits": {"env": ["A=1"]}}]}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a host may hold and lack."""

    version: str
    layout: str
    host_root: str
    libraries: frozenset[str]
    damaged: frozenset[str]
    hook: bool
    graphics: bool
    mig: bool
    restricted: bool


machines = st.builds(
    Machine,
    version=st.sampled_from(["580.126.09", "580.142"]),
    layout=st.sampled_from([f"usr/lib/{OURS.triplet}", "usr/lib64", "lib64", f"usr/lib/{OURS.triplet}/nvidia/current"]),
    host_root=st.sampled_from(["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"]),
    libraries=st.frozensets(st.sampled_from(sorted(SONAMES))),
    damaged=st.frozensets(st.sampled_from(sorted(SONAMES)), max_size=3),
    hook=st.booleans(),
    graphics=st.booleans(),
    mig=st.booleans(),
    restricted=st.booleans(),
)


def lay(machine: Machine, directory: Path) -> tuple[HostTree, tuple[ClaimDevice, ...]]:
    tree = HostTree(directory, libraries=machine.layout, version=machine.version)
    for stem in machine.libraries | {"libcuda"}:
        tree.library(f"{stem}.so.{machine.version}", SONAMES[stem])
    for stem in machine.damaged - {"libcuda"}:
        path = tree.libraries / f"{stem}.so.{machine.version}"
        path.unlink(missing_ok=True)
        path.symlink_to("/nowhere") if len(stem) % 2 else path.mkdir()
    if machine.hook:
        tree.install_hook()
    if machine.restricted:
        tree.device_file_policy(mode=0o660, gid=44)
    parent = partitioned_gpu() if machine.mig else gpu()
    if machine.graphics:
        tree.drm(parent, card=1, render=129)
    if not machine.mig:
        return tree, (ClaimDevice(name="gpu-0", gpu=parent), ClaimDevice(name="gpu-1", gpu=gpu(1)))
    mig = mig_device(parent, profile="1g.24gb+gfx")
    tree.mig_capabilities(0, mig, gi=84, ci=85)
    return tree, (ClaimDevice(name=mig.name, gpu=parent, mig=mig),)


def test_the_schema_is_a_schema():
    Draft202012Validator.check_schema(SCHEMA)
    VALIDATOR.validate(MINIMAL)


@given(specs())
def test_whatever_the_model_lets_through_a_runtime_accepts(spec):
    VALIDATOR.validate(json.loads(spec.to_json()))


@settings(deadline=None, max_examples=60)
@given(machines)
def test_whatever_a_host_holds_the_file_is_accepted_and_leads_nowhere_in_vain(machine):
    """The promise of this room: no spec that a runtime refuses, and none whose container would lack what it names."""
    with tempfile.TemporaryDirectory() as directory:
        tree, devices = lay(machine, Path(directory))
        builder = CdiBuilder(tree.host(host_driver_root=machine.host_root))
        spec = builder.build(UID, devices, driver_version=machine.version).spec
        VALIDATOR.validate(json.loads(spec.to_json()))
        sources = [mount.host_path for mount in spec.edits.mounts]
        assert all((tree.root / source.removeprefix(machine.host_root).lstrip("/")).is_file() for source in sources)
        assert any(f"libcuda.so.{machine.version}" in source for source in sources)
        assert builder.missing_paths(spec) == ()
        places = [mount.container_path for mount in spec.edits.mounts]
        assert len(places) == len(set(places))


@settings(deadline=None, max_examples=30)
@given(machines, st.sampled_from(["dev", "proc/devices", "root", "sys"]))
def test_a_host_that_loses_a_tree_gives_a_reason_and_never_half_a_spec(machine, lost):
    """Mounts into the plugin's pod can be wrong in every way."""
    with tempfile.TemporaryDirectory() as directory:
        tree, devices = lay(machine, Path(directory))
        (tree.directory / lost).rename(tree.directory / "lost")
        (tree.directory / lost).write_text("")
        builder = CdiBuilder(tree.host())
        try:
            spec = builder.build(UID, devices, driver_version=machine.version).spec
        except GpuDraError as error:
            assert len(str(error)) > 20  # noqa: PT017 - either outcome is right, half a spec is not
        else:
            assert lost == "sys"
            assert builder.missing_paths(spec) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"cdiVersion": "9.9.9"},
        {"kind": "no-class"},
        {"devices": []},
        {"devices": [{"name": "x", "containerEdits": {}}]},
        {"devices": [{"name": "-x", "containerEdits": {"env": ["A=1"]}}]},
        {"unknownField": 1},
        {"containerEdits": {"deviceNodes": [{"path": "/dev/x", "permissions": "rwx"}]}},
        {"containerEdits": {"deviceNodes": [{"path": "/dev/x", "unknownField": 1}]}},
        {"containerEdits": {"mounts": [{"hostPath": "/x"}]}},
        {"containerEdits": {"hooks": [{"hookName": "later", "path": "/x"}]}},
        {"containerEdits": {"env": ["NO_VALUE"]}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_schema_refuses_what_a_runtime_refuses(change):
    with pytest.raises(ValidationError):
        VALIDATOR.validate(MINIMAL | change)
