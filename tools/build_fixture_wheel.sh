#!/usr/bin/env bash
# build_fixture_wheel.sh COMMIT: the wheel of a release, for the tests that let its agent meet the
# server of today. Give it the tag of the release before; it replaces the wheel that is there.
set -euo pipefail
commit=$1
root=$(git rev-parse --show-toplevel)
target=$root/tests/fixtures/wheels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/source"
git -C "$root" archive "$commit" | tar -x -C "$work/source"
"$root/.venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$work/source"
rm -f "$target"/*.whl
cp "$work"/*.whl "$target/"
git -C "$root" rev-parse "$commit" > "$target/COMMIT"
ls -l "$target"
