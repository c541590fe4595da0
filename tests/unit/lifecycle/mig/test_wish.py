"""What a configuration file and a label ask for, and what each typing error is told."""

import pytest

from gpu_dra.core.errors import Refused
from gpu_dra.lifecycle.mig.wish import Wish, generated, parse, wishes
from tests.unit.lifecycle.mig.boards import A100, H100, T4, board

FILE = """
version: v1
mig-configs:
  all-disabled:
    - {devices: all, mig-enabled: false}
  mixed:
    - devices: [0]
      mig-enabled: true
      mig-devices: {"1g.10gb": 2, "3g.40gb": 1}
    - devices: [1]
      mig-enabled: false
      mig-devices: {}
  by-model:
    - {device-filter: "0x233010DE", devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
    - {device-filter: ["0x20B010DE"], devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}}
"""


def test_a_file_of_mig_parted_says_what_each_gpu_is_to_be():
    configs = parse(FILE, where="config.yaml")
    boards = [board(H100, 0), board(H100, 1), board(H100, 2)]
    assert wishes("mixed", boards, configs) == {
        0: Wish(enabled=True, partitions={"1g.10gb": 2, "3g.40gb": 1}),
        1: Wish(enabled=False),
    }


def test_a_device_filter_tells_models_apart():
    configs = parse(FILE, where="config.yaml")
    found = wishes("by-model", [board(H100, 0), board(A100, 1)], configs)
    assert {index: wish.partitions for index, wish in found.items()} == {0: {"1g.10gb": 7}, 1: {"1g.5gb": 7}}


def test_gpus_that_cannot_do_mig_are_passed_over_by_all():
    configs = parse(FILE, where="config.yaml")
    assert wishes("all-disabled", [board(T4, 0), board(H100, 1)], configs) == {1: Wish(enabled=False)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "config.yaml is no YAML"),
        ("version: 2024-13-45", "config.yaml is no YAML"),
        ("version: 0b_", "config.yaml is no YAML"),
        ("[]", "config.yaml: must be a mapping, not []"),
        ("{version: v2, mig-configs: {}}", "version: 'v2' is not known"),
        ("{version: v1, mig-configs: {}, extra: 1}", "unknown field extra"),
        ("{version: v1, mig-configs: [a]}", "mig-configs: must be a mapping"),
        ("{version: v1, mig-configs: {a: {}}}", "mig-configs.a: must be a list"),
        (
            "{version: v1, mig-configs: {a: [{devices: 7, mig-enabled: false}]}}",
            "mig-configs.a[0].devices: 7 is a bare number; write [7]",
        ),
        ("{version: v1, mig-configs: {a: [{devices: some, mig-enabled: false}]}}", "a[0].devices: must be all or a list"),
        (
            "{version: v1, mig-configs: {a: [{mig-enabled: false}]}}",
            "a[0].devices: must be all or a list of GPU indices, not nothing",
        ),
        ("{version: v1, mig-configs: {a: [{devices: all}]}}", "a[0].mig-enabled: must be true or false"),
        ("{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true}]}}", "a[0].mig-devices: is missing"),
        ("{version: v1, mig-configs: {a: [{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}]}}", "must be empty where"),
        (
            "{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: x}}]}}",
            "1g.5gb: must be a number",
        ),
        (
            "{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}]}}",
            "1g.5gb: must be a number",
        ),
        ("{version: v1, mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1c.2g.10gb: 1}}]}}", "without 'c.'"),
        (
            "{version: v1, mig-configs: {a: [{device-filter: 3, devices: all, mig-enabled: false}]}}",
            "device-filter: must be a PCI id",
        ),
        (
            "{version: v1, mig-configs: {a: [{device: all, mig-enabled: false}]}}",
            "a[0]: unknown field device; known are device-filter",
        ),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(text, says):
    with pytest.raises(Refused) as told:
        parse(text, where="config.yaml")
    assert says in str(told.value)


def test_a_gpu_that_is_not_there_or_cannot_do_mig_is_named():
    configs = parse("{version: v1, mig-configs: {a: [{devices: [4], mig-enabled: true, mig-devices: {}}]}}", where="f")
    with pytest.raises(Refused, match=r"there is no GPU 4; this node has 0 to 0"):
        wishes("a", [board(H100, 0)], configs)
    with pytest.raises(Refused, match=r"GPU 4 \(Tesla T4\) cannot do MIG"):
        wishes("a", [board(T4, 4)], configs)


def test_without_a_file_there_are_the_configurations_that_the_boards_profiles_give():
    assert {name: dict(wish.partitions) for name, wish in generated(board(A100, 0)).items()} == {
        "all-disabled": {},
        "all-enabled": {},
        "all-1g.5gb": {"1g.5gb": 7},
        "all-1g.5gb.me": {"1g.5gb+me": 1},
        "all-1g.10gb": {"1g.10gb": 4},
        "all-2g.10gb": {"2g.10gb": 3},
        "all-3g.20gb": {"3g.20gb": 2},
        "all-4g.20gb": {"4g.20gb": 1},
        "all-7g.40gb": {"7g.40gb": 1},
        "all-balanced": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    }
    assert generated(board(T4, 0)) == {}


def test_a_node_of_two_models_is_cut_where_the_profile_exists():
    assert wishes("all-1g.5gb", [board(H100, 0), board(A100, 1)], {}).keys() == {1}


def test_an_unknown_name_is_told_with_those_there_are():
    with pytest.raises(Refused, match=r"no MIG configuration 'all-1g.6gb'.*all-1g.10gb.*all-balanced"):
        wishes("all-1g.6gb", [board(H100, 0)], {})
