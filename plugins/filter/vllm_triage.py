# SPDX-License-Identifier: Apache-2.0
"""What known lines in the logs of an engine and of the kernel mean: a table, and a function that reads a log by it."""

from __future__ import annotations

import re
from typing import NamedTuple

REPORT = "field report, August 2026"
TEXTS = "vLLM's source"


class Known(NamedTuple):
    """`reason` and `way_out` may name groups of `pattern`."""

    id: str
    verdict: str  # broken | worth knowing | benign
    pattern: str
    reason: str
    way_out: str
    source: str
    consequence: bool = False  # says that something is broken; another line says what


TABLE = [
    Known(
        "fp8-backend",
        "broken",
        r"is not valid for this configuration.*FP8 KV cache requires FA3",
        "attention-backend FLASH_ATTN has no fp8 KV cache below compute capability 9.0",
        "remove attention-backend: vLLM then takes FlashInfer; keep fp8 (rule E1)",
        REPORT,
    ),
    Known(
        "kv-too-large",
        "broken",
        r"larger than the available KV cache memory.*estimated maximum model length is (?P<length>\d+)",
        "the KV cache of one request of max-model-len does not fit",
        "set max-model-len <= {length}, which vLLM has estimated; rule E9 wants 5 % less",
        TEXTS,
    ),
    Known(
        "kv-too-large",
        "broken",
        r"larger than the available KV cache memory \((?P<have>[\d.]+) GiB\)",
        "the KV cache of one request of max-model-len does not fit into {have} GiB",
        "lower max-model-len; the plan of a run says what fits",
        TEXTS,
    ),
    Known(
        "kv-none",
        "broken",
        r"No available memory for the cache blocks",
        "weights and activations leave no memory for a KV cache",
        "raise gpu-memory-utilization, use more cards, or smaller weights",
        TEXTS,
    ),
    Known(
        "mamba-blocks",
        "broken",
        r"max_num_seqs \((?P<have>\d+)\) exceeds available Mamba cache blocks \((?P<fit>\d+)\)",
        "max-num-seqs is {have}, {fit} state blocks fit",
        "set max-num-seqs <= {fit} (rule E8)",
        "vllm#49064",
    ),
    Known(
        "memory-taken",
        "broken",
        r"Free memory on device .*\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*less than desired GPU memory utilization",
        "another process holds the card's memory: {free} of {total} GiB are free",
        "find it with nvidia-smi on the box and end it; it may be an engine left behind",
        "vllm#55510",
    ),
    Known(
        "out-of-memory",
        "broken",
        r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory",
        "the card's memory ran out beside the KV cache",
        "lower gpu-memory-utilization by 0.02, or max-num-batched-tokens or max-num-seqs",
        "PyTorch's text",
    ),
    Known(
        "unknown-option",
        "broken",
        r"error: unrecognized arguments: (?P<what>.+)",
        "this vLLM does not know {what}",
        "correct or remove it in vllm_args, or take the image that knows it",
        TEXTS,
    ),
    Known(
        "bad-option",
        "broken",
        r"error: argument (?P<what>\S+): (?P<why>.+)",
        "vLLM refuses {what}: {why}",
        "correct it in vllm_args",
        TEXTS,
    ),
    Known(
        "illegal-access",
        "broken",
        r"an illegal memory access was encountered",
        "a kernel reached outside its memory: with MTP, FlashInfer and an fp8 KV cache a known fault of the software",
        "the unit starts the engine again; if it recurs, remove speculative-config (rule E4)",
        "vllm#40756, vllm#55775",
    ),
    Known(
        "xid-software",
        "broken",
        r"NVRM: Xid \(.*?\): (?P<xid>13|31|43),",
        "Xid {xid}: a program's fault, not the card's; 31 with MTP, FlashInfer and an fp8 KV cache is known",
        "leave the card where it is; if it recurs, remove speculative-config (rule E4)",
        "NVIDIA's Xid documentation; vllm#40756, vllm#55775",
    ),
    Known(
        "xid-fallen-off",
        "broken",
        r"NVRM: Xid \(.*?\): 79,",
        "Xid 79: the card has fallen off the bus: power, riser, heat or the card itself",
        "reboot; check the clock lock (tandem-gpu-clocks status), the power cables and the slot",
        "NVIDIA's Xid documentation",
    ),
    Known(
        "xid-other",
        "worth knowing",
        r"NVRM: Xid \(.*?\): (?P<xid>\d+),",
        "the driver reports Xid {xid}",
        "look it up in NVIDIA's Xid documentation",
        "NVIDIA's Xid documentation",
    ),
    Known(
        "cuda-804",
        "broken",
        r"[Ee]rror 804|forward compatibility was attempted on non supported HW",
        "the image's CUDA is newer than the driver, and GeForce cards have no forward compatibility",
        "take a newer driver (nvidia_driver_branch), or an image for an older CUDA (rule E13)",
        "vllm#5510",
    ),
    Known(
        "cuda-unknown",
        "broken",
        r"CUDA unknown error - this may be due to|CUDA_ERROR_UNKNOWN",
        "CUDA cannot be initialised though NVML may answer: mostly /dev/nvidia-uvm is missing in the container",
        "systemctl restart nvidia-cdi-refresh, then the engine's unit; site.yml makes it so at each boot",
        "PyTorch's text for cudaErrorUnknown; nvidia-container-toolkit#1979",
    ),
    Known(
        "driver-mismatch",
        "broken",
        r"[Dd]river/library version mismatch",
        "the driver's library was exchanged while its old module is loaded",
        "reboot the box (nvidia_driver_allow_reboot)",
        "NVML's text for error 18",
    ),
    Known(
        "nvml-unknown",
        "broken",
        r"Failed to initialize NVML: Unknown Error",
        "the container has lost its cards, as after a daemon-reload with the legacy hook",
        "start the unit again; its cards come through CDI, which does not lose them",
        "nvidia-container-toolkit#48",
    ),
    Known(
        "no-device",
        "broken",
        r"could not select device driver|unresolvable CDI devices (?P<what>\S+)",
        "Docker cannot give the cards to the container",
        "run site.yml: it installs the toolkit and refreshes the CDI specification",
        "nvidia-container-toolkit#854",
    ),
    Known(
        "no-cards",
        "broken",
        r"Failed to infer device type|No CUDA GPUs are available",
        "the engine sees no card",
        "sudo nvidia-smi on the box; then the CDI specification: nvidia-ctk cdi list",
        TEXTS,
    ),
    Known(
        "too-few-cards",
        "broken",
        r"World size \((?P<want>\d+)\) is larger than the number of available GPUs \((?P<have>\d+)\)",
        "{want} cards are wanted, the container has {have}",
        "set tensor-parallel-size to what the engine is given",
        TEXTS,
    ),
    Known(
        "nccl",
        "broken",
        r"NCCL error|ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclRemoteError",
        "the cards could not exchange data",
        "check that NCCL_P2P_DISABLE is 1 and disable-custom-all-reduce true (rule E11), and vllm_shm_size",
        "vllm#42609, nccl-tests#117",
    ),
    Known(
        "port",
        "broken",
        r"[Aa]ddress already in use",
        "something else listens on the engine's port",
        "set vllm_port, or end it: ss -ltnp on the box",
        "errno(3)",
    ),
    Known(
        "architecture",
        "broken",
        r"Model architectures (?P<what>\[.*?\]) are not supported",
        "this vLLM does not know the model {what}",
        "take a newer image, or check that vllm_model holds the right weights",
        TEXTS,
    ),
    Known(
        "engine-start",
        "broken",
        r"Engine core initialization failed",
        "the engine did not start; a line before says why",
        "read the first error above it",
        TEXTS,
        consequence=True,
    ),
    Known(
        "engine-dead",
        "broken",
        r"EngineCore encountered|EngineDeadError",
        "the engine died; a line before says why",
        "read the first error above it, and the kernel's: journalctl -k",
        TEXTS,
        consequence=True,
    ),
    Known(
        "nccl-warn",
        "worth knowing",
        r"NCCL WARN (?P<what>.+)",
        "NCCL says: {what}",
        "nothing while the engine answers; else see rule E11",
        "NCCL's text",
    ),
    Known(
        "gdn-claim",
        "worth knowing",
        r"GDN decode kernel: cuda",
        "in 0.28 to 0.30 printed before the model's head ratio is checked: no proof that the fused kernel runs",
        "nothing; 0.29.0 and newer have it for this model",
        "read in vLLM's published wheels",
    ),
    Known(
        "kv-pool",
        "worth knowing",
        r"Maximum concurrency for (?P<length>[\d,]+) tokens per request: (?P<times>[\d.]+)x",
        "the pool holds {times} requests of {length} tokens",
        "nothing; compare with the fit that a run prints",
        TEXTS,
    ),
    # The seven of the field report. Chasing them led it to two worse configurations.
    Known(
        "piecewise",
        "benign",
        r"CUDAGraphMode\.\S+ (?:is )?not supported with spec-decode.*PIECEWISE",
        "CUDA graphs are cut into pieces with FlashInfer and MTP; full graphs and a bf16 KV cache were half as fast",
        "nothing; 0.33.0 keeps full graphs",
        REPORT,
    ),
    Known(
        "gdn-triton",
        "benign",
        r"Falling back to the Triton GDN (?:spec )?decode path",
        "the fused kernel is not in this build, or not for this model; Triton's chain takes 1.2 to 2.2 times as long",
        "nothing; 0.29.0 has the kernel for this model, with bfloat16",
        REPORT,
    ),
    Known(
        "jit",
        "benign",
        r"Triton kernel JIT compilation during inference: (?P<what>\S+)",
        "a kernel is compiled at its first use ({what}); one slow request, then never again while the cache lives",
        "nothing",
        REPORT,
    ),
    Known(
        "mtp-layer",
        "benign",
        r"Enabling num_speculative_tokens > 1 will run multiple times",
        "more than one token from one MTP layer; acceptance was 84.9 % with two",
        "nothing",
        REPORT,
    ),
    Known(
        "padding",
        "benign",
        r"Add (?P<layers>\d+) padding layers, may waste at most (?P<percent>[\d.]+) ?% KV cache memory",
        "the KV cache is cut into equal groups of layers; at most {percent} % of it is lost",
        "nothing",
        REPORT,
    ),
]
RANK = {"broken": 0, "worth knowing": 1, "benign": 2}
LONGEST = 300


def vllm_triage(text):
    """The known lines in `text`, a log, gravest first and causes before what follows from them.

    Each is a dict: id, verdict (broken, worth knowing, benign), line (the first of its kind), count, reason, way_out,
    source. The first matching entry of TABLE takes a line.
    """
    found = {}
    for line in text.splitlines():
        for known in TABLE:
            match = re.search(known.pattern, line)
            if match is None:
                continue
            if known.id in found:
                found[known.id]["count"] += 1
            else:
                groups = {name: (value or "").strip() for name, value in match.groupdict().items()}
                found[known.id] = {
                    "id": known.id,
                    "verdict": known.verdict,
                    "line": line.strip()[:LONGEST],
                    "count": 1,
                    "reason": known.reason.format(**groups),
                    "way_out": known.way_out.format(**groups),
                    "source": known.source,
                    "consequence": known.consequence,
                }
            break
    return sorted(found.values(), key=lambda each: (RANK[each["verdict"]], each["consequence"]))


def vllm_triage_text(text):
    """What is to be said of `text`, a log, after a failure: causes with their way out, then what may be ignored."""
    found = vllm_triage(text)
    causes = [each for each in found if each["verdict"] == "broken" and not each["consequence"]]
    lines = [
        f"- {each['reason']}. Way out: {each['way_out']}. Source: {each['source']}\n    {each['line']}"
        for each in causes
    ]
    head = "Known causes in its log:" if causes else "No line of its log is a known cause."
    benign = [each["id"] for each in found if each["verdict"] == "benign"]
    tail = [f"Harmless, whatever they look like: {', '.join(benign)} (docs/engine.md)."] if benign else []
    return "\n".join([head, *lines, *tail])


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"vllm_triage_text": vllm_triage_text}
