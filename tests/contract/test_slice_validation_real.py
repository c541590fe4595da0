"""A real API server gives the verdicts of the table of hostile slices, so that our rules are held to its rules and not to our reading.

Needs the kubeconfig of a Kubernetes 1.36 or later with its default feature gates in GPU_DRA_TEST_KUBECONFIG. Every request is a dry run.
"""

import json
import os

import pytest
from kubernetes import config

from tests.contract.hostile_slices import CASES

pytestmark = pytest.mark.real_apiserver

_PATH = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All&fieldValidation=Strict"


@pytest.fixture(scope="module")
def api_client():
    kubeconfig = os.environ.get("GPU_DRA_TEST_KUBECONFIG")
    if not kubeconfig:
        pytest.fail("GPU_DRA_TEST_KUBECONFIG names no kubeconfig; deselect these tests with -m 'not real_apiserver'")
    client = config.new_client_from_config(kubeconfig)
    yield client
    client.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_server_gives_the_verdict_of_the_table(api_client, case):
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "hostile-"},
        "spec": case.spec,
    }
    status, answer = _post(api_client, body)
    assert status in (201, 400, 422), answer
    assert (status == 201) is case.taken, answer


def _post(api_client, body):
    """Bypass the client's models, which would refuse some of the table before the server sees it."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    api_client.update_params_for_auth(headers, [], ["BearerToken"], _PATH, "POST", body)
    response = api_client.rest_client.pool_manager.request(
        "POST", api_client.configuration.host + _PATH, headers=headers, body=json.dumps(body)
    )
    return response.status, response.data.decode()
