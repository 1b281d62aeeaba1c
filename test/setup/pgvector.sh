#!/usr/bin/env bash
# Brings a PostgreSQL 16 with the extension pgvector 0.6.2 into .cache/pgvector, from the wheel pgserver of the Python package index, and prints the directory of its programs.
# It does nothing when that is there.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=$root/.cache/pgvector
bin=$dir/pgserver/pginstall/bin
wheel=pgserver-0.1.4-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
sum=d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813

if [[ ! -x $bin/initdb ]]; then
  mkdir -p "$dir"
  "$root/test/setup/packages.sh" python
  python3 -m venv "$dir/venv"
  "$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 --platform manylinux2014_x86_64 --dest "$dir" pgserver==0.1.4 >&2
  echo "$sum  $dir/$wheel" | sha256sum --check --quiet >&2
  python3 -m zipfile -e "$dir/$wheel" "$dir"
  rm -r "$dir/venv" "$dir/$wheel"
  chmod -R a+rX "$dir"
  chmod a+x "$bin"/*
fi
echo "$bin"
