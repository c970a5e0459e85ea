#!/usr/bin/python3
"""Simulated stand-in for nvidia-persistenced: persistence mode is on while it runs, and off when it has ended.

usage: nvidia-persistenced [--user NAME] [--group NAME] [--persistence-mode | --no-persistence-mode] [--verbose]
                           [--version]

Like the real one it loads the kernel module where that is not loaded, forks into the background once the cards are
initialised, keeps a locked pid file in /run/nvidia-persistenced, and fails when the driver does not answer. What was
set for one initialisation of a card (clock locks, power limit) is therefore lost when the daemon is restarted, and
also when it is killed: the kernel closes the devices that the real one holds open, here a child of it does the same.
"""

import argparse
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import syslog

from nvml import Nvml, NvmlError  # replaced by the text of nvml.py

VERSION = "@UPSTREAM@"
ROOT = os.environ.get("SIM_NVML_ROOT", "")  # set by tests only
RUNTIME = ROOT + "/run/nvidia-persistenced"
PID_FILE = RUNTIME + "/nvidia-persistenced.pid"
MODULE = ROOT + "/sys/module/nvidia/version"


def load_module():
    if not os.path.exists(MODULE):
        modprobe = shutil.which("modprobe")
        if modprobe:
            subprocess.run([modprobe, "nvidia"], check=False)
    if not os.path.exists(MODULE):
        raise SystemExit(
            "nvidia-persistenced (simulated): no NVIDIA devices: the kernel module nvidia is not loaded and "
            "could not be loaded; install it for the running kernel or reboot into one that has it"
        )


def lock_pid_file(user):
    """The open pid file, which holds the lock for as long as the process lives."""
    os.makedirs(RUNTIME, mode=0o755, exist_ok=True)
    file = open(PID_FILE, "a+")  # noqa: SIM115 - stays open
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


def let_go_when_killed():
    """Starts a child that turns persistence mode off if this process ends between the words "on" and "off" to it."""
    words, ours = os.pipe()
    if os.fork():
        os.close(words)
        return ours
    os.close(ours)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in 0, 1, 2:
        os.dup2(null, standard)
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, signal.SIG_IGN)
    if os.read(words, 3) == b"on." and not os.read(words, 3):
        nvml = Nvml()
        for gpu in nvml.gpus():
            nvml.call("nvmlDeviceSetPersistenceMode", gpu, 0)
        nvml.close()
    os._exit(0)


def set_up(options, user):
    """Locks the pid file and initialises the cards: (pid file, NVML, cards), to be kept until `tear_down`."""
    pid_file = lock_pid_file(user)
    try:
        nvml = Nvml()
        gpus = nvml.gpus()
        for gpu in gpus:
            nvml.call("nvmlDeviceSetPersistenceMode", gpu, int(options.persistence_mode))
    except NvmlError as error:
        os.unlink(PID_FILE)
        raise SystemExit(f"nvidia-persistenced (simulated): failed to query NVIDIA devices: {error}") from error
    mode = "on" if options.persistence_mode else "off"
    print(f"nvidia-persistenced (simulated) {VERSION}: persistence mode {mode} for {len(gpus)} cards", file=sys.stderr)
    return pid_file, nvml, gpus


def tear_down(pid_file, nvml, gpus):
    try:
        for gpu in gpus:
            nvml.call("nvmlDeviceSetPersistenceMode", gpu, 0)
        nvml.close()
    except NvmlError as error:
        syslog.syslog(syslog.LOG_ERR, f"(simulated) persistence mode could not be turned off: {error}")
    os.unlink(PID_FILE)
    pid_file.close()


def daemonize():
    """Returns in a child with a session of its own a function that lets the parent end with 0; else it ends with 1."""
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        sys.exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    os.setsid()
    os.chdir("/")

    def up():
        sys.stderr.flush()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in 0, 1, 2:
            os.dup2(null, standard)
        os.write(started, b"1")
        os.close(started)

    return up


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-u", "--user", metavar="NAME")
    parser.add_argument("-g", "--group", metavar="NAME")
    parser.add_argument("--persistence-mode", action="store_true", default=True)
    parser.add_argument("--no-persistence-mode", dest="persistence_mode", action="store_false")
    parser.add_argument("-V", "--verbose", action="store_true")
    parser.add_argument("-v", "--version", action="version", version=f"%(prog)s (simulated): version {VERSION}")
    options = parser.parse_args()
    if os.geteuid():
        parser.error("must be started as root")
    try:
        user = pwd.getpwnam(options.user) if options.user else None
    except KeyError:
        raise SystemExit(f"\nERROR: Failed to find user ID of user '{options.user}': Success\n") from None
    load_module()
    up = daemonize()
    word = let_go_when_killed()
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    held = set_up(options, user)
    os.write(word, b"on.")
    if user:
        os.setegid(user.pw_gid)
        os.seteuid(user.pw_uid)
    up()
    signal.sigwait(stop)
    os.seteuid(0)
    tear_down(*held)
    os.write(word, b"off")


if __name__ == "__main__":
    main()
