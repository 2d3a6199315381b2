"""Detection of a machine's GPUs by driver output, and the choice of those to use."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass_agent.machine import amd, nvidia
from windlass_agent.machine.devices import Device, named, visible

SAID = """\
0, GPU-8f3c1f0a-aaaa-bbbb-cccc-000000000000, NVIDIA H100 80GB HBM3, 81559
1, GPU-11111111-aaaa-bbbb-cccc-000000000001, NVIDIA GB10, [N/A]
"""
FOUND = tuple(Device(id=f"GPU-{letter}{number}") for number, letter in enumerate("abcc"))


def test_what_nvidia_smi_says_is_read() -> None:
    first, second = nvidia.parsed(SAID, {"GPU-8f3c1f0a-aaaa-bbbb-cccc-000000000000": 3})
    assert first == Device(
        id="GPU-8f3c1f0a-aaaa-bbbb-cccc-000000000000",
        product="NVIDIA H100 80GB HBM3",
        memory_bytes=81559 * 2**20,
        nodes=("/dev/nvidia3",),
    )
    assert (second.memory_bytes, second.nodes) == (0, None)


@given(said=st.text(max_size=400))
@example(said="No devices were found\n")
@example(said="0, GPU-x, a, 1\n")
@example(said="0, GPU-1, a, " + "9" * 400)
def test_any_words_of_nvidia_smi_are_harmless(said: str) -> None:
    for device in nvidia.parsed(said, {}):
        assert 0 <= device.memory_bytes < 2**60
        assert "," not in device.id
        assert "\n" not in device.id


def test_a_device_file_is_found_by_the_uuid(tmp_path: Path) -> None:
    for bus, uuid, minor in (("0000:3b:00.0", "GPU-b", 0), ("0000:18:00.0", "GPU-a", 1)):
        folder = tmp_path / bus
        folder.mkdir()
        text = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(text)
    assert nvidia.minors(tmp_path) == {"GPU-b": 0, "GPU-a": 1}
    assert nvidia.minors(tmp_path / "none") == {}


def kfd(root: Path, number: int, *, bank: int = 0, **said: int) -> None:
    node = root / str(number)
    (node / "mem_banks" / "0").mkdir(parents=True)
    (node / "name").write_text("aldebaran\n")
    lines = [f"{name} {value}" for name, value in said.items()]
    (node / "properties").write_text("\n".join(lines))
    (node / "mem_banks" / "0" / "properties").write_text(f"heap_type 1\nsize_in_bytes {bank}\n")


def test_what_kfd_says_is_read(tmp_path: Path) -> None:
    kfd(tmp_path, 0, simd_count=0, bank=2**40)
    kfd(tmp_path, 10, simd_count=440, unique_id=0, drm_render_minor=129, bank=2**35)
    kfd(tmp_path, 2, simd_count=440, unique_id=0xABC, drm_render_minor=128, bank=2**36)
    first, second = amd.devices(tmp_path)
    assert first == Device(
        id="GPU-0000000000000abc", vendor="amd", product="aldebaran", memory_bytes=2**36,
        nodes=("/dev/dri/renderD128",),
    )  # fmt: skip
    # Without an id of its own it is known by a number, which counts what can be reached.
    assert (second.id, second.nodes) == ("1", None)
    assert amd.devices(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("0,2", ["GPU-a0", "GPU-c2"]), ("GPU-b", ["GPU-b1"]), ("1,1,0", ["GPU-b1", "GPU-a0"]),
        ("", []), ("-1", []), ("0,9,1", ["GPU-a0"]), ("0,x,1", ["GPU-a0"]), ("GPU-c,0", []),
        ("MIG-1/2", ["MIG-1/2"]), ("99999999999999999999", []), ("²", []),
    ],
)  # fmt: skip
def test_the_vendors_variable_leaves_what_it_names(value: str, ids: list[str]) -> None:
    assert [one.id for one in visible(FOUND, {"CUDA_VISIBLE_DEVICES": value})] == ids


def test_without_the_variable_all_are_there() -> None:
    assert visible(FOUND, {}) == FOUND
    radeon = (Device(id="GPU-1", vendor="amd"),)
    assert visible(radeon, {"CUDA_VISIBLE_DEVICES": ""}) == radeon
    assert visible(radeon, {"ROCR_VISIBLE_DEVICES": ""}) == ()


def test_configured_devices_are_looked_up_or_taken_at_their_word() -> None:
    assert named(["1", "GPU-a0", "0"], FOUND) == (FOUND[1], FOUND[0])
    assert named(["fake-0", "fake-1"], ()) == (Device(id="fake-0"), Device(id="fake-1"))
    assert named([], FOUND) == ()
