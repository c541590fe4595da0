"""The contract of `Nvml`, held by the fake in this process and by the C library through nvidia-ml-py."""

from __future__ import annotations

import pytest

from gpu_dra.hardware.fake import FakeNvml
from gpu_dra.hardware.pynvml_adapter import PynvmlAdapter
from gpu_dra.hardware.simulated import simulated_machine
from hack.testbed import mock_nvml
from hack.testbed.mock_nvml import MockNvml
from hack.testbed.profiles import load_machine
from tests.contract.nvml_contract import NvmlContract


class TestFakeNvml(NvmlContract):
    """The fake that ships."""

    @pytest.fixture
    def open_machine(self):
        def open_it(name):
            nvml = FakeNvml(simulated_machine(name))
            nvml.open()
            return nvml

        return open_it

    @pytest.fixture
    def lose(self):
        def lose_it(nvml, index):
            nvml.gpus[index].lost = True

        return lose_it


class TestPynvmlOnTheMockedLibrary(NvmlContract):
    """The adapter the product uses, on the C library that stands in for the driver's."""

    @pytest.fixture
    def mocks(self):
        return {}

    @pytest.fixture
    def open_machine(self, tmp_path, monkeypatch, mocks):
        opened = []

        def open_it(name):
            built = mock_nvml.build()
            state = tmp_path / f"{name}.state"
            monkeypatch.setenv("MOCK_NVML_STATE", str(state))
            nvml = PynvmlAdapter(lambda: built.library)
            mocks[id(nvml)] = MockNvml.create(state, load_machine(name), built, host_tree=tmp_path / "proc")
            nvml.open()
            opened.append(nvml)
            return nvml

        yield open_it
        for nvml in opened:
            nvml.close()

    @pytest.fixture
    def lose(self, mocks):
        def lose_it(nvml, index):
            mocks[id(nvml)].lose(index)

        return lose_it
