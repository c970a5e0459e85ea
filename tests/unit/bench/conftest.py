"""What the tests of role bench share, importable by its file name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
