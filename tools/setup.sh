#!/usr/bin/env bash
# Installs Windlass with everything it needs into a virtual environment.
# Says what and how much first; does nothing when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
venv="${VENV:-.venv}"
index="${TORCH_INDEX:-}"
torch="2.13.0"

"$python" - <<'EOF' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Windlass needs Python 3.11 or newer; this is {sys.version.split()[0]}. Set PYTHON=.")
EOF

stamp="$venv/.windlass-setup"
wanted="$(cat pyproject.toml constraints.txt tools/setup.sh | sha256sum | cut -d' ' -f1)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)

if ! "$venv/bin/python" -c "import torch" 2>/dev/null; then
  if [ -n "$index" ]; then
    echo "Installing torch $torch from $index into $venv."
    "${pip[@]}" --index-url "$index" "torch==$torch"
  else
    echo "Installing torch $torch into $venv: about 4.7 GB with its CUDA libraries (TORCH_INDEX=URL for a smaller build)."
    "${pip[@]}" "torch==$torch"
  fi
fi
echo "Installing Windlass and its tools into $venv: about 1 GB (transformers, TRL, gRPC, Postgres binaries, test tools)."
"${pip[@]}" --constraint constraints.txt hatchling editables
"${pip[@]}" --constraint constraints.txt --no-build-isolation --editable ".[all,dev]"
# What runs behind walls, or in a pod, may not write its bytecode.
"$venv/bin/python" -m compileall -q services agent
echo "$wanted" > "$stamp"
echo "Done: $venv"
