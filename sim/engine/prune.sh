#!/usr/bin/env bash
# prune.sh DIR: takes out of a folder of installed Python packages what serving a model never reads.
set -euo pipefail
site=$1

# the packages' own tests, C++ headers, static libraries, and console scripts (their first line names a Python that is not there)
find "$site" -type d -name tests -prune -exec rm -rf {} +
rm -rf "$site"/torch/{test,include,share} "$site/bin"
find "$site/torch/bin" -type f ! -name torch_shm_manager -delete
find "$site" -type f \( -name '*.a' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' \) -delete

# Symbols that only a debugger reads: vLLM's three kernel libraries (AVX2, AVX512, AVX512 with bfloat16) shrink to a fifth.
# Not the ones in *.libs: those were edited after linking, which strip does not survive.
find "$site" -type f -name '*.so*' ! -path '*.libs/*' -exec strip --strip-unneeded {} +
