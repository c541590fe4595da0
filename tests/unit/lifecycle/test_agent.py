"""One agent a node, whatever a rolling update or a forced deletion leaves behind."""

import pytest

from gpu_dra.core.errors import NotReady, Refused
from gpu_dra.core.locks import LockDirectory
from gpu_dra.hardware.host import HostPaths
from gpu_dra.lifecycle.agent import AgentSettings, alone, read_configs


def settings(root):
    return AgentSettings(
        node_name="node-a", kubeconfig=None, host=HostPaths(), plugin_data=root, mig_config_file=root / "missing", root=root
    )


async def test_a_second_agent_waits_for_the_first_and_then_says_so(tmp_path):
    async with LockDirectory(tmp_path / "locks").hold(["agent"], within=1):
        with pytest.raises(NotReady, match="another gpu-dra agent works on this node and must end first"):
            async with alone(settings(tmp_path), within=0.05):
                pass
    async with alone(settings(tmp_path), within=0.05):
        pass


def test_a_missing_file_of_configurations_is_named(tmp_path):
    with pytest.raises(Refused, match=r"--mig-config-file .*missing cannot be read"):
        read_configs(tmp_path / "missing")
    assert read_configs(None) == {}
