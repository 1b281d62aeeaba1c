#!/usr/bin/env bash
# Sees to the programs that the tests and the demo use and that neither Go nor .cache brings: a PostgreSQL server and, for the
# readers of the interop tests, Python and Java (and xz, for make test-versions). It installs what is missing when it is root
# on a Debian, and otherwise says what to install. With an argument (postgres, python, java, xz) it looks after those alone. It does nothing when all are there.
set -euo pipefail

have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
have_python() { python3 -c 'import ensurepip, venv' 2>/dev/null; }
have_java() { command -v javac >/dev/null && command -v mvn >/dev/null; }
have_xz() { command -v xz >/dev/null; }

declare -A packages=([postgres]=postgresql [python]='python3 python3-venv' [java]='default-jdk-headless maven' [xz]=xz-utils)
missing=()
for program in "${@:-postgres python java}"; do
  for one in $program; do
    "have_$one" || missing+=(${packages[$one]})
  done
done
((${#missing[@]} == 0)) && exit 0

if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (names of Debian's packages); install them and try again" >&2
  exit 1
fi
echo "installing ${missing[*]}" >&2
apt-get update -qq >&2
# At run level 1 Debian's packages start no service: the tests start servers of their own.
RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
