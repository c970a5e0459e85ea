#!/usr/bin/env bash
# Build the simulated NVML: OUTDIR/libnvidia-ml.so.1 for one driver version.
# usage: build.sh OUTDIR DRIVER_VERSION [--without SYMBOL[,SYMBOL...]]
# Functions that the driver's branch did not have yet (since.txt) are left out: pynvml then says FunctionNotFound.
#   --without  leave out others as well
# Environment: PYTHON (default: the project's .venv) has nvidia-nvml-dev; NVML_HEADER names another nvml.h; CC, CFLAGS.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$here/../../.venv/bin/python}
cc=${CC:-cc}

usage() { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

[[ $# -ge 2 ]] || usage
outdir=$1 driver=$2 without=
shift 2
while [[ $# -gt 0 ]]; do
    case $1 in
        --without) [[ $# -ge 2 ]] || usage; without=${without:+$without,}$2; shift 2 ;;
        *) usage ;;
    esac
done
[[ $driver =~ ^[0-9]+\.[0-9]+(\.[0-9]+)?$ ]] || { echo "build.sh: DRIVER_VERSION '$driver' is no version such as 580.95.05" >&2; exit 2; }

header=${NVML_HEADER:-$("$python" - <<'PY'
import glob, sysconfig
found = sorted(glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/include/nvml.h"))
print(found[-1] if found else "")
PY
)}
[[ -r $header ]] || { echo "build.sh: no nvml.h in $python's site-packages: install nvidia-nvml-dev (make setup)" >&2; exit 1; }

# The key names everything that the library is made of; the library carries it, so a whole file is a current one.
sources=("$here"/*.c)
key=$( { cat "$here"/*.[ch] "$here/generate.py" "$here/since.txt" "${BASH_SOURCE[0]}" "$header"; echo "$driver $without"; "$cc" --version; } | sha256sum | cut -c1-32)
library=$outdir/libnvidia-ml.so.1
if [[ -f $library ]] && grep -q "tandem-key:$key" "$library"; then
    echo "$library: current"
    exit 0
fi

started=$SECONDS
mkdir -p "$outdir"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cc" -E -P -x c -DNVML_NO_UNVERSIONED_FUNC_DEFS "$header" > "$work/header.i"
"$python" "$here/generate.py" "$work/header.i" "$work" --driver "$driver" --since "$here/since.txt" --without "$without"
printf 'extern const char sim_key[];\n__attribute__((used)) const char sim_key[] = "tandem-key:%s";\n' "$key" > "$work/key.c"
# Not _GNU_SOURCE: with it newer C libraries give strtol a name that the older one in a container does not have.
"$cc" -std=gnu11 -O1 -g0 -fPIC -shared -pthread -fvisibility=hidden -Wall -Wextra -Werror=missing-prototypes ${CFLAGS:-} \
    -DNVML_NO_UNVERSIONED_FUNC_DEFS -DSIM_DRIVER_VERSION="\"$driver\"" \
    -I"$here" -I"$work" -isystem "$(dirname "$header")" \
    -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs -o "$work/library" "${sources[@]}" "$work/exports.c" "$work/key.c" -lm
# Renamed into place: a program that has the old library mapped keeps it, and none sees half of the new one.
install -m 0644 "$work/library" "$library.$$"
mv -f "$library.$$" "$library"
echo "$library: built in $((SECONDS - started)) s"
