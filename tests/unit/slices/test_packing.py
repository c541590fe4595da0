"""Devices over slices: never too many, always in order, little movement."""

from hypothesis import given
from hypothesis import strategies as st

from gpu_dra.slices.packing import pack

sizes = st.lists(st.integers(0, 30), max_size=40)
limits = st.integers(1, 128)


def groups(sizes):
    return [tuple({"name": f"gpu-{group}-{index}"} for index in range(size)) for group, size in enumerate(sizes)]


def packed(sizes, limit):
    return [[device["name"] for device in piece.devices] for piece in pack(groups(sizes), limit=limit)]


@given(sizes, limits)
def test_every_device_is_in_exactly_one_slice_and_keeps_its_place(sizes, limit):
    flat = [name for piece in packed(sizes, limit) for name in piece]
    assert flat == [device["name"] for group in groups(sizes) for device in group]


@given(sizes, limits)
def test_no_slice_is_over_the_limit_and_none_is_empty_but_the_only_one(sizes, limit):
    pieces = packed(sizes, limit)
    assert all(len(piece) <= limit for piece in pieces)
    assert pieces == [[]] or all(pieces)


@given(sizes, st.integers(30, 128))
def test_devices_of_one_gpu_stay_together_where_they_fit(sizes, limit):
    home = _home(packed(sizes, limit))
    for group in groups(sizes):
        assert len({home[device["name"]] for device in group}) <= 1


@given(st.integers(1, 300), st.integers(1, 128), st.data())
def test_one_gpu_less_moves_at_most_one_device_per_slice(count, limit, data):
    """Each slice that changes is a write, and a moved device is looked for anew by the scheduler."""
    gone = data.draw(st.integers(0, count - 1))
    before = packed([1] * count, limit)
    after = _home(packed([0 if index == gone else 1 for index in range(count)], limit))
    moved = [name for name, slice_ in _home(before).items() if after.get(name, slice_) != slice_]
    assert len(moved) < len(before)


@given(sizes, st.lists(st.integers(0, 30), max_size=5), st.integers(30, 128))
def test_gpus_that_come_last_move_nothing(sizes, more, limit):
    before, after = _home(packed(sizes, limit)), _home(packed(sizes + more, limit))
    assert all(after[name] == slice_ for name, slice_ in before.items())


def _home(pieces):
    return {name: index for index, piece in enumerate(pieces) for name in piece}
