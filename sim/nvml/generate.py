#!/usr/bin/env python3
"""Write the exported NVML functions from the real header.

usage: generate.py PREPROCESSED_HEADER OUTDIR --driver VERSION --since FILE [--without SYMBOL,...]

Writes OUTDIR/impl.h (prototypes of all impl_ functions) and OUTDIR/exports.c: each function of the header, traced and
open to injected faults, calls impl_FUNCTION where one of the sources defines it and else says NOT_SUPPORTED. Which ones
are defined is the linker's knowledge, not this program's: to exports.c each impl_ function is a weak symbol.
Functions that the driver is too old for (lines `MAJOR SYMBOL` in --since) and those named in --without are left out.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

PROTOTYPE = re.compile(r"(nvmlReturn_t|const\s+char\s*\*)\s*(nvml\w+)\s*\(([^)]*)\)\s*;")
# Parameters that say something in a trace: numbers, enumerations, names. Other pointers are where results go.
NUMBERS = re.compile(
    r"(unsigned |signed )?(int|long|long long|char)|unsigned|nvml\w+(Type|State|Mode|Id|Index|Level|Counter|Sensors)_t"
)
VALUE_STRUCTURES = {"nvmlPowerValue_v2_t": ("powerValueMw",)}


def functions(header: str) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    """Return {name: (return type, [(type, parameter name), ...])} of a preprocessed header."""
    header = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", header)
    found = {}
    for returns, name, inside in PROTOTYPE.findall(header):
        parameters = re.sub(r"\s+", " ", inside).strip()
        pairs = []
        if parameters and parameters != "void":
            for parameter in parameters.split(","):
                kind, parameter_name = re.fullmatch(r"(.*?)(\w+)", parameter.strip()).groups()
                pairs.append((kind.strip().replace(" *", "*").replace("*", " *").strip(), parameter_name))
        found[name] = (re.sub(r"\s+", " ", returns), pairs)
    return found


def signature(name: str, returns: str, parameters: list[tuple[str, str]]) -> str:
    inside = ", ".join(f"{kind}{'' if kind.endswith('*') else ' '}{parameter}" for kind, parameter in parameters)
    return f"{returns} {name}({inside or 'void'})"


def trace(parameters: list[tuple[str, str]]) -> list[str]:
    """C statements that add the telling arguments to the call's trace."""
    lines = []
    for kind, name in parameters:
        if kind == "nvmlDevice_t":
            lines.append(f'\tcall_device(&call, "{name}", {name});')
        elif kind == "const char *":
            lines.append(f'\tcall_string(&call, "{name}", {name});')
        elif NUMBERS.fullmatch(kind):
            lines.append(f'\tcall_number(&call, "{name}", (long long){name});')
        elif kind.rstrip(" *") in VALUE_STRUCTURES:
            for field in VALUE_STRUCTURES[kind.rstrip(" *")]:
                lines.append(f'\tif ({name})\n\t\tcall_number(&call, "{field}", (long long){name}->{field});')
    return lines


def export(name: str, returns: str, parameters: list[tuple[str, str]]) -> str:
    arguments = ", ".join(parameter for _, parameter in parameters)
    if returns != "nvmlReturn_t":  # nvmlErrorString: nothing to trace, nothing that can fail
        return f"{signature(name, returns, parameters)}\n{{\n\treturn impl_{name}({arguments});\n}}\n"
    device = parameters[0][1] if parameters and parameters[0][0] == "nvmlDevice_t" else None
    body = [f'\tstruct call call = {{.function = "{name}"}};', *trace(parameters)]
    body.append(f"\tnvmlReturn_t result = call_begin(&call, {'true' if device else 'false'}, {device or 'NULL'});")
    body.append("\tif (result == NVML_SUCCESS)")
    body.append(f"\t\tresult = impl_{name} ? impl_{name}({arguments}) : NVML_ERROR_NOT_SUPPORTED;")
    body.append("\treturn call_end(&call, result);")
    return signature(name, returns, parameters) + "\n{\n" + "\n".join(body) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("header", type=Path)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--driver", required=True)
    parser.add_argument("--since", type=Path, required=True)
    parser.add_argument("--without", default="")
    options = parser.parse_args()

    known = functions(options.header.read_text())
    if "nvmlInit_v2" not in known or len(known) < 300:
        print(f"{options.header}: {len(known)} functions found, expected some 400: not NVML's header?", file=sys.stderr)
        return 1
    without = {name for name in options.without.split(",") if name}
    since = [line.split() for line in options.since.read_text().splitlines() if not line.startswith("#")]
    for what, names in (("--without", without), (options.since, {name for _, name in since})):
        if unknown := sorted(names - known.keys()):
            print(f"{what}: no such function in the header: {', '.join(unknown)}", file=sys.stderr)
            return 1

    without |= {name for major, name in since if int(options.driver.split(".")[0]) < int(major)}
    prototypes = [signature(f"impl_{name}", *known[name]) + ";" for name in sorted(known)]
    (options.outdir / "impl.h").write_text("\n".join(prototypes) + "\n")
    offered = sorted(known.keys() - without)
    weak = [f"#pragma weak impl_{name}" for name in offered]
    exports = [export(name, *known[name]) for name in offered]
    (options.outdir / "exports.c").write_text("\n".join(['#include "sim.h"\n', *weak, "", *exports]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
