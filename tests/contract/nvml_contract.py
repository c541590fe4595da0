"""What every implementation of `Nvml` does, asked of a machine of eight H100s (and, where it says so, A100s or boards without MIG)."""

from __future__ import annotations

import pytest

from gpu_dra.hardware.nvml_errors import (
    GpuLost,
    InsufficientResources,
    InUse,
    InvalidArgument,
    NotFound,
    NotSupported,
    Uninitialized,
)
from gpu_dra.model.gpu import MigMode
from gpu_dra.model.mig import Placement

ONE_SLICE, TWO_SLICES, THREE_SLICES, SEVEN_SLICES = 0, 1, 2, 4
"""Kinds of GPU-instance profiles; the first three are also kinds of compute-instance profiles."""


class NvmlContract:
    """Subclasses give the fixtures `open_machine(name)`, which answers an open `Nvml`, and `lose(nvml, index)`."""

    @pytest.fixture
    def nvml(self, open_machine):
        return open_machine("h100x8")

    def partition(self, nvml, gpu, kind, placement=None):
        """A GPU instance and the compute instance that fills it."""
        profile = nvml.gpu_instance_profile(gpu, kind)
        instance = nvml.create_gpu_instance(gpu, profile.profile.profile_id, placement)
        compute_profile = nvml.compute_instance_profile(instance, kind)
        return instance, nvml.create_compute_instance(instance, compute_profile.profile_id)

    @pytest.fixture
    def gpu(self, nvml):
        """A GPU in MIG mode."""
        gpu = nvml.gpu(0)
        nvml.set_mig_mode(gpu, enabled=True)
        return gpu

    def test_a_call_before_open_is_refused(self, nvml):
        nvml.close()
        with pytest.raises(Uninitialized):
            nvml.gpu_count()
        nvml.open()

    def test_every_gpu_has_an_identity_of_its_own(self, nvml):
        gpus = [nvml.gpu(index) for index in range(nvml.gpu_count())]
        assert len(gpus) == 8
        for ask in (nvml.uuid, nvml.pci, nvml.minor):
            assert len({ask(gpu) for gpu in gpus}) == 8
        assert all(nvml.uuid(gpu).startswith("GPU-") for gpu in gpus)

    def test_an_index_without_a_gpu_is_an_error(self, nvml):
        with pytest.raises(InvalidArgument):
            nvml.gpu(99)

    def test_the_facts_of_a_board_are_answered(self, nvml):
        gpu = nvml.gpu(3)
        assert nvml.name(gpu) == "NVIDIA H100 80GB HBM3"
        assert nvml.cuda_compute_capability(gpu) == (9, 0)
        assert nvml.memory_bytes(gpu) == 81559 << 20
        assert nvml.architecture(gpu) == 9
        assert nvml.addressing_mode(gpu) == 1
        assert nvml.recovery_action(gpu) == 0
        assert nvml.driver_version() == "580.105.08"
        assert nvml.cuda_driver_version() == (13, 0)

    def test_a_board_without_mig_says_so(self, open_machine):
        nvml = open_machine("t4x1")
        with pytest.raises(NotSupported):
            nvml.mig_mode(nvml.gpu(0))
        assert nvml.most_mig_devices(nvml.gpu(0)) == 0

    def test_a_lost_gpu_answers_nothing_and_the_others_go_on(self, nvml, lose):
        lose(nvml, 2)
        with pytest.raises(GpuLost):
            nvml.memory_bytes(nvml.gpu(2))
        assert nvml.memory_bytes(nvml.gpu(3)) > 0

    def test_hopper_changes_mig_mode_at_once(self, nvml):
        assert nvml.set_mig_mode(nvml.gpu(0), enabled=True).mode == MigMode(current=True, pending=True)

    def test_ampere_waits_for_a_reset(self, open_machine):
        nvml = open_machine("a100x8")
        change = nvml.set_mig_mode(nvml.gpu(0), enabled=True)
        assert change.mode == MigMode(current=False, pending=True)
        assert change.blocked_by is not None

    def test_profiles_carry_nvmls_names_without_the_word_mig(self, nvml, gpu):
        profile = nvml.gpu_instance_profile(gpu, THREE_SLICES)
        assert (profile.profile.name, profile.profile.profile_id, profile.slices) == ("3g.40gb", 9, 3)

    def test_a_kind_that_the_board_lacks_is_an_error(self, nvml, gpu):
        with pytest.raises((NotSupported, InvalidArgument)):
            nvml.gpu_instance_profile(gpu, 0x11)

    def test_placements_are_told_whether_occupied_or_not(self, nvml, gpu):
        placements = nvml.possible_placements(gpu, 9)
        assert placements == (Placement(start=0, size=4), Placement(start=4, size=4))

    def test_a_partition_sits_where_it_was_put_and_has_a_uuid(self, nvml, gpu):
        instance, compute = self.partition(nvml, gpu, THREE_SLICES, Placement(start=4, size=4))
        assert nvml.gpu_instance_info(instance).placement == Placement(start=4, size=4)
        device = nvml.compute_instance_info(compute).device
        assert nvml.uuid(device).startswith("MIG-")
        assert nvml.mig_device_info(device).fills_its_gpu_instance

    def test_a_partition_is_found_by_walking_the_mig_devices(self, nvml, gpu):
        _, compute = self.partition(nvml, gpu, TWO_SLICES)
        wanted = nvml.uuid(nvml.compute_instance_info(compute).device)
        found = []
        for index in range(nvml.most_mig_devices(gpu)):
            try:
                found.append(nvml.uuid(nvml.mig_device(gpu, index)))
            except NotFound:
                continue
        assert found == [wanted]

    def test_an_occupied_place_is_refused(self, nvml, gpu):
        self.partition(nvml, gpu, THREE_SLICES, Placement(start=0, size=4))
        with pytest.raises(InsufficientResources):
            nvml.create_gpu_instance(gpu, 19, Placement(start=2, size=1))

    def test_compute_slices_run_out_before_memory_slices(self, nvml, gpu):
        """Seven instances of one slice leave the eighth memory slice unused."""
        for _ in range(7):
            self.partition(nvml, gpu, ONE_SLICE)
        with pytest.raises(InsufficientResources):
            self.partition(nvml, gpu, ONE_SLICE)

    def test_an_instance_with_contents_cannot_be_destroyed(self, nvml, gpu):
        instance, compute = self.partition(nvml, gpu, ONE_SLICE)
        with pytest.raises(InUse):
            nvml.destroy_gpu_instance(instance)
        nvml.destroy_compute_instance(compute)
        nvml.destroy_gpu_instance(instance)
        assert nvml.gpu_instances(gpu, 19) == ()

    def test_ids_are_used_again(self, nvml, gpu):
        instance, compute = self.partition(nvml, gpu, ONE_SLICE)
        first = nvml.gpu_instance_info(instance).id
        nvml.destroy_compute_instance(compute)
        nvml.destroy_gpu_instance(instance)
        instance, _ = self.partition(nvml, gpu, ONE_SLICE)
        assert nvml.gpu_instance_info(instance).id == first

    def test_mig_mode_stays_on_while_there_are_instances(self, nvml, gpu):
        self.partition(nvml, gpu, ONE_SLICE)
        assert nvml.set_mig_mode(gpu, enabled=False).blocked_by == 19
        assert nvml.mig_mode(gpu).current
