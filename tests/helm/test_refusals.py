"""What cannot work is refused before anything is installed, in a sentence that names the value or what to do."""

import pytest


@pytest.mark.parametrize(
    ("flag", "path"),
    [
        ("node.driveroot=/x", "driveroot"),
        ("nodes.driverRoot=/x", "nodes"),
        ("node.driverRoot=opt/nvidia", "/node/driverRoot"),
        ("node.driverRoot=null", "driverRoot"),
        ("node.cdiDirectory=cdi", "/node/cdiDirectory"),
        ("node.kubelet.directory=var/lib/kubelet", "/node/kubelet/directory"),
        ("node.kubelet.dir=/x", "dir"),
        ("node.metrics.port=99999", "/node/metrics/port"),
        ("node.metrics.port=http", "/node/metrics/port"),
        ("node.logLevel=loud", "/node/logLevel"),
        ("node.logFormat=xml", "/node/logFormat"),
        ("node.nodeSelector=gpu", "/node/nodeSelector"),
        ("node.tolerations=all", "/node/tolerations"),
        ("node.tolerations[0].operater=Exists", "operater"),
        ("node.maxSurge=0", "/node/maxSurge"),
        ("node.terminationGracePeriodSeconds=5", "/node/terminationGracePeriodSeconds"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("image.repository=", "/image/repository"),
        ("image.tag=a b", "/image/tag"),
        ("rbac.create=yes please", "/rbac/create"),
        ("detector.enabled=1", "/detector/enabled"),
        ("coexistence.devicePlugin=ignore", "/coexistence/devicePlugin"),
        ("deviceClasses.extra[0].name=mine", "expression"),
        ("deviceClasses.extra[0].name=Mine,deviceClasses.extra[0].expression=true", "/deviceClasses/extra/0/name"),
        ("monitoring.podMonitor.interval=often", "/monitoring/podMonitor/interval"),
        ("uninstall.timeoutSeconds=-1", "/uninstall/timeoutSeconds"),
        ("imagePullSecrets=regcred", "/imagePullSecrets"),
        ("fullnameOverride=Über", "/fullnameOverride"),
    ],
)
def test_a_bad_value_is_named(helm, flag, path):
    assert path in helm.refusal("--set", flag)


def test_an_older_kubernetes_is_refused_with_its_version(helm):
    said = helm.refusal(kubernetes="1.33.4")
    assert "1.33.4" in said
    assert "1.34" in said


def test_the_namespace_default_is_refused_with_the_flags_to_use(helm):
    assert "-n gpu-dra --create-namespace" in helm.refusal(namespace="default")
