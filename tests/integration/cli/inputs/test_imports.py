"""`windlass models import`: what is refused before a byte is digested, and the id of a folder."""

import json
import struct
from pathlib import Path

import pytest
from tests.support.factories.feather import make_feather, weights
from tests.support.processes.shell import Shell


def test_a_folder_names_its_model(shell: Shell, tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "ticket qwen2")
    assert shell.object("models", "import", str(folder))["id"] == "ticket-qwen2"
    assert shell.object("models", "import", str(folder), "--id", "own")["id"] == "own"


def refusal(shell: Shell, *arguments: str) -> str:
    done = shell.run("models", "import", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    # One line: nothing was read, and nothing was sent.
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", ["模型", "a b", "x/y/z", "ft:a:b"])
def test_an_id_that_cannot_be_is_refused_first(shell: Shell, tmp_path: Path, name: str) -> None:
    folder = make_feather(tmp_path / "模型")
    (folder / "model.safetensors").write_bytes(b"damaged")
    given = () if name == "模型" else ("--id", name)
    assert "id" in refusal(shell, str(folder), *given)


def test_what_is_damaged_or_missing_is_named(shell: Shell, tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(weights()[:-1])
    assert "'model.safetensors' is damaged: it is cut short" in refusal(shell, str(folder))
    (folder / "model.safetensors").write_bytes(weights())
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "names 'model-00001-of-00001.safetensors'" in refusal(shell, str(folder))
    (folder / "model.safetensors.index.json").unlink()
    (folder / "tokenizer.json").unlink()
    assert "The tokenizer is missing" in refusal(shell, str(folder))
    make_feather(folder)
    (folder / "config.json").write_text('{"model_type": "x", "auto_map": {"AutoModel": "x.X"}}')
    assert "models that bring their own code are refused" in refusal(shell, str(folder))
    assert "broken" not in shell.data("models", "list", "-o", "name")


def test_a_taken_id_is_refused_before_anything_is_read(shell: Shell, tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "taken")
    shell.data("models", "import", str(folder))
    assert shell.object("models", "import", str(folder))["id"] == "taken"
    (folder / "model.safetensors").write_bytes(weights(2000))
    done = shell.run("models", "import", str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Another model is named 'taken'" in done.stderr
    wrong = {"WINDLASS_API_KEY": "wl-wrong"}
    done = shell.run("models", "import", str(folder), environment=wrong)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_a_model_without_a_chat_template_is_told_and_given_one(
    shell: Shell, tmp_path: Path
) -> None:
    folder = make_feather(tmp_path / "silent")
    done = shell.run("models", "import", str(folder))
    assert done.returncode == 0, done.stderr
    assert "The model has no chat template" in done.stderr
    assert "--chat-template adds one." in done.stderr

    done = shell.run("models", "import", str(folder), "--id", "talks", "--chat-template", "chatml")
    assert done.returncode == 0, done.stderr
    assert "no chat template" not in done.stderr
    assert "The tokenizer does not have <|im_start|>, <|im_end|>" in done.stderr
    assert not (folder / "chat_template.jinja").exists()
    silent, talks = (shell.object("models", "get", name) for name in ("silent", "talks"))
    assert talks["windlass"]["bytes"] > silent["windlass"]["bytes"]


def test_a_wrong_chat_template_is_refused(shell: Shell, tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "wrong")
    said = refusal(shell, str(folder), "--chat-template", "chatlm")
    assert "chatml, deepseek-coder, gemma, llama3, mistral, qwen" in said
    template = tmp_path / "x.jinja"
    template.write_text("{% for message in messages %}")
    assert "The chat template is wrong" in refusal(
        shell, str(folder), "--chat-template", str(template)
    )


def test_a_type_that_nothing_knows_is_told(shell: Shell, tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "strange")
    (folder / "config.json").write_text('{"model_type": "lama"}')
    done = shell.run("models", "import", str(folder))
    assert done.returncode == 0, done.stderr
    assert "Models of type 'lama' are known neither to the built-in engine" in done.stderr
    assert "Did you mean 'llama'?" in done.stderr
    # Whoever did not import it is told by the model itself.
    (warning,) = json.loads(shell.data("models", "get", "strange", "-o", "json"))["windlass"][
        "warnings"
    ]
    assert warning in " ".join(done.stderr.split())
    assert warning in shell.data("models", "get", "strange")


def test_quantized_weights_are_shown_and_only_engines_that_read_them_start(
    shell: Shell, tmp_path: Path
) -> None:
    folder = make_feather(tmp_path / "packed")
    said = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    config = {"model_type": "llama", "quantization_config": said}
    (folder / "config.json").write_text(json.dumps(config))
    shell.object("models", "import", str(folder))
    shown = shell.object("models", "get", "packed")["windlass"]["quantization"]
    assert shown == {"method": "awq", "bits": 4}
    done = shell.run("models", "activate", "packed", "--engine", "builtin")
    assert (done.returncode, done.stdout) == (1, "")
    assert "quantized by awq with 4 bits, which the engine 'builtin' cannot read" in done.stderr
    assert shell.run("models", "activate", "packed", "--engine", "vllm").returncode == 0
    assert shell.run("models", "deactivate", "packed").returncode == 0

    # A file of GGUF without tensors.
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "model.safetensors").unlink()
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    made = shell.object("models", "import", str(folder), "--id", "one-file")
    assert made["windlass"]["quantization"] == {"method": "gguf", "bits": None}
    done = shell.run("models", "activate", "one-file", "--engine", "vllm")
    assert "of the others llamacpp can" in done.stderr
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0))
    assert "'model.gguf' is damaged" in refusal(shell, str(folder), "--id", "half")
