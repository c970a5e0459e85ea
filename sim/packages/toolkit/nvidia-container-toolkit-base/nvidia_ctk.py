#!/usr/bin/env python3
"""Simulated stand-in for nvidia-ctk: writes the CDI specification that hands simulated cards to a container.

The cards and their UUIDs are what NVML says at the time, so generating fails when the driver does not answer, and the
paths carry the driver's version, so a specification from before an upgrade names a library that is gone.
"""

import argparse
import json
import os
import re
import stat
import subprocess
import sys
import tempfile

from nvml import NVML_LIBRARY, Nvml, NvmlError  # replaced by the text of nvml.py

VERSION = "@UPSTREAM@"
KIND = "nvidia.com/gpu"
CDI_VERSION = "0.5.0"
SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")
# where glibc looks by default in Debian's and Ubuntu's images, so that no ldconfig has to run in the container
LIBRARY_DIR = "/usr/lib/x86_64-linux-gnu"
READ_ONLY = ["ro", "nosuid", "nodev", "bind"]
ROOT = os.environ.get("SIM_NVML_ROOT", "")  # set by tests only
# In a box without /dev/nvidiactl the simulated NVML sees all cards, so that is none of these.
CONTROL_NODES = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


def log(level, message):
    print(f'level={level} msg="{message}" (simulated nvidia-ctk)', file=sys.stderr)


# The specification


def loaded_library():
    """Path of the NVML library that this process has loaded."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libnvidia-ml.so"):
                return path
    raise NvmlError(f"{NVML_LIBRARY} is loaded from no file")


def mount(host_path, container_path, options=None):
    return {"hostPath": host_path, "containerPath": container_path, "options": options or READ_ONLY}


def control_nodes():
    """Those that the box has. One that is missing is left out with a warning, and is no error: as with the real one."""
    for path in CONTROL_NODES:
        if os.path.exists(ROOT + path):
            yield {"path": path, "hostPath": path}
        else:
            log("warning", f"Could not locate {path}: pattern {path} not found")


def specification(nvml):
    """The CDI specification as a dict: each card by index and by UUID, and `all`."""
    version = nvml.driver_version()
    library = loaded_library()
    state = os.environ.get("SIM_NVML_DIR", "/run/sim-nvml")
    devices, nodes = [], []
    for index, gpu in enumerate(nvml.gpus()):
        # NVML, real and simulated, sees the cards whose device nodes a container has. Behind these is only /dev/null.
        node = {"path": f"/dev/nvidia{nvml.number('MinorNumber', gpu)}", "hostPath": "/dev/null"}
        nodes.append(node)
        for name in str(index), nvml.text("UUID", gpu):
            devices.append({"name": name, "containerEdits": {"deviceNodes": [node]}})
    devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    return {
        "cdiVersion": CDI_VERSION,
        "kind": KIND,
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [*control_nodes(), {"path": "/dev/nvidiactl", "hostPath": "/dev/null"}],
            "mounts": [
                mount(library, f"{LIBRARY_DIR}/libnvidia-ml.so.{version}"),
                mount(library, f"{LIBRARY_DIR}/{NVML_LIBRARY}"),
                mount("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
                # a machine's /sys/module is every container's; a simulated box's is a tmpfs of its own
                mount("/sys/module", "/sys/module"),
                # the simulated cards' UUIDs derive from it
                mount("/etc/machine-id", "/etc/machine-id"),
                mount(state, "/run/sim-nvml", ["rw", "nosuid", "nodev", "bind"]),
            ],
        },
    }


def yaml(value, indent=0):
    """Lines of block YAML for dicts, lists and strings; strings are double-quoted, which YAML shares with JSON."""
    pad = " " * indent
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str):
                yield f"{pad}{key}: {json.dumps(item)}"
            else:
                yield f"{pad}{key}:"
                yield from yaml(item, indent + 2)
    else:
        for item in value:
            if isinstance(item, str):
                yield f"{pad}- {json.dumps(item)}"
            else:
                first, *rest = yaml(item, indent + 2)
                yield f"{pad}- {first.lstrip()}"
                yield from rest


def write(path, text):
    """Write by rename, so that a reader sees the old file or the new one, whole."""
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix="." + os.path.basename(path))
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


# Commands


def cdi_generate(options):
    try:
        nvml = Nvml()
        spec = specification(nvml)
        nvml.close()
    except NvmlError as error:
        log("error", f"failed to generate CDI spec: failed to initialize NVML: {error}")
        return 1
    if options.format == "json":
        text = json.dumps(spec, indent=2) + "\n"
    else:
        text = "---\n" + "".join(line + "\n" for line in yaml(spec))
    if options.output:
        write(options.output, text)
        log("info", f"Generated CDI spec with version {spec['cdiVersion']} in {options.output}")
    else:
        print(text, end="")
    return 0


def device_names(path):
    """Qualified names in a specification file; in YAML, as written here, only devices have a `name`."""
    with open(path) as file:
        text = file.read()
    if path.endswith(".json"):
        spec = json.loads(text)
        return [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    kind = re.search(r'^kind: *"?([\w./-]+)', text, re.MULTILINE)
    names = re.findall(r'^[ -]*name: *"?([\w.:-]+)', text, re.MULTILINE)
    return [f"{kind.group(1)}={name}" for name in names] if kind else []


def cdi_list(options):
    names = []
    for directory in options.spec_dirs or SPEC_DIRS:
        if os.path.isdir(directory):
            for file in sorted(os.listdir(directory)):
                if file.endswith((".yaml", ".json")) and not file.startswith("."):
                    names += device_names(os.path.join(directory, file))
    log("info", f"Found {len(names)} CDI devices")
    for name in names:
        print(name)
    return 0


def create_device_nodes(options):
    """Loads the modules, in the real one's order, up to one that fails; else makes the files of what is loaded."""
    if options.load_kernel_modules:
        for module in "nvidia", "nvidia-uvm", "nvidia-modeset":
            done = subprocess.run(["modprobe", module], check=False)
            if done.returncode:
                log("error", f"failed to load NVIDIA kernel modules: failed to load module {module}: exit status 1")
                return 1
    if not options.control_devices:
        return 0
    for path in CONTROL_NODES:
        if os.path.exists(ROOT + path):
            log("info", f"Skipping: {path} already exists")
            continue
        module = "nvidia_uvm" if "uvm" in path else "nvidia"
        if not os.path.exists(f"{ROOT}/sys/module/{module}/initstate"):
            log(
                "error",
                f"failed to create NVIDIA control device nodes: failed to create device node {path[5:]}: "
                "failed to determine major: invalid device node",
            )
            return 1
        # behind it is what /dev/null is; in a test, which need not be root's, a file
        os.mknod(ROOT + path, 0o666 | (stat.S_IFREG if ROOT else stat.S_IFCHR), os.makedev(1, 3))
        os.chmod(ROOT + path, 0o666)
    return 0


def runtime_configure(options):
    """Merge into daemon.json, and say that it was written even when nothing changed, as the real one does, which drops
    whatever else was in `features`."""
    config = {}
    if os.path.exists(options.config):
        with open(options.config) as file:
            text = file.read()
        try:
            config = json.loads(text) if text.strip() else {}
        except ValueError as error:
            log("error", f"unable to load config {options.config}: {error}")
            return 1
    config.setdefault("runtimes", {})["nvidia"] = {"path": "nvidia-container-runtime", "args": []}
    if options.set_as_default:
        config["default-runtime"] = "nvidia"
    if options.cdi_enabled:
        config["features"] = {"cdi": True}
    text = json.dumps(config, indent=4)
    if options.dry_run:
        print(text)
        return 0
    write(options.config, text + "\n")
    log("info", f"Wrote updated config to {options.config}")
    log("info", "It is recommended that docker daemon be restarted.")
    return 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="nvidia-ctk", description="simulated stand-in for the NVIDIA Container Toolkit CLI"
    )
    parser.add_argument(
        "-v", "--version", action="version", version=f"NVIDIA Container Toolkit CLI version {VERSION} (simulated)"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    cdi = commands.add_parser("cdi", help="CDI specifications").add_subparsers(required=True, metavar="COMMAND")
    generate = cdi.add_parser("generate", help="write the specification of this machine's cards")
    generate.add_argument(
        "--output", default=os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", ""), help="default: standard output"
    )
    generate.add_argument("--format", choices=("yaml", "json"), default="yaml")
    generate.set_defaults(run=cdi_generate)
    list_ = cdi.add_parser("list", help="names of the devices that specifications define")
    list_.add_argument("--spec-dir", dest="spec_dirs", action="append")
    list_.set_defaults(run=cdi_list)

    system = commands.add_parser("system", help="the machine").add_subparsers(required=True, metavar="COMMAND")
    nodes = system.add_parser("create-device-nodes", help="load the kernel modules and make their files in /dev")
    nodes.add_argument("--control-devices", action="store_true")
    nodes.add_argument("--load-kernel-modules", action="store_true")
    nodes.set_defaults(run=create_device_nodes)

    runtime = commands.add_parser("runtime", help="container runtimes").add_subparsers(required=True, metavar="COMMAND")
    configure = runtime.add_parser("configure", help="add the nvidia runtime to Docker's configuration")
    configure.add_argument("--runtime", choices=("docker",), default="docker")
    configure.add_argument("--config", default="/etc/docker/daemon.json")
    configure.add_argument("--set-as-default", "--nvidia-set-as-default", action="store_true")
    configure.add_argument("--cdi.enabled", "--enable-cdi", dest="cdi_enabled", action="store_true")
    configure.add_argument("--dry-run", action="store_true")
    configure.set_defaults(run=runtime_configure)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        return options.run(options)
    except OSError as error:
        log("error", str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
