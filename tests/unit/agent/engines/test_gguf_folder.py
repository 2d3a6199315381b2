"""llama.cpp's keeper on a model folder that has a GGUF file of its own."""

from pathlib import Path

from windlass_agent.engines.llamacpp.conversion import write_model


async def test_its_own_file_is_served_as_it_is(tmp_path: Path) -> None:
    own, parts = tmp_path / "own", tmp_path / "parts"
    for folder, names in (
        (own, ["m.Q4_K_M.gguf"]),
        (parts, ["d-00002-of-00002.gguf", "d-00001-of-00002.gguf"]),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(b"GGUF")
    found = await write_model(own, parts, name="m")
    # Of several parts the server finds the others.
    assert found == [own / "m.Q4_K_M.gguf", parts / "d-00001-of-00002.gguf"]
