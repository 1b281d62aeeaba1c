#!/usr/bin/env bash
# Compares the component benchmarks of a revision with those of the work tree: compare.sh REVISION [BENCH [COUNT]]. Both sides run
# in turn, COUNT times, so that what else the machine does falls on both; benchstat says which differences are more than chance.
set -euo pipefail

revision=${1:?which revision to compare with}
bench=${2:-.}
count=${3:-10}
# Not in go.mod: nothing that is built needs it.
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
# duckdb is left out by default: linking it takes minutes. PACKAGES='duckdb' compares it.
read -ra packages <<<"${PACKAGES:-pgcdc globalindex deletion readstate iceberg mirror}"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/old" "$work/bin"
git -C "$root" archive "$revision" | tar -x -C "$work/old"
declare -A tree=([old]=$work/old [new]=$root)

for side in old new; do
  for package in "${packages[@]}"; do
    (cd "${tree[$side]}" && go test -c -o "$work/bin/$side-$package" "./$package")
  done
done
for ((round = 1; round <= count; round++)); do
  for package in "${packages[@]}"; do
    for side in old new; do
      echo "round $round of $count, $package, $side" >&2
      (cd "${tree[$side]}/$package" && "$work/bin/$side-$package" -test.run '^$' -test.bench "$bench" -test.benchtime 0.2s) >>"$work/$side.txt"
    done
  done
done
go run "$benchstat" "$revision=$work/old.txt" "tree=$work/new.txt"
