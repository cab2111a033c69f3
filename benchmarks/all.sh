#!/usr/bin/env bash
# Run benches, each in a process of its own, and put their JSON and a table into a folder:
#     benchmarks/all.sh PYTHON FOLDER [NAME [KEY=VALUE]...] [-- NAME [KEY=VALUE]...]...
# Without names: every bench that is registered, at full size. A bench that fails is named at the end; the others still run.
set -uo pipefail
python=$1 folder=$2
shift 2
mkdir -p "$folder"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false
failed=()

run() { # NAME [KEY=VALUE]...
  echo "vtgrl bench $*" >&2
  if "$python" -m vtgrl bench "$@" --json >"$folder/$1.json.part" 2>"$folder/$1.log"; then
    mv "$folder/$1.json.part" "$folder/$1.json"
  else
    rm -f "$folder/$1.json.part"
    tail -n 1 "$folder/$1.log" >&2
    failed+=("$1")
  fi
}

if [ $# -eq 0 ]; then
  names=$("$python" -m vtgrl ls bench --json | "$python" -c 'import json, sys; print(*(e["name"] for e in json.load(sys.stdin)))') || exit 1
  for name in $names; do run "$name"; done
fi
while [ $# -gt 0 ]; do
  words=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do words+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  run "${words[@]}"
done

"$python" -m vtgrl.bench.table "$folder" | tee "$folder/table.md"
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}; see $folder/NAME.log" >&2
  exit 1
fi
