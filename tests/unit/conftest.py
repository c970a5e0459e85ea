"""The filter plugins importable by their file names, and Ansible's commands found without an activated venv."""

import os
import sys
from pathlib import Path

os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/filter"))
