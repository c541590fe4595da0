"""Random valid specs, with every field this product can write."""

from hypothesis import strategies as st

from gpu_dra.cdi.spec import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec

_words = st.text("abcXYZ012._-é", min_size=1, max_size=8)
_paths = st.lists(_words, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
_env = st.lists(st.builds("{}={}".format, st.text("ABC_", min_size=1, max_size=5), st.text(max_size=8)), max_size=3).map(tuple)
_ends = st.sampled_from("abz019")
_names = st.builds("{}{}{}".format, _ends, st.text("az09_.:-", max_size=20), _ends)

_nodes = st.builds(
    DeviceNode,
    path=_paths,
    type=st.sampled_from("bcup"),
    major=st.integers(0, 4095),
    minor=st.integers(0, 2**20),
    file_mode=st.integers(0, 0o777),
    permissions=st.sampled_from(["r", "rw", "rwm"]),
    host_path=st.none() | _paths,
    gid=st.none() | st.integers(1, 2**32 - 1),
)
_mounts = st.builds(
    Mount,
    host_path=_paths,
    container_path=_paths,
    options=st.lists(st.sampled_from(["ro", "rbind", "noexec"]), min_size=1).map(tuple),
)
_hooks = st.builds(
    Hook,
    hook_name=st.sampled_from(["createContainer", "createRuntime", "poststop"]),
    path=_paths,
    args=st.lists(_words, max_size=3).map(tuple),
    env=_env,
)
_edits = st.builds(
    ContainerEdits,
    env=_env,
    device_nodes=st.lists(_nodes, max_size=3).map(tuple),
    mounts=st.lists(_mounts, max_size=3).map(tuple),
    hooks=st.lists(_hooks, max_size=2).map(tuple),
    additional_gids=st.lists(st.integers(1, 2**32 - 1), max_size=2).map(tuple),
)


def specs() -> st.SearchStrategy[Spec]:
    """Any spec the model lets through, with one to three devices."""
    full = _edits.filter(lambda edits: not edits.is_empty)
    devices = st.lists(st.builds(Device, name=_names, edits=full), min_size=1, max_size=3, unique_by=lambda device: device.name)
    kinds = st.sampled_from(["k8s.gpu.nvidia.com/claim", "a/b", "vendor.example/class.v2"])
    return st.builds(Spec, kind=kinds, devices=devices.map(tuple), edits=_edits)
