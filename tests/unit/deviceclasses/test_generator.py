"""What a person who adds a row is told when the row is wrong."""

import pytest

from hack.gen.deviceclasses import SOURCE, read

GOOD = """
[[types]]
name = "gpu.nvidia.com"
file = "nvidia"
type = "gpu"
about = "A whole GPU."
[models]
t4 = "T4"
[memory.gpu]
percent = 93
gib = [16]
[mig]
slices = [1]
"""


@pytest.fixture
def table(tmp_path):
    def written(text):
        file = tmp_path / "table.toml"
        file.write_text(text)
        return file

    return written


def test_rows_become_classes_in_their_order(table):
    assert [each.name for each in read(table(GOOD))] == ["gpu.nvidia.com", "gpu-t4", "gpu-mem-16", "mig-1g"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "gpu.nvidia.com"', 'name = "GPU"', "class name 'GPU'"),
        ('type = "gpu"', 'type = "tpu"', "class gpu.nvidia.com: type 'tpu' is none of gpu, mig, vfio"),
        ('t4 = "T4"', 't4 = "T4|A10"', "models.t4: 'T4|A10'"),
        ('t4 = "T4"', 't4 = "T4 "', "models.t4: 'T4 '"),
        ('t4 = "T4"', "t4 = 4", "models.t4: 4 is not words"),
        ("gib = [16]", "gib = [16, 16]", "more than one class is named gpu-mem-16"),
        ("gib = [16]", 'gib = ["16"]', "memory.gpu: percent and gib are whole numbers above 0"),
        ("percent = 93", "percent = 0.93", "memory.gpu: percent and gib are whole numbers above 0"),
        ("[memory.gpu]", "[memory.tpu]", "type 'tpu' is none of gpu, mig, vfio"),
        ('about = "A whole GPU."', 'about = """A\n---"""', "about is one line"),
        ("[mig]", "[mug]", "mig"),
    ],
)
def test_a_wrong_row_is_named(table, old, new, message):
    with pytest.raises((ValueError, KeyError)) as caught:
        read(table(GOOD.replace(old, new)))
    assert message in str(caught.value)


def test_the_table_of_this_checkout_is_right():
    assert read(SOURCE)
