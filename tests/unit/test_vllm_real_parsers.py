"""Every shipped profile's command line through real vLLM: the profiles' release, the report's, and the simulation's.

The simulation's is in the engine's image; of the others the Python files alone are fetched (scripts/vllm_parsers.py,
12 MB each, once) and run in that image. Skipped without Docker or the image, as the image's own tests are; a release
that cannot be fetched FAILS: what the profiles promise would be unproven.
"""

import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from vllm import vllm_arguments, vllm_merge

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "roles/vllm/files/vllm-parse-check"
IMAGE = "tandem-sim/vllm-cpu:0.32.0"
IN_THE_IMAGE = "0.32.0"
FETCHED = ("0.33.0", "0.26.0")
VERSIONS = (IN_THE_IMAGE, *FETCHED)
PROFILES = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "roles/vllm/vars/profiles").glob("*.yml")}


def command_line(profile, **more):
    """As the role makes it."""
    return ["/models", *vllm_arguments(vllm_merge(profile["args"], {"host": "0.0.0.0", "port": 8000}, more))]


DEFAULT = PROFILES["qwen3.8-27b-int4"]
# (command line, words of the refusal): each is let pass, or refused, by another part of the check
WRONG = {
    "an option that is none": (command_line(DEFAULT, **{"no-such-option": 3}), "unrecognized arguments: --no-such"),
    "a word for a number": (command_line(DEFAULT, **{"max-num-seqs": "many"}), "argument --max-num-seqs: invalid"),
    "a choice that is none": (command_line(DEFAULT, **{"kv-cache-dtype": "fp9"}), "'fp9'"),
    "tools without parser": (command_line(DEFAULT, **{"tool-call-parser": None}), "requires --tool-call-parser"),
    "a tool parser that is none": (command_line(DEFAULT, **{"tool-call-parser": "qwen9"}), "'qwen9' is not registered"),
    "a reasoning parser that is none": (command_line(DEFAULT, **{"reasoning-parser": "qwen9"}), "'qwen9' is not regis"),
    "a share above 1": (command_line(DEFAULT, **{"gpu-memory-utilization": 93}), "less than or equal to 1"),
    "a backend that is none": (command_line(DEFAULT, **{"attention-backend": "SLOW"}), "attention backend: 'SLOW'"),
    "a method that is none": (
        command_line(DEFAULT, **{"speculative-config": {"method": "nope", "num_speculative_tokens": 2}}),
        "--speculative-config method: Input should be",
    ),
    "a key that is none": (
        command_line(DEFAULT, **{"speculative-config": {"method": "mtp", "tokens": 2}}),
        "--speculative-config tokens: Unexpected keyword",
    ),
    "a port that is none": (command_line(DEFAULT, port=80000), "--port: 80000 is not between"),
}

# All of a release's command lines in one process: the imports take most of the time.
ASK = """
import importlib.machinery, importlib.util, json, os, sys
for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(variable, None)
loader = importlib.machinery.SourceFileLoader("parse_check", "/tandem/vllm-parse-check")
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("parse_check", loader))
loader.exec_module(check)
print(json.dumps({name: check.judge(words) for name, words in json.load(sys.stdin).items()}))
"""


def docker(*arguments, **options):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, **options)


if shutil.which("docker") is None:
    REASON = "docker is not installed"
else:
    REASON = f"Docker has no image {IMAGE}: make build" if docker("image", "inspect", IMAGE).returncode else ""
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


def in_image(version, *command, **options):
    """`docker run` of python3 in the engine's image, with that release of vLLM; or what went wrong, as text."""
    mounts = [f"{PROGRAM}:/tandem/vllm-parse-check:ro"]
    environment = ["VLLM_TARGET_DEVICE=cpu", "VLLM_LOGGING_LEVEL=ERROR", "PYTHONDONTWRITEBYTECODE=1"]
    if version != IN_THE_IMAGE:
        fetch = [sys.executable, ROOT / "scripts/vllm_parsers.py", version]
        fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
        if fetched.returncode:
            return fetched.stderr
        mounts.append(f"{fetched.stdout.strip()}:/release:ro")
        environment.append("PYTHONPATH=/release")
    run = ["run", "--rm", "--interactive", "--network", "none", "--cap-drop", "ALL", "--entrypoint", "python3"]
    run += [word for mount in mounts for word in ("--volume", mount)]
    run += [word for setting in environment for word in ("--env", setting)]
    return docker(*run, IMAGE, *command, timeout=600, **options)


@pytest.fixture(scope="module")
def told():
    """{version: {name of a command line: (version that answered, refusals)}}, or what went wrong, as text."""
    lines = {name: command_line(profile) for name, profile in PROFILES.items()}
    lines.update({name: words for name, (words, _) in WRONG.items()})

    def ask(version):
        done = in_image(version, "-c", ASK, input=json.dumps(lines))
        if isinstance(done, str):
            return done
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr[-2000:]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(VERSIONS, pool.map(ask, VERSIONS), strict=True))


def answer(told, version, name):
    assert isinstance(told[version], dict), told[version]
    answered, refusals = told[version][name]
    assert answered.split("+")[0] == version
    return refusals


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_understood(told, profile, version):
    assert answer(told, version, profile) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_refused_in_vllms_words(told, wrong, version):
    assert WRONG[wrong][1] in "; ".join(answer(told, version, wrong))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_release_of_each_profile_is_among_them(profile):
    tag = re.search(r":v([0-9.]+)", PROFILES[profile]["image"])[1]
    assert tag in VERSIONS, f"add {tag} to FETCHED here and to RECORDS in scripts/vllm_parsers.py"
