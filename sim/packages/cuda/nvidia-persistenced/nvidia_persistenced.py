#!/usr/bin/python3
"""Simulated stand-in for nvidia-persistenced: persistence mode is on while it runs, and off when it has ended.

usage: nvidia-persistenced [--user NAME] [--persistence-mode | --no-persistence-mode] [--verbose] [--version]

Like the real one it loads the kernel module when that is not loaded, forks into the background once the cards are
initialised, keeps a locked pid file in /run/nvidia-persistenced, and fails when the driver does not answer. What was set
for one initialisation of the card (clock locks, power limit) is therefore lost when the daemon is restarted.
"""
import argparse
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys

from nvml import Nvml, NvmlError  # replaced by the text of nvml.py

VERSION = "@UPSTREAM@"
RUNTIME = "/run/nvidia-persistenced"
PID_FILE = RUNTIME + "/nvidia-persistenced.pid"
MODULE = "/sys/module/nvidia/version"


def load_module():
    if not os.path.exists(MODULE):
        modprobe = shutil.which("modprobe")
        if modprobe:
            subprocess.run([modprobe, "nvidia"], check=False)
    if not os.path.exists(MODULE):
        raise SystemExit("nvidia-persistenced (simulated): no NVIDIA devices: the kernel module nvidia is not loaded and "
                         "could not be loaded; install it for the running kernel or reboot into one that has it")


def lock_pid_file(user):
    os.makedirs(RUNTIME, mode=0o755, exist_ok=True)
    file = open(PID_FILE, "a+")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise SystemExit(f"nvidia-persistenced (simulated): already running: {PID_FILE} is locked") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    if user:
        for path in RUNTIME, PID_FILE:
            os.chown(path, user.pw_uid, user.pw_gid)
    return file


def serve(options, user):
    """The daemon, in the child: sets up, says through `started` that it is up, and stays until SIGTERM or SIGINT."""
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    # held until the process ends
    pid_file = lock_pid_file(user)
    try:
        nvml = Nvml()
        gpus = nvml.gpus()
        for gpu in gpus:
            nvml.call("nvmlDeviceSetPersistenceMode", gpu, int(options.persistence_mode))
    except NvmlError as error:
        os.unlink(PID_FILE)
        raise SystemExit(f"nvidia-persistenced (simulated): failed to query NVIDIA devices: {error}") from error
    print(f"nvidia-persistenced (simulated) {VERSION}: persistence mode "
          f"{'on' if options.persistence_mode else 'left off'} for {len(gpus)} cards", file=sys.stderr)
    if user:
        os.setegid(user.pw_gid)
        os.seteuid(user.pw_uid)
    yield
    signal.sigwait(stop)
    os.seteuid(0)
    for gpu in gpus:
        nvml.call("nvmlDeviceSetPersistenceMode", gpu, 0)
    nvml.close()
    os.unlink(PID_FILE)
    pid_file.close()


def daemonize(service):
    """Run `service` up to its yield in a child; the parent ends with 0 once it came that far, else with 1."""
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    os.chdir("/")
    next(service)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.write(started, b"1")
    os.close(started)
    for _ in service:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", metavar="NAME")
    parser.add_argument("--persistence-mode", action="store_true", default=True)
    parser.add_argument("--no-persistence-mode", dest="persistence_mode", action="store_false")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--version", action="version", version=f"nvidia-persistenced (simulated): version {VERSION}")
    options = parser.parse_args()
    if os.geteuid():
        parser.error("must be started as root")
    try:
        user = pwd.getpwnam(options.user) if options.user else None
    except KeyError:
        parser.error(f"--user {options.user}: no such user")
    load_module()
    daemonize(serve(options, user))


if __name__ == "__main__":
    main()
