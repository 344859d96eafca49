#!/usr/bin/env bash
# Do the requirements of `make setup` fit together on an ordinary machine, one that has the default package index and
# nothing else? uv reads the packages' metadata alone; pip would download the CUDA build of PyTorch to find out.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BIN:?where the programs of .venv are}" "${EXTRAS:?the extras that make setup installs}"

# An empty configuration: no find-links, no extra index, no cache. Kept is only what reaches the default index from here.
index=$(env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL "$BIN/pip" config get global.index-url 2>/dev/null || true)
index=${PIP_INDEX_URL:-$index}
empty=(env -i "PATH=$PATH" "HOME=$(mktemp -d)" UV_PYTHON_DOWNLOADS=never MACOSX_DEPLOYMENT_TARGET=14.0)
for variable in SSL_CERT_FILE SSL_CERT_DIR HTTPS_PROXY https_proxy NO_PROXY no_proxy; do
  [ -z "${!variable:-}" ] || empty+=("$variable=${!variable}")
done
[ -z "$index" ] || empty+=("UV_DEFAULT_INDEX=$index")

extras=()
for extra in ${EXTRAS//,/ }; do extras+=(--extra "$extra"); done

for platform in x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-pc-windows-msvc; do
  case $platform in x86_64-manylinux*) pythons="3.11 3.12 3.13 3.14" ;; *) pythons="3.11 3.14" ;; esac
  for python in $pythons; do
    if ! found=$("${empty[@]}" "$BIN/uv" pip compile pyproject.toml "${extras[@]}" --constraints constraints.txt \
      --only-binary :all: --python-platform "$platform" --python-version "$python" \
      --quiet --no-config --no-header --no-annotate 2>&1); then
      printf '%s\n' "$found" >&2
      echo "make setup would fail on $platform with Python $python and nothing but the default index" >&2
      exit 1
    fi
    echo "$platform, Python $python: $(grep -E '^(torch|triton)==' <<<"$found" | xargs)"
  done
done
