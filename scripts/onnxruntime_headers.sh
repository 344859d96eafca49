#!/usr/bin/env bash
# ONNX Runtime's C++ headers under build/onnxruntime, for the C++ example's test; the library itself is in the wheel.
# From Debian 13's libonnxruntime-dev (85 kB): its C API is kept by every later library.
set -euo pipefail
cd "$(dirname "$0")/.."
FILE=libonnxruntime-dev_1.21.0+dfsg-1_amd64.deb
SHA256=14f7d959d5deacbcf1504830d4189f91fc67382b399ed9ae9d3aa9c4050ced08
test -d build/onnxruntime/usr/include/onnxruntime && exit 0
mkdir -p build/onnxruntime
curl -fsSL --max-time 60 -o build/onnxruntime/headers.deb "https://deb.debian.org/debian/pool/main/o/onnxruntime/$FILE"
echo "$SHA256  build/onnxruntime/headers.deb" | sha256sum --check --quiet
dpkg-deb -x build/onnxruntime/headers.deb build/onnxruntime
