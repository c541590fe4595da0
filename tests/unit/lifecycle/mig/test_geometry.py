"""Partitions fit or are refused before anything is touched, and a GPU that is cut as wanted is left alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.core.errors import Refused
from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.simulated import simulated_machine
from gpu_dra.lifecycle.mig.geometry import arrange, plan
from gpu_dra.lifecycle.mig.hardware import build, read_board
from gpu_dra.lifecycle.mig.wish import Wish, generated
from gpu_dra.model.gpu import MigMode
from tests.unit.lifecycle.mig.boards import A100, H100, T4, board

A, H = board(A100, 0), board(H100, 0)


@pytest.mark.parametrize("each", [A, H], ids=["a100", "h100"])
def test_every_generated_configuration_can_be_had(each):
    for wish in generated(each).values():
        assert len(arrange(each, wish.partitions)) == sum(wish.partitions.values())


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"1g.6gb": 1}, "has no MIG profile 1g.6gb; it has 1g.10gb"),
        ({"1g.5gb": 8}, "can have at most 7 × 1g.5gb, not 8"),
        ({"4g.20gb": 1, "3g.20gb": 2}, "cannot be cut into 2 × 3g.20gb, 1 × 4g.20gb"),
        ({"7g.40gb": 1, "1g.5gb": 1}, "do not fit beside each other"),
        ({"3g.20gb": 2, "1g.5gb": 1}, "do not fit beside each other"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_board_and_the_wish(wanted, says):
    with pytest.raises(Refused) as told:
        arrange(A, wanted)
    assert says in str(told.value)
    assert "gpu-0 (0000:07:00.0)" in str(told.value)


@given(st.dictionaries(st.sampled_from([profile.name for profile in A.profiles]), st.integers(1, 7), max_size=4))
def test_what_is_said_to_fit_is_made_by_the_hardware_and_what_is_refused_fits_in_no_order(wanted):
    nvml = FakeNvml(simulated_machine(A100))
    nvml.open()
    nvml.gpus[0].mode = MigMode(current=True, pending=True)
    try:
        partitions = arrange(A, wanted)
    except Refused:
        names = [name for name, count in wanted.items() for _ in range(count)]
        assert len(names) > 7 or not any(_fits(order) for order in itertools.islice(set(itertools.permutations(names)), 200))
        return
    build(nvml, read_board(nvml, _host(), 0), partitions)
    assert plan(read_board(nvml, _host(), 0), Wish(enabled=True, partitions=wanted)) is None


def _fits(names):
    """Whether the hardware takes the partitions in this order, each where it likes."""
    from gpu_dra.hardware.nvml_errors import NvmlError

    nvml = FakeNvml(simulated_machine(A100))
    nvml.open()
    nvml.gpus[0].mode = MigMode(current=True, pending=True)
    ids = {profile.name: profile.profile_id for profile in A.profiles}
    try:
        for name in names:
            nvml.create_gpu_instance(nvml.gpu(0), ids[name], None)
    except NvmlError:
        return False
    return True


def _host():
    from gpu_dra.hardware.host import HostPaths

    return HostPaths()


def test_a_gpu_that_is_cut_as_wanted_is_left_alone_wherever_its_partitions_sit():
    def cut(gpu):
        gpu.mode = MigMode(current=True, pending=True)
        profile = next(each for each in gpu.board.profiles if each.profile.name == "3g.40gb")
        for placement in reversed(profile.placements[:2]):
            gpu.create_compute(gpu.create(profile.profile.profile_id, placement), profile.slices)

    assert plan(board(H100, 0, change=cut), Wish(enabled=True, partitions={"3g.40gb": 2})) is None
    assert plan(board(H100, 0), Wish(enabled=False)) is None


def test_a_partition_without_its_compute_instance_is_made_anew():
    """What a kill in the middle leaves."""

    def cut(gpu):
        gpu.mode = MigMode(current=True, pending=True)
        gpu.create(next(each for each in gpu.board.profiles if each.profile.name == "7g.80gb").profile.profile_id, None)

    assert plan(board(H100, 0, change=cut), Wish(enabled=True, partitions={"7g.80gb": 1})) is not None


def test_a_gpu_without_mig_is_refused():
    with pytest.raises(Refused, match="cannot do MIG"):
        plan(board(T4, 0), Wish(enabled=True))
