"""What cannot work is refused before anything is installed, in a sentence that names the value or what to do."""

import json

import pytest

from tests.helm.conftest import CHART, NEWEST
from tests.helm.discovery import api_server

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


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
        (f"nameOverride={'a' * 41}", "/nameOverride"),
        ("node=null", "missing property 'node'"),
        ("node.host.sys=null", "at '/node/host': missing property 'sys'"),
        ("node.driverRoot=/a: b", "/node/driverRoot"),
        ("node.cdiHookPath=nvidia-cdi-hook", "/node/cdiHookPath"),
        ("node.podLabels.a=1", "/node/podLabels/a"),
        (r"node.podLabels.app\.kubernetes\.io/component=x", "/node/podLabels/app.kubernetes.io~1component"),
        (
            r"node.podAnnotations.kubectl\.kubernetes\.io/default-container=x",
            "/node/podAnnotations/kubectl.kubernetes.io~1default-container",
        ),
        (r"monitoring.podMonitor.labels.helm\.sh/chart=x", "/monitoring/podMonitor/labels/helm.sh~1chart"),
        ("global=x", "/global"),
    ],
)
def test_a_bad_value_is_named(helm, flag, path):
    assert path in helm.refusal("--set", flag)


def sentence(stderr):
    """What Helm reports of a refusal, without the place in the templates."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("Error:")]
    return line


@pytest.mark.parametrize("kubernetes", ["1.33.4", "v1.33.99-gke.7", "1.33.0-alpha.1"])
def test_an_older_kubernetes_is_refused_with_its_version(helm, kubernetes):
    said = sentence(helm.refusal(kubernetes=kubernetes))
    assert kubernetes.removeprefix("v") in said
    assert "1.34" in said


@pytest.mark.parametrize("kubernetes", ["1.34.0", "v1.34.0-gke.1", "1.34.1-eks-abc", "1.35.0+k3s1", "2.0.0"])
def test_kubernetes_from_1_34_is_taken_however_its_distributor_calls_it(helm, kubernetes):
    assert helm.objects(kubernetes=kubernetes)


def test_a_cluster_that_serves_no_resource_v1_is_refused_with_the_way_to_serve_it(helm):
    with api_server(NEWEST) as address:
        said = sentence(helm.refusal("--dry-run=server", "--kubeconfig", "/dev/null", "--kube-apiserver", address, apis=()))
    assert "needs the API resource.k8s.io/v1, which this cluster does not serve" in said
    assert "--runtime-config" in said


def test_the_namespace_default_is_refused_with_the_flags_to_use(helm):
    assert "-n gpu-dra --create-namespace" in sentence(helm.refusal(namespace="default"))


def classes(*names):
    """Flags for further classes of these names."""
    given = [
        f"deviceClasses.extra[{index}].name={name},deviceClasses.extra[{index}].expression=true" for index, name in enumerate(names)
    ]
    return ("--set-string", ",".join(given))


@pytest.mark.parametrize("name", ["gpu.nvidia.com", "mig.nvidia.com"])
def test_a_further_class_may_not_have_the_name_of_one_of_the_charts(helm, name):
    """Both would be rendered, two objects of one name."""
    assert f"deviceClasses.extra: {name} is a class of the chart's own" in sentence(helm.refusal(*classes(name)))
    assert helm.objects(*classes(name), "--set", "deviceClasses.create=false")


def test_a_further_class_may_not_be_given_twice(helm):
    assert "deviceClasses.extra: mine is given twice" in sentence(helm.refusal(*classes("mine", "own", "mine")))


def test_a_chart_that_has_this_one_below_it_may_share_its_globals(helm):
    """Helm hands `global` down to every chart."""
    assert helm.objects("--set", "global.region=eu") == helm.objects()


def parts(schema, path=()):
    """Every object that the schema describes, by its dotted path."""
    if schema.get("type") == "object":
        yield ".".join(path), schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, (*path, name))
    if "items" in schema:
        yield from parts(schema["items"], (*path, "[]"))


def test_every_part_refuses_keys_that_it_does_not_know():
    """Free are only what other charts share, and what is a pod's own field."""
    assert {path for path, part in parts(SCHEMA) if "additionalProperties" not in part} == {"global", "node.affinity"}


def test_no_value_can_be_taken_away_by_null():
    """Helm drops a key that is null: a template would then print nothing where the API server wants a value."""
    chosen_freely = {"node.resources", "detector.resources", "agent.resources"}
    for path, part in parts(SCHEMA):
        if "[]" not in path and path not in chosen_freely:
            assert part.get("properties", {}).keys() - {"global"} == set(part.get("required", [])), path
