"""An uninstall strands no pod and leaves nothing. Runs after the other tests of the chart, whose release it ends."""

from __future__ import annotations

import pytest

from hack.testbed.cluster.errors import LabError
from tests.cluster.chart.installed import GPU_NODES, pod


def test_an_uninstall_waits_for_holders_names_them_and_then_leaves_nothing(chart):
    holder = chart.demo("one-gpu", node="node-a")
    chart.running(holder)
    chart.chart.install(uninstall__timeoutSeconds="2")
    with pytest.raises(LabError, match=r"(?s)one-gpu on node node-a.*nothing was removed"):
        chart.chart.uninstall()
    chart.sees_exactly_its_claim(holder)
    chart.clean()
    chart.chart.uninstall()
    assert chart.slices() == []
    for kind in ("deviceclasses", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies"):
        assert "gpu" not in chart.lab.kubectl("get", kind, "-o", "name")
    assert chart.lab.kubectl("-n", "gpu-dra", "get", "daemonsets,jobs,pods,rolebindings,networkpolicies", "-o", "name") == ""
    for node in GPU_NODES:
        for directory in ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"):
            assert chart.node_files(node, directory) == []
        found = chart.get("node", node) or {}
        assert "nvidia.com/gpu.present" not in found["metadata"]["labels"]
        assert chart.condition(node) == {}


def test_on_the_oldest_version_claims_and_the_old_resource_name_work_and_all_goes_again(old_chart):
    old_chart.sees_exactly_its_claim(old_chart.demo("one-gpu"))
    old_chart.sees_exactly_its_claim(old_chart.demo("one-mig"))
    old_chart.apply(pod("plain-limits", limits={"nvidia.com/gpu": "1"}))
    old_chart.running("plain-limits")
    assert old_chart.lab.kubectl("logs", "plain-limits").count("GPU-") == 1
    old_chart.clean()
    old_chart.chart.uninstall()
    assert old_chart.slices() == []
