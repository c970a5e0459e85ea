"""What a CPU cannot do of a `vllm serve` command line written for two RTX 4090s, and what takes its place.

Pure: reads parsed arguments, decides, and says why. It imports nothing of vLLM, so that it can be tested anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The tiny model keeps 512 bytes per token (2 layers x key and value x 2 heads x 32 x 16 bits; half of it as fp8), so
#: one request of 262,144 tokens takes 128 MiB.
KV_CACHE_BYTES = 160 << 20

#: PyTorch's words (c10/cuda/CUDAFunctions.cpp) where CUDA cannot be initialised, as without /dev/nvidia-uvm.
NO_CUDA = (
    "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable "
    "CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
)

#: Ways to load weights that read straight into GPU memory, or from elsewhere than a folder.
GPU_LOAD_FORMATS = frozenset(
    {"fastsafetensors", "instanttensor", "runai_streamer", "runai_streamer_sharded", "tensorizer"}
)


@dataclass(frozen=True)
class Abilities:
    """What decides about some arguments and is not in them."""

    #: this CPU's attention kernels can keep an fp8 KV cache (they need AVX-512)
    fp8_kv_cache: bool = True
    #: the quantization methods that vLLM knows; any other is left in for vLLM to refuse
    quantizations: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Change:
    """One argument that runs otherwise than given. `given` and `value` are as vLLM parsed them."""

    attribute: str
    given: Any
    value: Any
    verb: str  # dropped, replaced or added
    why: str

    def __str__(self) -> str:
        option = "--" + self.attribute.replace("_", "-")
        shown = self.value if self.verb == "added" else self.given
        argument = option if shown is True else f"{option}={_text(shown)}"
        by = f" by {_text(self.value)}" if self.verb == "replaced" else ""
        return f"simulated: {self.verb} {argument}{by}: {self.why}"


@dataclass(frozen=True)
class _Rule:
    attribute: str
    applies: Callable[[Any, Abilities], bool]
    verb: str
    value: Any
    why: str


def _above_one(value: Any, _: Abilities) -> bool:
    return value is not None and value > 1


def _given(value: Any, _: Abilities) -> bool:
    return value is not None


def _on(value: Any, _: Abilities) -> bool:
    return bool(value)


_RULES = (
    _Rule("tensor_parallel_size", _above_one, "replaced", 1, "a CPU cannot split a model over GPUs"),
    _Rule("pipeline_parallel_size", _above_one, "replaced", 1, "a CPU cannot split a model over GPUs"),
    _Rule("data_parallel_size", _above_one, "replaced", 1, "a CPU cannot run one copy of a model per GPU"),
    _Rule("disable_custom_all_reduce", _on, "dropped", False, "a CPU cannot reduce over GPUs, in whichever way"),
    _Rule("numa_bind", _on, "dropped", False, "a CPU cannot bind to the NUMA nodes of GPUs"),
    _Rule("attention_backend", _given, "dropped", None, "a CPU cannot run a GPU's attention kernels"),
    _Rule(
        "kv_cache_dtype",
        lambda value, able: str(value).startswith("fp8") and not able.fp8_kv_cache,
        "replaced",
        "auto",
        "a CPU cannot keep an fp8 KV cache without AVX-512",
    ),
    _Rule(
        "speculative_config",
        _given,
        "dropped",
        None,
        "a CPU cannot gain by speculation, and the tiny model has no MTP head to do it with",
    ),
    _Rule(
        "quantization",
        lambda value, able: value in able.quantizations,
        "dropped",
        None,
        "a CPU cannot run a GPU's kernels for quantized weights, and the tiny model's are not quantized",
    ),
    _Rule(
        "load_format",
        lambda value, _: value in GPU_LOAD_FORMATS,
        "replaced",
        "auto",
        "a CPU cannot load weights into GPU memory",
    ),
    _Rule("enable_sleep_mode", _on, "dropped", False, "a CPU cannot give GPU memory back"),
    _Rule(
        "kv_cache_memory_bytes",
        lambda value, _: value != KV_CACHE_BYTES,
        "replaced",
        KV_CACHE_BYTES,
        "a CPU cannot measure GPU memory, so --gpu-memory-utilization has no effect",
    ),
    _Rule(
        "enforce_eager",
        lambda value, _: not value,
        "added",
        True,
        "a CPU cannot capture CUDA graphs, and compiling takes minutes",
    ),
    _Rule(
        "distributed_executor_backend",
        lambda value, _: value != "uni",
        "replaced",
        "uni",
        "a CPU cannot have workers on GPUs, and a process fewer starts sooner",
    ),
)


def changes(args: Mapping[str, Any], able: Abilities) -> list[Change]:
    """The arguments to run otherwise than given, in a fixed order; the others are vLLM's to run or refuse.

    args: attribute name (`kv_cache_dtype`) -> parsed value, defaults included.
    """
    found = []
    for rule in _RULES:
        if rule.attribute not in args or not rule.applies(args[rule.attribute], able):
            continue
        given = args[rule.attribute]
        verb = "added" if given is None else rule.verb
        found.append(Change(rule.attribute, given, rule.value, verb, rule.why))
    return found


def gpus_needed(args: Mapping[str, Any]) -> int:
    """vLLM's world size, copies of the model included."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    needed = 1
    for size in sizes:
        needed *= args.get(size) or 1
    return needed


def too_few_gpus(needed: int, available: int) -> str | None:
    """vLLM's own words (vllm/config/parallel.py, 0.32.0) when a node has fewer GPUs than the model is split over."""
    if needed <= available:
        return None
    return (
        f"World size ({needed}) is larger than the number of available GPUs ({available}) in this node. "
        "If this is intentional and you are using:\n"
        "- ray, set '--distributed-executor-backend ray'.\n"
        "- multiprocessing, set '--nnodes' appropriately."
    )


def visible(count: int, cuda_visible_devices: str | None) -> int:
    """How many of `count` GPUs a process with this CUDA_VISIBLE_DEVICES has.

    As the CUDA runtime reads it: indexes up to the first one that does not exist, or UUIDs; unset means all.
    """
    if cuda_visible_devices is None:
        return count
    seen = 0
    for entry in cuda_visible_devices.split(","):
        if not entry.strip() or (entry.strip().lstrip("-").isdigit() and not 0 <= int(entry) < count):
            break
        seen += 1
    return min(seen, count)


def _text(value: Any) -> str:
    """A value as one would write it on the command line."""
    if isinstance(value, (dict, list)):
        return json.dumps(value)
    return str(getattr(value, "name", value))
