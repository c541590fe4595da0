"""What opaque configuration this version honours, and what whoever asks for more reads."""

import pytest

from gpu_dra.claims.config import API_VERSION, check_configs
from gpu_dra.core.errors import Refused
from gpu_dra.model.claim import AllocationResult, ConfigSource, OpaqueConfig

PATH = "status.allocation.devices.config[0].opaque.parameters"


def check(parameters, *, requests=(), device_type="gpu"):
    config = OpaqueConfig(source=ConfigSource.CLAIM, requests=requests, parameters=parameters, path=PATH)
    device = "gpu-0" if device_type == "gpu" else "gpu-0-mig-1g5gb-19-0"
    check_configs([config], AllocationResult(request="r", pool="node-a", device=device), device_type=device_type)


def of_kind(kind, **fields):
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


@pytest.mark.parametrize(("kind", "device_type"), [("GpuConfig", "gpu"), ("MigDeviceConfig", "mig")])
@pytest.mark.parametrize("requests", [(), ("r",)])
@pytest.mark.parametrize("fields", [{}, {"sharing": None}])
def test_a_configuration_without_sharing_is_accepted(kind, device_type, requests, fields):
    check(of_kind(kind, **fields), requests=requests, device_type=device_type)


UNSUPPORTED = [
    pytest.param(
        of_kind("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}), "gpu", "time-slicing",
        id="time-slicing",
    ),
    pytest.param(of_kind("GpuConfig", sharing={"strategy": "MPS"}), "gpu", "Multi-Process Service", id="MPS"),
    pytest.param(
        of_kind("GpuConfig", sharing={"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}}), "gpu",
        "Multi-Process Service", id="MPS with settings",
    ),
    pytest.param(of_kind("MigDeviceConfig", sharing={"strategy": "MPS"}), "mig", "Multi-Process Service", id="MPS on MIG"),
    pytest.param(of_kind("VfioDeviceConfig"), "gpu", "VFIO passthrough", id="VFIO"),
    pytest.param(of_kind("VfioDeviceConfig", iommu={"backendPolicy": "LegacyOnly"}), "gpu", "VFIO passthrough", id="VFIO, iommu"),
    pytest.param(of_kind("ComputeDomainChannelConfig", domainID="d"), "gpu", "compute domains", id="channel of a compute domain"),
    pytest.param(of_kind("ComputeDomainDaemonConfig", domainID="d"), "mig", "compute domains", id="daemon of a compute domain"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "device_type", "feature"), UNSUPPORTED)
def test_a_feature_that_is_not_built_is_refused_in_one_sentence_that_names_it(parameters, device_type, feature):
    with pytest.raises(Refused) as refusal:
        check(parameters, requests=("r",), device_type=device_type)
    message = str(refusal.value)
    assert message.startswith(PATH)
    assert feature in message
    assert "not supported yet; this version accepts" in message
    assert "\n" not in message
    assert ". " not in message


@pytest.mark.parametrize("kind", ["ComputeDomainChannelConfig", "ComputeDomainDaemonConfig"])
def test_a_compute_domain_is_refused_also_where_no_request_is_named(kind):
    """No device of ours can belong to one, so leaving it out would be ignoring it."""
    with pytest.raises(Refused, match="compute domains"):
        check(of_kind(kind, domainID="d"))


def test_a_passthrough_setting_for_all_requests_leaves_out_plain_gpus():
    """As with NVIDIA's driver: a claim that takes a VFIO device if there is one, else a GPU, carries it for the former."""
    check(of_kind("VfioDeviceConfig"))


@pytest.mark.parametrize("strategy", ["Mps", None, 3])
def test_an_unknown_strategy_is_not_called_a_missing_feature(strategy):
    with pytest.raises(Refused, match=r"sharing\.strategy: .* is neither TimeSlicing nor MPS"):
        check(of_kind("GpuConfig", sharing={"strategy": strategy}))


def test_settings_of_mps_are_refused_with_the_strategy_time_slicing():
    with pytest.raises(Refused, match=r"sharing\.mpsConfig: does not belong"):
        check(of_kind("GpuConfig", sharing={"strategy": "TimeSlicing", "mpsConfig": {}}))
