"""The shim of the engine image, as importable modules."""

import importlib.machinery
import importlib.util
import pathlib
import sys

import pytest

SHIM = pathlib.Path(__file__).parents[3] / "sim" / "engine" / "shim"


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def simulate():
    return load("simulate", SHIM / "simulate.py")


@pytest.fixture
def shim(simulate):
    """The program `vllm`, loaded without running it; it imports vLLM only when it serves."""
    return load("sim_engine_vllm", SHIM / "vllm")
