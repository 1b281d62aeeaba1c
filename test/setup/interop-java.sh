#!/usr/bin/env bash
# Fetches Iceberg's Java library and compiles the Java reader of the interop tests against it, in .cache/java; prints the
# class path as the last line. It does nothing when both are up to date; several runs at once wait for each other.
set -euo pipefail

setup=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$setup/../.." && pwd)
java=$root/.cache/java
wanted=$(cat "$setup/interop-pom.xml" "$root"/test/interop/java/*.java | sha256sum | cut -d' ' -f1)

mkdir -p "$java"
exec 9>"$root/.cache/java.lock"
flock 9
if [[ "$(cat "$java/installed" 2>/dev/null)" != "$wanted" ]]; then
  rm -rf "$java"
  mkdir -p "$java/classes"
  mvn -q -B -f "$setup/interop-pom.xml" dependency:copy-dependencies -DoutputDirectory="$java/lib" >&2
  javac -d "$java/classes" -cp "$java/lib/*" "$root"/test/interop/java/*.java >&2
  echo "$wanted" >"$java/installed"
fi
echo "$java/classes:$java/lib/*"
