#!/usr/bin/env bash
# Makes the Python environment of the interop tests in .cache/venv and prints its path as the last line. It does nothing
# when the environment already holds what interop-requirements.txt asks for; several runs at once wait for each other.
#
# DuckDB's extensions come as wheels duckdb-extension-NAME of DuckDB's own version. A wheel holds one signed file,
#   site-packages/duckdb_extension_NAME/extensions/vVERSION/NAME.duckdb_extension
# which stock DuckDB of that version takes with LOAD '<that path>': no INSTALL, no download, no allow_unsigned_extensions.
# iceberg needs avro loaded before it; httpfs is needed only for catalogs over HTTP.
set -euo pipefail

setup=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$setup/../.." && pwd)
venv=$root/.cache/venv
wanted=$(sha256sum "$setup/interop-requirements.txt" | cut -d' ' -f1)

mkdir -p "$root/.cache"
exec 9>"$root/.cache/venv.lock"
flock 9
if [[ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$setup/interop-requirements.txt" >&2
  "$venv/bin/pip" check --disable-pip-version-check >&2
  echo "$wanted" >"$venv/installed"
fi
echo "$venv"
