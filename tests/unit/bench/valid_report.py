"""Whether a report keeps to its schema: `valid_report.py bench|compare FILE` fails with what it breaks."""

import json
import sys
from pathlib import Path

import jsonschema
import referencing

FILES = Path(__file__).parents[3] / "roles/bench/files"


def schema(kind):
    return json.loads((FILES / f"{kind}.schema.json").read_text())


def check(kind, document):
    known = [(f"{name}.schema.json", referencing.Resource.from_contents(schema(name))) for name in ("bench", "compare")]
    registry = referencing.Registry().with_resources(known)
    jsonschema.Draft202012Validator(schema(kind), registry=registry).validate(document)


if __name__ == "__main__":
    check(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
