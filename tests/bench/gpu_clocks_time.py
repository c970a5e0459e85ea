"""How long module gpu_clocks takes beside the least that an Ansible module which uses NVML can take.

    python tests/bench/gpu_clocks_time.py [RUNS]

Compared are, in turn and in one run, whole processes of the same interpreter: a module that does nothing but
`import pynvml; pynvml.nvmlInit()`, and gpu_clocks on a converged box, where it sets every lock again. Both load what
Ansible loads for any module, which is most of either figure; `own_ms` is the part of gpu_clocks beyond the bare one.
Against the simulated NVML, whose calls cost other than real ones. Fails when the ratio of the medians is 1.5 or more.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 1.5

BARE = """
from ansible.module_utils.testing import patch_module_args
with patch_module_args({}):
    from ansible.module_utils.basic import AnsibleModule
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    import pynvml
    pynvml.nvmlInit()
    module.exit_json(changed=False)
"""

MODULE = f"""
import runpy
import ansible.module_utils
from ansible.module_utils.testing import patch_module_args
ansible.module_utils.__path__.append({str(ROOT / "module_utils")!r})
with patch_module_args({{"max_mhz": 2100, "expected_gpus": 2}}):
    runpy.run_path({str(ROOT / "library" / "gpu_clocks.py")!r}, run_name="__main__")
"""


def measure(code, environment):
    """Milliseconds of one process, and the module's result."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return (time.perf_counter() - start) * 1000, json.loads(done.stdout)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    # As on a box: the record is on a tmpfs, byte code is cached.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        work = Path(directory)
        root = work / "root"
        (root / "sys/module/nvidia").mkdir(parents=True)
        (root / "sys/module/nvidia/version").write_text("580.95.05\n")
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHON": sys.executable,
            "PYTHONPYCACHEPREFIX": str(work / "cache"),
            "LD_LIBRARY_PATH": str(work / "nvml"),
            "SIM_NVML_DIR": str(work / "sim-nvml"),
            "SIM_NVML_ROOT": str(root),
            "TANDEM_GPU_ROOT": str(root),
        }
        subprocess.run(
            [ROOT / "sim/nvml/build.sh", work / "nvml", "580.95.05"], env=environment, check=True, capture_output=True
        )
        measure(BARE, environment)
        assert measure(MODULE, environment)[1]["changed"] is True
        bare, module = [], []
        for _ in range(runs):
            bare.append(measure(BARE, environment)[0])
            milliseconds, result = measure(MODULE, environment)
            assert result["changed"] is False and not result["errors"], result
            module.append(milliseconds)
    bare_ms, module_ms = statistics.median(bare), statistics.median(module)
    figures = {
        "what": "whole process, simulated NVML, medians",
        "runs": runs,
        "bare_ms": round(bare_ms, 1),
        "module_ms": round(module_ms, 1),
        "own_ms": round(module_ms - bare_ms, 1),
        "ratio": round(module_ms / bare_ms, 2),
        "limit": LIMIT,
    }
    print(json.dumps(figures))
    return 0 if module_ms / bare_ms < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
