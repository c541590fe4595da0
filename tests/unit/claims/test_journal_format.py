"""Journal files: what goes in comes out, and damage never passes for content."""

import contextlib
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.claims.journal_format import Damage, DamagedEntry, decode, encode
from gpu_dra.model.claim import ClaimRef
from gpu_dra.model.mig import Placement
from gpu_dra.model.prepared import Effect, Phase, PreparedClaim, PreparedDevice
from tests.unit.claims.samples import held, prepared

text = st.text(max_size=20)
placements = st.none() | st.builds(Placement, start=st.integers(0, 7), size=st.integers(1, 8))
devices = st.builds(
    PreparedDevice,
    request=text,
    pool=text,
    device=text,
    uuid=text,
    cdi_ids=st.lists(text, max_size=3).map(tuple),
    admin_access=st.booleans(),
    share_id=st.none() | text,
    gpu_uuid=text,
    placement=placements,
)
effects = st.builds(Effect, kind=text, data=st.dictionaries(text, text, max_size=3))
claims = st.builds(
    PreparedClaim,
    ref=st.builds(ClaimRef, namespace=text, name=text, uid=text),
    phase=st.sampled_from(Phase),
    devices=st.lists(devices, max_size=4).map(tuple),
    boot_id=text,
    driver_version=text,
    node_paths=st.lists(text, max_size=4).map(tuple),
    effects=st.lists(effects, max_size=3).map(tuple),
)
SAMPLE = prepared(1, held("gpu-0", cdi_ids=("k8s.gpu.nvidia.com/claim=x",)), effects=(Effect(kind="file", data={"a": "b"}),))


def stored(body, **head):
    """A file as some other build might have written it."""
    content = json.dumps(body).encode()
    first = {"kind": "gpu-dra.claim", "version": 1, "length": len(content), "sha256": hashlib.sha256(content).hexdigest(), **head}
    return json.dumps(first).encode() + b"\n" + content + b"\n"


def damage_of(content):
    with pytest.raises(DamagedEntry) as found:
        decode(content)
    return found.value.damage


@given(claims)
def test_what_is_written_is_what_is_read(claim):
    assert decode(encode(claim)) == claim


@given(claims, st.data())
def test_a_file_cut_anywhere_is_recognised(claim, data):
    """A final newline is no content, so a file that lacks only that is whole."""
    content = encode(claim)
    cut = content[: data.draw(st.integers(0, len(content) - 2))]
    assert damage_of(cut) in {Damage.EMPTY, Damage.TRUNCATED}


@given(st.integers(0, len(encode(SAMPLE)) - 2), st.integers(1, 255))
def test_a_changed_byte_is_recognised_or_harmless(position, change):
    """The head may hold a byte that does not matter; the claim itself never comes out different."""
    content = bytearray(encode(SAMPLE))
    content[position] ^= change
    with contextlib.suppress(DamagedEntry):
        assert decode(bytes(content)) == SAMPLE


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        (b"", Damage.EMPTY),
        (b"\0" * 4096, Damage.EMPTY),
        (b"[]\n", Damage.UNKNOWN),
        (b'[{"uid": "list of claims"}]', Damage.UNKNOWN),
        (b'{"v2": {"preparedClaims": {}}}\n', Damage.UNKNOWN),
        (b"[" * 100_000, Damage.TRUNCATED),
        (stored({}, version=2), Damage.NEWER),
        (stored({}, sha256="0"), Damage.CHECKSUM),
        (stored({}, length=None), Damage.UNKNOWN),
        (stored([]), Damage.UNKNOWN),
        (stored({"uid": "u"}), Damage.UNKNOWN),
        (stored({"uid": "u", "devices": [], "phase": "Dreaming"}), Damage.UNKNOWN),
    ],
)
def test_every_other_content_has_a_name(content, damage):
    assert damage_of(content) is damage


def test_fields_of_a_later_build_are_passed_over():
    """An upgrade that is taken back must find its claims again."""
    body = json.loads(encode(SAMPLE).splitlines()[1])
    body["colour"] = "green"
    body["devices"][0]["weight"] = {"kg": 3}
    assert decode(stored(body, signedBy="somebody")) == SAMPLE


def test_fields_an_earlier_build_did_not_know_mean_the_cautious_thing():
    """No phase: not finished. No boot id: equal to none, so everything is made again before it is answered."""
    device = {"request": "gpu", "pool": "node-a", "device": "gpu-0", "cdiIDs": []}
    claim = decode(stored({"uid": "u", "devices": [device]}))
    assert (claim.phase, claim.boot_id, claim.devices[0].gpu_uuid) == (Phase.INTENT, "", "")
