"""A call is named and addressed as the API's conventions say."""

import pytest

from gpu_dra.kube.api import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gpu_dra.kube.rest import VERSION, Call, Verb, format_selector, parse_selector


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (Call(verb=Verb.GET, resource=NODES, name="a"), "/api/v1/nodes/a"),
        (Call(verb=Verb.LIST, resource=RESOURCE_SLICES), "/apis/resource.k8s.io/v1/resourceslices"),
        (Call(verb=Verb.LIST, resource=RESOURCE_CLAIMS), "/apis/resource.k8s.io/v1/resourceclaims"),
        (
            Call(verb=Verb.UPDATE, resource=RESOURCE_CLAIMS, namespace="n", name="c", subresource="status"),
            "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c/status",
        ),
        (Call(verb=Verb.GET, resource=VERSION), "/version"),
        (Call(verb=Verb.GET, resource=NODES, name="../secrets"), "/api/v1/nodes/..%2Fsecrets"),
    ],
    ids=str,
)
def test_a_call_goes_to_its_rest_path(call, path):
    assert call.path == path


def test_a_call_reads_like_the_rule_that_allows_it():
    call = Call(verb=Verb.UPDATE, resource=RESOURCE_CLAIMS, namespace="team", name="a", subresource="status")
    assert str(call) == "update resourceclaims/status.resource.k8s.io team/a"


def test_a_selector_survives_being_written_and_read():
    selector = {"spec.nodeName": "a", "spec.driver": "gpu.nvidia.com"}
    assert parse_selector(format_selector(selector)) == selector


@pytest.mark.parametrize("text", ["a!=b", "a in (b)", "a"])
def test_a_selector_this_project_never_sends_is_refused(text):
    with pytest.raises(ValueError, match="only key=value"):
        parse_selector(text)
