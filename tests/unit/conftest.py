"""The filter plugins, importable by their file names, as Ansible loads them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/filter"))
