#!/usr/bin/env bash
# Installs Windlass into a virtual environment: first what it runs with, then what its tests need.
# `tools/setup.sh runtime` leaves the second out. Says before each step what comes and how much;
# skips a step that is done.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
venv="${VENV:-.venv}"
torch="2.13.0"
cpu_index="https://download.pytorch.org/whl/cpu"

"$python" - <<'EOF' || exit 1
import sys
if sys.version_info < (3, 11):
    sys.exit(f"Windlass needs Python 3.11 or newer; this is {sys.version.split()[0]}. Set PYTHON=.")
EOF

wanted="$(cat pyproject.toml plugin/pyproject.toml constraints.txt tools/setup.sh | sha256sum | cut -d' ' -f1)"
is_done() { [ "$(cat "$venv/.windlass-$1" 2>/dev/null)" = "$wanted" ]; }
finish() { echo "$wanted" >"$venv/.windlass-$1"; }

# A terminal sees pip's bars, a log one line for each step.
pip=("$venv/bin/python" -m pip install --disable-pip-version-check)
[ -t 1 ] || pip+=(--quiet)

has_torch() {
  "$venv/bin/python" -c "
import sys, torch
sys.exit(not torch.__version__.startswith('${torch%.*}.'))" 2>/dev/null
}
has_gpu() { nvidia-smi --list-gpus >/dev/null 2>&1; }
# Whether an index has torch without CUDA; asks for its list of versions only, and for 10 s at most.
offers_cpu_build() {
  local versions
  versions="$(timeout 10 "$venv/bin/python" -m pip index versions torch --retries 0 --timeout 5 "$@" 2>/dev/null)" &&
    [[ "$versions" == *"Available versions:"*" $torch+cpu"* ]]
}

install_torch() {
  if [ -n "${TORCH_INDEX:-}" ]; then
    echo "Installing torch $torch from $TORCH_INDEX into $venv."
    "${pip[@]}" --index-url "$TORCH_INDEX" "torch==$torch"
    return
  fi
  local cuda="about 4.7 GB with its CUDA libraries" from=()
  if [ "$(uname -s)" != Linux ]; then
    echo "Installing torch $torch into $venv."
  elif has_gpu; then
    echo "Installing torch $torch into $venv: $cuda, for this machine's GPU."
  elif offers_cpu_build || { from=(--index-url "$cpu_index") && offers_cpu_build "${from[@]}"; }; then
    echo "Installing torch $torch for the CPU into $venv: about 0.7 GB; no NVIDIA GPU is here."
    # Whatever else it needs comes with Windlass, in the versions of constraints.txt.
    "${pip[@]}" "${from[@]}" --no-deps "torch==$torch+cpu"
    return
  else
    echo "Installing torch $torch into $venv: $cuda. No NVIDIA GPU is here, but no index within" \
      "reach offers a build for the CPU (TORCH_INDEX=URL names one)."
  fi
  "${pip[@]}" "torch==$torch"
}

install_runtime() {
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  has_torch || install_torch
  echo "Installing Windlass into $venv: about 0.9 GB (transformers, TRL, gRPC, Postgres binaries)."
  "${pip[@]}" --constraint constraints.txt hatchling editables
  "${pip[@]}" --constraint constraints.txt --no-build-isolation --editable ".[all]"
  # What runs behind walls, or in a pod, may not write its bytecode.
  "$venv/bin/python" -m compileall -q services agent
  finish runtime
}

install_test_tools() {
  echo "Installing what its tests need into $venv: about 0.3 GB (pytest, mypy, ruff, generators)."
  # Windlass is installed by now, so that pip adds only what this extra names.
  "${pip[@]}" --constraint constraints.txt "windlass[dev]"
  "${pip[@]}" --constraint constraints.txt --no-build-isolation --editable plugin
  # What tests compare our APOLLO with. It wants bitsandbytes, which no test calls.
  "${pip[@]}" --no-deps apollo-torch==1.0.3
  finish setup
}

if is_done setup || { [ "${1:-}" = runtime ] && is_done runtime; }; then exit 0; fi
is_done runtime || install_runtime
[ "${1:-}" = runtime ] || install_test_tools
echo "Done in $SECONDS s: $venv"
