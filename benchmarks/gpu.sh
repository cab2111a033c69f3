#!/usr/bin/env bash
# The benches on a GPU, on a random bf16 model in the shape of Qwen2.5-VL-3B, and one GRPO step with vLLM:
#     benchmarks/gpu.sh [FOLDER]              results in FOLDER (default: bench-gpu): table.md, one JSON a bench, grpo.log
#     SMALL=1 benchmarks/gpu.sh [FOLDER]      the same commands with a tiny model; runs on a CPU in some minutes
# Needs an installed vtgrl and, for the GRPO step, vLLM (pip install 'vtgrl[vllm]'); for `step` also TRL (pip install 'vtgrl[bench]').
# What is not there is named and left out.
#   PYTHON   interpreter (default: .venv/bin/python, else python3)
#   PROMPT   tokens of a prompt, ANSWER of an answer, GROUP answers of a prompt (7168, 512, 8)
#   LAYERS   text layers of the benched model, of 36: the usual way needs about 8 GB of activations a layer for 8 x 7,680 tokens
#            (default: 8 for 80 GB; take 12 for 141 GB). The GRPO step runs all 36.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-bench-gpu}
python=${PYTHON:-.venv/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
mkdir -p "$out"

if [ -n "${SMALL:-}" ]; then
  prompt=${PROMPT:-120} answer=${ANSWER:-8} group=${GROUP:-4} dtype=fp32 side=2 images=2 bucket=1
  frames=16 rows=64 lora=4 clips=4
  model=$out/model full=$out/model
  "$python" -c "from pathlib import Path; from vtgrl.model.tiny import build_tiny; build_tiny(Path('$model'), family='qwen2_5_vl', layers=2)"
else
  prompt=${PROMPT:-7168} answer=${ANSWER:-512} group=${GROUP:-8} dtype=bf16 side=8 bucket=512
  images=$((prompt / 72)) frames=$((prompt / 36 / 2 * 2)) rows=4096 lora=16 clips=8
  model=$out/model full=$out/model36
  "$python" -m vtgrl.bench.measure.shaped "$model" --layers "${LAYERS:-8}" --dtype $dtype
  "$python" -m vtgrl.bench.measure.shaped "$full" --dtype $dtype
fi
has() { "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
common=(model="$model" dtype="$dtype")
sizes=(answer="$answer" answers="$group")
clip=(frames="$frames" side="$side")

benches=(
  prefix "${common[@]}" "${sizes[@]}" prompt="$prompt" "${clip[@]}" repeats=3
  -- vision-group "${common[@]}" "${sizes[@]}" "${clip[@]}"
  -- vision-shuffle "${common[@]}" "${sizes[@]}" "${clip[@]}"
  -- sensitivity "${common[@]}" "${sizes[@]}" "${clip[@]}"
  -- headskip "${common[@]}" prompt="$prompt" answer="$answer" repeats=3
  -- logprob rows="$rows" hidden=2048 repeats=3
  -- packing "${common[@]}" longest="$prompt" answer="$answer" row=$((2 * prompt)) samples=8 batch=4 repeats=3
  -- group-memory "${common[@]}" answer="$answer" prompt="$prompt" "${clip[@]}" groups="[2, $group]"
)
if has trl; then
  benches+=(-- step "${common[@]}" "${sizes[@]}" prompt="$prompt" prompts=1 images="$images" side="$side" micro_batch=1 repeats=3)
else
  echo "left out: step (TRL is not installed)" >&2
fi
if [ "$gpus" -ge 2 ] || [ -n "${SMALL:-}" ]; then
  benches+=(-- sync "${common[@]}" ranks=$((gpus > 2 ? gpus : 2)) bucket_mb=$bucket)
else
  echo "left out: sync (it needs two GPUs)" >&2
fi

status=0
benchmarks/all.sh "$python" "$out" "${benches[@]}" || status=$?

engine=vllm_colocate
if ! has vllm; then
  engine=hf
  echo "no vLLM: the GRPO step draws with the hf engine" >&2
fi
rm -rf "$out/world" "$out/grpo" # of an earlier call
"$python" -m vtgrl data world --out "$out/world" --n $clips --val-every 0 >/dev/null
"$python" -m vtgrl train grpo model.path="$full" model.dtype=$dtype model.lora.r=$lora data.path="$out/world/world.jsonl" data.prompt=direct \
  data.max_prompt_tokens=4096 rollout.engine=$engine rollout.n="$group" rollout.sampling.max_tokens=32 train.steps=1 train.batch=2 train.save_every=0 \
  --run-dir "$out/grpo" >"$out/grpo.log" 2>&1 || { tail -n 3 "$out/grpo.log" >&2; exit 1; }
printf '\nOne GRPO step, %s, all layers, LoRA:\n\n    %s\n' "$engine" "$(tail -n 1 "$out/grpo/metrics.jsonl")" | tee -a "$out/table.md"
exit $status
