#!/usr/bin/env bash
# The whole round on one GPU: proof, tuning, tables, times. Results go to the folder in $1.
# About ten minutes on an NVIDIA H200 with 16 processor cores.
set -u
out=${1:?usage: full_round.sh FOLDER [PYTHON]}
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
measure() { timeout -s KILL "$1" "$python" "$here/measure.py" "${@:2}"; }
tune() { measure "$1" tune "${@:2}" --processes 14 --quick 3 --samples 12 --prefix h200- --out "$out"; }
step() { echo "== $(date +%T) $*"; }

step deep checks, side by side: other work on the device makes races likelier
small="tiny_sparse one_hot_expert decode_like_sparse dense_small"
(
  measure 150 check per_token_quant_int8 expert_offsets --repeats 200 &
  measure 150 check silu_mul_quant_int8 --repeats 300 --candidate torch_steps triton_steps triton_fused --out "$out" --prefix h200-silu-mul-quant- &
  measure 150 check rms_norm --repeats 200 --candidate torch_steps torch_functional triton_row &
  measure 150 check greedy_top1 moe_prologue shared_expert_add --repeats 60 &
  measure 150 check moe_layerlet --case $small decode_tp4_t1 --repeats 200 --candidate triton_steps triton_row_steps triton_two_launches triton_one_launch &
  measure 150 check grouped_gemm_w8a8 --repeats 30 --candidate triton_grouped triton_rows &
  measure 150 self-test --repeats 200 --out "$out" --prefix h200- &
  wait
) > "$out/checks.log" 2>&1
grep -v '^ok' "$out/checks.log"

t1="decode_tp4_t1" t8="decode_tp4_t8" t64="decode_tp4_t64"
step layerlet, one token
tune 90 moe_layerlet --case $t1 --candidate triton_two_launches --only '{"MATH":["dp4a"],"EARLY":[1],"BLOCK_N1":[1,2,4],"BLOCK_K1":[512,1024,2048],"BLOCK_N2":[16,32,64,128],"num_warps":[1,2,4]}' --budget 300 --repeats 300
tune 80 moe_layerlet --case $t1 --candidate triton_row_steps --repeats 100
step grouped GEMM, every legal configuration
tune 240 grouped_gemm_w8a8 --case ${t1}_gemm1 --candidate triton_grouped
tune 50 grouped_gemm_w8a8 --case ${t1}_gemm1 --candidate triton_rows
tune 50 grouped_gemm_w8a8 --case ${t1}_gemm2 --candidate triton_rows
step eight tokens
tune 50 grouped_gemm_w8a8 --case ${t8}_gemm1 --candidate triton_grouped --only '{"SPLIT_K":[1,2]}' --budget 100 --repeats 60
tune 60 moe_layerlet --case $t8 --candidate triton_two_launches --only '{"BLOCK_K1":[512,1024,2048],"EARLY":[1]}' --budget 120 --repeats 60
step sixty-four tokens
tune 60 grouped_gemm_w8a8 --case ${t64}_gemm1 --candidate triton_grouped --only '{"SPLIT_K":[1],"BLOCK_M":[16]}' --budget 60 --repeats 20
step times
measure 60 bench moe_layerlet --case $t1 $t8 $t64 --out "$out" --prefix h200-layerlet-
measure 40 bench silu_mul_quant_int8 --case r8_i128_normal r512_i128_normal --candidate torch_steps triton_steps triton_fused
measure 40 bench greedy_top1 --case t1_bf16 t64_bf16
measure 40 bench expert_offsets moe_prologue shared_expert_add --case $t1 $t64
step end
