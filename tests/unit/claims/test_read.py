"""What of a ResourceClaim concerns this driver on this node."""

import pytest

from gpu_dra.claims.read import read_claim
from gpu_dra.core.errors import NotReady, Refused
from gpu_dra.model.claim import ConfigSource
from tests.unit.claims.samples import DRIVER, POOL, claim, opaque, ref, result, uid


def read(obj, number=1):
    return read_claim(obj, ref(number), driver=DRIVER, pool=POOL)


def test_results_of_other_drivers_and_other_nodes_are_left_alone():
    """A foreign result may look however it likes; it must not fail our part of the claim."""
    obj = claim(1, {"driver": "nic.example.com", "device": 7}, result("gpu-9", pool="node-b"), result("gpu-3"))
    assert [found.device for found in read(obj).results] == ["gpu-3"]


def test_a_sub_request_is_kept_and_its_base_is_what_the_kubelet_hears():
    (found,) = read(claim(1, result("gpu-0", request="gpu/large"))).results
    assert (found.request, found.base_request) == ("gpu/large", "gpu")


def test_share_id_and_admin_access_are_read():
    (found,) = read(claim(1, result("gpu-0", shareID="abc", adminAccess=True))).results
    assert (found.share_id, found.admin_access) == ("abc", True)


def test_a_claim_that_was_replaced_is_refused_with_both_uids():
    with pytest.raises(Refused, match=f"{uid(1)}.*was replaced.*{uid(2)}"):
        read(claim(2, result("gpu-0")), number=1)


@pytest.mark.parametrize("status", [{}, {"allocation": None}, None])
def test_a_claim_without_an_allocation_is_waited_for(status):
    obj = {**claim(1), "status": status}
    with pytest.raises(NotReady, match="not allocated"):
        read(obj)


def test_a_claim_allocated_elsewhere_is_refused_with_the_pools_it_has():
    with pytest.raises(Refused, match=r"pool node-a.*node-b"):
        read(claim(1, result("gpu-0", pool="node-b")))


def test_class_configuration_comes_before_the_claims_own_whatever_the_order():
    """Later entries win, so the order is part of the meaning."""
    entries = [opaque({"kind": "A"}), opaque({"kind": "B"}, source="FromClass"), opaque({"kind": "C"})]
    found = read(claim(1, result("gpu-0"), config=entries)).configs
    assert [(config.source, config.parameters["kind"]) for config in found] == [
        (ConfigSource.CLASS, "B"),
        (ConfigSource.CLAIM, "A"),
        (ConfigSource.CLAIM, "C"),
    ]
    assert found[0].path == "status.allocation.devices.config[1].opaque.parameters"


def test_configuration_of_other_drivers_is_left_alone():
    assert read(claim(1, result("gpu-0"), config=[opaque("anything", driver="nic.example.com")])).configs == ()


@pytest.mark.parametrize(
    ("devices", "path"),
    [
        ({"results": "gpu-0"}, r"devices\.results"),
        ({"results": ["gpu-0"]}, r"results\[0\]"),
        ({"results": [{**result("gpu-0"), "device": ""}]}, r"results\[0\]\.device"),
        ({"results": [{**result("gpu-0"), "request": None}]}, r"results\[0\]\.request"),
        ({"results": [result("gpu-0")], "config": [{"source": "FromClaim"}]}, r"config\[0\]"),
        ({"results": [result("gpu-0")], "config": [opaque({}, source="FromMoon")]}, r"config\[0\]\.source"),
        ({"results": [result("gpu-0")], "config": [opaque([])]}, r"config\[0\]\.opaque\.parameters"),
        ({"results": [result("gpu-0")], "config": [{**opaque({}), "requests": "gpu"}]}, r"config\[0\]\.requests"),
    ],
)
def test_a_malformed_allocation_is_refused_with_the_path_of_the_field(devices, path):
    obj = claim(1)
    obj["status"]["allocation"]["devices"] = devices
    with pytest.raises(Refused, match=path):
        read(obj)


def test_a_configuration_of_a_kind_we_do_not_know_for_somebody_elses_request_is_left_alone():
    obj = claim(1, result("gpu-0"), config=[{"source": "FromClaim", "requests": ["nic"], "novel": {}}])
    assert read(obj).configs == ()
