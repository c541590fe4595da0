"""Whatever values are chosen, what comes out is valid, consistent, and no more privileged than it has to be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

import kubernetes_validate
import pytest

from hack.container.build import REPOSITORY
from hack.testbed.cluster.catalog import KUBERNETES_VERSIONS
from tests.helm.conftest import CHART

CLASS = "deviceClasses.extra[0].name=mine,deviceClasses.extra[0].expression=device.driver=='gpu.nvidia.com'"
PREFERRED = "node.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
CHOICES = {
    "defaults": (),
    "no detector": ("--set", "detector.enabled=false"),
    "agent": ("--set", "agent.enabled=true,agent.mig.configMap=cuts"),
    "no policies": ("--set", "admissionPolicy.enabled=false", "--set", "networkPolicy.enabled=false"),
    "own class": ("--set", CLASS),
    "no classes": ("--set", "deviceClasses.create=false"),
    "simulated": ("--set", "node.simulate=h100x8"),
    "decorated": (
        "--set", "node.podLabels.a=b", "--set", "node.podAnnotations.c=d", "--set", "imagePullSecrets[0]=s",
        "--set", "serviceAccount.annotations.e=f", "--set", f"{PREFERRED}.weight=1",
        "--set", f"{PREFERRED}.preference.matchExpressions[0].key=g",
        "--set", f"{PREFERRED}.preference.matchExpressions[0].operator=Exists",
    ),
    **{path.stem: ("-f", str(path)) for path in sorted((CHART / "examples").glob("*.yaml"))},
}  # fmt: skip
OFFLINE = {"1.37.2": "1.37", "1.36.3": "1.36", "1.34.4": "1.35"}
"""The oldest schemas that are published with it are 1.35's; 1.34 serves the same kinds in the same versions."""
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "DeviceClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@cache
def validate(text, schemas):
    """Once for each object: most are the same whatever is chosen."""
    kubernetes_validate.validate(json.loads(text), schemas, strict=True)


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def choice(request):
    return request.param


@pytest.fixture
def objects(helm, choice):
    return helm.objects(*choice)


def of(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def templates(objects):
    """Each pod template: kind, name and spec."""
    found = {}
    for each in of(objects, "DaemonSet", "Job"):
        found[each["metadata"]["name"]] = each["spec"]["template"]
    for each in of(objects, "Pod"):
        found[each["metadata"]["name"]] = each
    return found


@pytest.mark.parametrize("kubernetes", KUBERNETES_VERSIONS.values())
def test_every_object_is_valid(helm, choice, kubernetes):
    for each in helm.objects(*choice, kubernetes=kubernetes):
        validate(json.dumps(each), OFFLINE[kubernetes])


def test_no_two_objects_are_the_same(objects):
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))


def test_what_lives_in_namespaces_lives_in_the_releases(objects):
    for each in objects:
        expected = None if each["kind"] in CLUSTER_WIDE else "gpu-dra"
        if each["metadata"]["name"].endswith("-node-events"):
            expected = "default"  # where Events about Nodes live
        assert each["metadata"].get("namespace") == expected, each["kind"]


NUMBERS = (
    "--set-string",
    "nameOverride=12,imagePullSecrets[0]=13,node.priorityClassName=14,deviceClasses.extra[0].name=15,deviceClasses.extra[0].expression=true",
)


def test_names_that_look_like_numbers_stay_names(helm):
    """Kubernetes and Helm allow them, and YAML reads a bare 123 as a number, which the API server refuses."""
    for each in helm.objects(*NUMBERS, release="123", namespace="456"):
        validate(json.dumps(each), "1.37")


@pytest.mark.parametrize("release", ["a" * 39 + "-b", "a" * 39 + ".b", "a" * 38 + "--b", "a" * 53])
def test_a_long_name_is_cut_where_a_name_may_end(helm, release):
    for each in helm.objects(release=release):
        name = each["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)
        assert each["kind"] in CLUSTER_WIDE or len(name) <= 52, name


def test_selectors_find_their_pods_and_no_others(objects):
    for each in of(objects, "DaemonSet"):
        selector = each["spec"]["selector"]["matchLabels"].items()
        matched = {name for name, pod in templates(objects).items() if selector <= pod["metadata"]["labels"].items()}
        assert matched == {each["metadata"]["name"]}


def test_only_plugin_and_agent_are_privileged_and_no_container_may_write_to_its_root(objects):
    for name, template in templates(objects).items():
        for container in template["spec"]["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, name
            if name.endswith(("-node", "-agent")):
                assert context["privileged"] is True
            else:
                assert context["runAsNonRoot"] is True
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert not {"privileged"} & context.keys()


def test_every_container_says_what_it_needs(objects):
    for name, template in templates(objects).items():
        for container in template["spec"]["containers"]:
            resources = container["resources"]
            assert name.endswith("-test") or {"cpu", "memory"} <= resources["requests"].keys()


def test_every_service_account_that_is_named_is_there(objects):
    there = {each["metadata"]["name"] for each in of(objects, "ServiceAccount")}
    used = {template["spec"]["serviceAccountName"] for name, template in templates(objects).items() if not name.endswith("-test")}
    bound = {subject["name"] for each in of(objects, "ClusterRoleBinding", "RoleBinding") for subject in each["subjects"]}
    assert used == there == bound


def test_every_role_that_is_bound_is_there(objects):
    there = {(each["kind"], each["metadata"]["name"]) for each in of(objects, "ClusterRole", "Role")}
    bound = {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in of(objects, "ClusterRoleBinding", "RoleBinding")}
    assert bound == there


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        ("gpu-dra", ()),
        ("x", ()),
        ("x", ("--set", "nameOverride=gpus")),
        ("x", ("--set", "fullnameOverride=y")),
        ("x", ("--set", "agent.enabled=true")),
        ("a" * 50, ()),
    ],
)
def test_policies_watch_the_accounts_that_the_pods_have(helm, release, flags):
    """NVIDIA's chart compared with an account that nobody had (dra-driver-nvidia-gpu 1317)."""
    objects = helm.objects(*flags, release=release)
    accounts = {
        f"system:serviceaccount:gpu-dra:{template['spec']['serviceAccountName']}"
        for name, template in templates(objects).items()
        if name.endswith(("-node", "-detector", "-agent", "-uninstall"))
    }
    conditions = [c["expression"] for each in of(objects, "ValidatingAdmissionPolicy") for c in each["spec"]["matchConditions"]]
    watched = {name for text in conditions for name in re.findall(r'"(system:[^"]+)"', text)}
    assert watched == accounts
    bound = {each["spec"]["policyName"] for each in of(objects, "ValidatingAdmissionPolicyBinding")}
    assert bound == {each["metadata"]["name"] for each in of(objects, "ValidatingAdmissionPolicy")}


def test_nobody_may_write_claims(objects):
    for role in of(objects, "ClusterRole", "Role"):
        for rule in role["rules"]:
            if any(resource.startswith("resourceclaims") for resource in rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list"}


def test_no_role_has_a_wildcard(objects):
    for role in of(objects, "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_the_image_is_the_one_that_is_built(helm):
    images = {c["image"] for template in templates(helm.objects()).values() for c in template["spec"]["containers"]}
    assert images == {f"{REPOSITORY}:0.1.0"}


@pytest.mark.parametrize(
    ("example", "selector"),
    [
        ("gke-cos", {"gke-no-default-nvidia-gpu-device-plugin": "true"}),
        ("gpu-operator", {"nvidia.com/gpu.present": "true"}),
        ("kind", None),
        ("nfd", {"feature.node.kubernetes.io/pci-10de.present": "true"}),
    ],
)
def test_an_example_without_detector_needs_no_label_that_only_the_detector_sets(helm, example, selector):
    """Helm merges maps: a selector that is given joins the default one, and on no node would the plugin run."""
    objects = helm.objects(*CHOICES[example])
    assert templates(objects)["gpu-dra-node"]["spec"].get("nodeSelector") == selector
    assert "gpu-dra-detector" not in templates(objects)


@pytest.mark.parametrize(
    ("example", "variable", "path"),
    [
        ("gke-cos", "NVIDIA_DRIVER_ROOT", "/home/kubernetes/bin/nvidia"),
        ("gpu-operator", "NVIDIA_DRIVER_ROOT", "/run/nvidia/driver"),
        ("k0s", "KUBELET_PLUGINS_DIRECTORY_PATH", "/var/lib/k0s/kubelet/plugins"),
        ("microk8s", "KUBELET_REGISTRAR_DIRECTORY_PATH", "/var/snap/microk8s/common/var/lib/kubelet/plugins_registry"),
        ("talos", "CDI_ROOT", "/var/cdi/dynamic"),
    ],
)
def test_an_example_takes_the_paths_of_its_distribution(helm, example, variable, path):
    """Talos reads CDI files from folders of its own (Intel's resource drivers, issue 47)."""
    spec = templates(helm.objects(*CHOICES[example]))["gpu-dra-node"]["spec"]
    assert {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}[variable] == path


def test_every_example_begins_with_its_reason():
    for path in (CHART / "examples").glob("*.yaml"):
        assert path.read_text().startswith("# "), path.name


def test_an_own_class_is_made_beside_the_charts(helm):
    classes = {each["metadata"]["name"]: each for each in of(helm.objects(*CHOICES["own class"]), "DeviceClass")}
    assert classes["mine"]["spec"]["selectors"] == [{"cel": {"expression": "device.driver=='gpu.nvidia.com'"}}]
    assert "gpu.nvidia.com" in classes


def test_sockets_have_the_same_path_inside_and_outside(helm):
    """The kubelet dials the path that it is told."""
    for flags in CHOICES.values():
        spec = templates(helm.objects(*flags))["gpu-dra-node"]["spec"]
        volumes = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        for mount in spec["containers"][0]["volumeMounts"]:
            if mount["name"] in ("plugins", "registrar", "cdi"):
                assert mount["mountPath"] == volumes[mount["name"]]


@pytest.mark.parametrize(
    ("root", "mounted", "inside"),
    [
        ("/", "/", "/host-root"),
        ("/run/nvidia/driver", "/run/nvidia", "/host-root/driver"),
        ("/run/nvidia/driver/", "/run/nvidia", "/host-root/driver"),
        ("/opt", "/", "/host-root/opt"),
    ],
)
def test_the_driver_root_is_seen_below_its_parent_so_that_a_late_mount_appears(helm, root, mounted, inside):
    spec = templates(helm.objects("--set", f"node.driverRoot={root}"))["gpu-dra-node"]["spec"]
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "driver-root-parent")
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert (volume["hostPath"]["path"], environment["DRIVER_ROOT_CTR_PATH"]) == (mounted, inside)


@pytest.mark.parametrize("role", ["node", "agent"])
def test_every_variable_that_the_chart_sets_is_one_of_the_roles(helm, role):
    spec = templates(helm.objects("--set", "agent.enabled=true,agent.mig.configMap=cuts"))[f"gpu-dra-{role}"]["spec"]
    text = subprocess.run([sys.executable, "-m", "gpu_dra", role, "--help"], capture_output=True, text=True, check=True).stdout
    for each in spec["containers"][0]["env"]:
        assert each["name"] == "POD_IP" or f"[{each['name']}" in text, each["name"]


def test_monitoring_and_openshift_get_theirs_only_where_they_are(helm):
    plain = helm.objects()
    assert not of(plain, "PodMonitor")
    apis = ("resource.k8s.io/v1", "monitoring.coreos.com/v1/PodMonitor", "security.openshift.io/v1")
    full = helm.objects(apis=apis)
    assert len(of(full, "PodMonitor")) == 1
    assert {each["roleRef"]["name"] for each in of(full, "RoleBinding")} >= {"system:openshift:scc:privileged"}
    assert not [each for each in of(plain, "RoleBinding") if "openshift" in each["roleRef"]["name"]]


def test_hooks_that_uninstall_run_before_anything_goes(helm):
    hooks = [each for each in helm.objects() if each["metadata"]["name"].endswith("-uninstall")]
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"pre-delete"}
    weights = {each["kind"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in hooks}
    assert weights["Job"] > max(weight for kind, weight in weights.items() if kind != "Job")
