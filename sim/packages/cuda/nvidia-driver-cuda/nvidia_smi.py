#!/usr/bin/env python3
"""Simulated stand-in for nvidia-smi: looks at the cards through NVML and changes nothing.

nvidia-smi                                   a line per card
nvidia-smi -L                                names and UUIDs
nvidia-smi --query-gpu=FIELD,.. --format=csv[,noheader][,nounits]

Exit codes are the real ones: 12 no library, else NVML's own code (9 no driver, 18 versions differ).
"""

import sys

from nvml import FUNCTION_NOT_FOUND, NOT_SUPPORTED, Nvml, NvmlError  # replaced by the text of nvml.py

LIBRARY_NOT_FOUND = 12
GRAPHICS, SM, MEMORY = 0, 1, 2
# field: (unit, how to ask)
FIELDS = {
    "index": ("", lambda nvml, gpu: nvml.number("Index", gpu)),
    "name": ("", lambda nvml, gpu: nvml.text("Name", gpu)),
    "uuid": ("", lambda nvml, gpu: nvml.text("UUID", gpu)),
    "driver_version": ("", lambda nvml, gpu: nvml.driver_version()),
    "persistence_mode": ("", lambda nvml, gpu: ("Disabled", "Enabled")[nvml.number("PersistenceMode", gpu)]),
    "temperature.gpu": ("", lambda nvml, gpu: nvml.number("Temperature", gpu, 0)),
    "power.limit": ("W", lambda nvml, gpu: f"{nvml.number('PowerManagementLimit', gpu) / 1000:.2f}"),
    "power.draw": ("W", lambda nvml, gpu: f"{nvml.number('PowerUsage', gpu) / 1000:.2f}"),
    "clocks.sm": ("MHz", lambda nvml, gpu: nvml.number("ClockInfo", gpu, SM)),
    "clocks.mem": ("MHz", lambda nvml, gpu: nvml.number("ClockInfo", gpu, MEMORY)),
    "clocks.gr": ("MHz", lambda nvml, gpu: nvml.number("ClockInfo", gpu, GRAPHICS)),
}


def value(nvml, gpu, field, units):
    """A field of a card as text; [N/A] where the card or the driver does not have it."""
    unit, ask = FIELDS[field]
    try:
        text = str(ask(nvml, gpu))
    except NvmlError as error:
        if error.code not in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            raise
        return "[N/A]"
    return f"{text} {unit}" if unit and units else text


def rows(nvml, fields, units):
    return [[value(nvml, gpu, field, units) for field in fields] for gpu in nvml.gpus()]


def query(nvml, arguments):
    fields, style = None, set()
    for argument in arguments:
        option, _, value = argument.partition("=")
        if option == "--query-gpu":
            fields = value.split(",")
        elif option == "--format":
            style = set(value.split(","))
        else:
            usage(argument)
    unknown = [field for field in fields or [""] if field not in FIELDS]
    if unknown:
        sys.exit(f"simulated nvidia-smi: field {unknown[0]!r} is not one of: {', '.join(FIELDS)}")
    if "csv" not in style or style - {"csv", "noheader", "nounits"}:
        sys.exit("simulated nvidia-smi: --format must be csv, with noheader and nounits if wanted")
    if "noheader" not in style:
        units = {field: f" [{FIELDS[field][0]}]" if FIELDS[field][0] else "" for field in fields}
        print(", ".join(field + units[field] for field in fields))
    for row in rows(nvml, fields, "nounits" not in style):
        print(", ".join(row))


def usage(argument):
    print(f"simulated nvidia-smi: {argument!r} is not simulated; this stand-in knows:\n{__doc__}", file=sys.stderr)
    sys.exit(2)


def main(arguments):
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if arguments and arguments != ["-L"] and not any(a.startswith("--query-gpu=") for a in arguments):
        usage(arguments[0])
    try:
        nvml = Nvml()
        if arguments == ["-L"]:
            for index, name, uuid in rows(nvml, ["index", "name", "uuid"], True):
                print(f"GPU {index}: {name} (UUID: {uuid})")
        elif arguments:
            query(nvml, arguments)
        else:
            print(f"nvidia-smi, simulated. Driver version {nvml.driver_version()}")
            wanted = [
                "index",
                "name",
                "persistence_mode",
                "clocks.sm",
                "clocks.mem",
                "power.draw",
                "power.limit",
                "temperature.gpu",
            ]
            print("GPU  name  persistence  SM clock  memory clock  power  limit  temperature in C")
            for row in rows(nvml, wanted, True):
                print("  ".join(row))
        nvml.close()
    except NvmlError as error:
        print(f"Failed to initialize NVML: {error}" if error.code else f"NVML: {error}")
        return error.code or LIBRARY_NOT_FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
