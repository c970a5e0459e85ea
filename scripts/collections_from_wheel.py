"""collections_from_wheel.py WHEEL REQUIREMENTS DEST: what REQUIREMENTS names, with dependencies, out of WHEEL.

WHEEL is PyPI's `ansible` package, which carries the collections' files as Galaxy would install them.
"""

import json
import sys
import zipfile

import yaml


def folder(collection: str) -> str:
    return f"ansible_collections/{collection.replace('.', '/')}/"


def main(wheel: str, requirements: str, dest: str) -> None:
    with open(requirements, encoding="utf-8") as handle:
        todo = [entry["name"] for entry in yaml.safe_load(handle)["collections"]]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wanted: set[str] = set()
        while todo:
            collection = todo.pop()
            if collection in wanted:
                continue
            manifest = folder(collection) + "MANIFEST.json"
            if manifest not in names:
                sys.exit(f"{collection} is not in {wheel}: name another `ansible` package in scripts/collections.sh")
            wanted.add(collection)
            todo += json.loads(archive.read(manifest))["collection_info"]["dependencies"]
        prefixes = tuple(folder(collection) for collection in wanted)
        archive.extractall(dest, [name for name in names if name.startswith(prefixes)])


main(*sys.argv[1:])
