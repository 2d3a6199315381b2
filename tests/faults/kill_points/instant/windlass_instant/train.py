"""Writes what a trainer writes: events, checkpoints with a state to go on from, and a model."""

import argparse
import json
from pathlib import Path

TOKENS_PER_STEP = 100
ADAPTER = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    asked = parser.parse_args()
    history = []
    if asked.resume:
        history = json.loads((asked.resume / "trainer_state.json").read_text())["log_history"]
    total = asked.epochs * asked.steps

    with asked.metrics.open("ab", buffering=0) as file:

        def tell(event: str, step: int, **fields: object) -> None:
            line = {"event": event, "step": step, "total_steps": total, **fields}
            file.write(json.dumps(line).encode() + b"\n")

        tell("began", len(history))
        for step in range(len(history) + 1, total + 1):
            logs = {"loss": 1 / step}
            history.append({"step": step, **logs})
            tell("logged", step, logs=logs, trained_tokens=step * TOKENS_PER_STEP)
            if step % asked.steps == 0:
                folder = asked.output / f"checkpoint-{step}"
                write_model(folder, step)
                (folder / "optimizer.pt").write_bytes(b"state")
                (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}))
                tell("saved", step, path=str(folder))
        write_model(asked.output, total)
        tell("ended", total)


def write_model(folder: Path, step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    (folder / "adapter_model.safetensors").write_bytes(b"weights of step %d" % step)


if __name__ == "__main__":
    main()
