"""Run library/NAME.py as Ansible would, with the arguments on standard input: run_module.py NAME."""

import importlib.util
import json
import sys
from pathlib import Path

import ansible.module_utils
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).parents[3]
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))

with patch_module_args(json.load(sys.stdin)):
    spec = importlib.util.spec_from_file_location("tandem_module", ROOT / "library" / f"{sys.argv[1]}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()
