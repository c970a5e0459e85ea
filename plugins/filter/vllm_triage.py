# SPDX-License-Identifier: Apache-2.0
"""What known lines in the logs of an engine and of the kernel mean, and how its container ended: tables, and functions
that read a log by them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REPORT = "field report, August 2026"
TEXTS = "vLLM's source"
CUDA_TEXTS = "CUDA's error texts"
KERNEL = "Linux's source"
CATALOG = "NVIDIA's Xid catalog, docs.nvidia.com/deploy/xid-errors"

# How near to the cause a finding is.
CAUSE, SYMPTOM, FOLLOWS = 0, 1, 2


class Known(NamedTuple):
    """`reason` and `way_out` may name groups of `pattern`."""

    id: str
    verdict: str  # broken | worth knowing | benign
    pattern: str
    reason: str
    way_out: str
    source: str
    depth: int = CAUSE  # SYMPTOM: told after causes. FOLLOWS: says that something is broken, another line says what.
    serving: bool | None = None  # only after the engine has been ready, or only before


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
        "nvml-unknown",
        "broken",
        r"Failed to initialize NVML: Unknown Error",
        "the container has lost its cards, as after a daemon-reload with the legacy hook",
        "start the unit again; its cards come through CDI, which does not lose them",
        "nvidia-container-toolkit#48",
    ),
    Known(
        "no-library",
        "broken",
        r"ImportError: (?P<what>lib(?:cuda|nvidia-ml)\.so\.1): cannot open shared object file",
        "the container has no {what}: the CDI specification brings no library of the driver",
        "systemctl restart nvidia-cdi-refresh, then the engine's unit; nvidia-smi on the box must answer first",
        "the dynamic loader's text (glibc)",
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
        "out-of-memory",
        "broken",
        r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "the card's memory ran out beside the KV cache, with requests running",
        "lower gpu-memory-utilization by 0.02, or max-num-batched-tokens or max-num-seqs",
        "PyTorch's text",
        serving=True,
    ),
    Known(
        "out-of-memory",
        "broken",
        r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "the card's memory ran out while the engine started: weights, activations and CUDA graphs need more than "
        "there is",
        "lower gpu-memory-utilization by 0.02, max-num-seqs or max-num-batched-tokens; sudo nvidia-smi shows who "
        "else holds memory",
        "PyTorch's text",
    ),
    Known(
        "profiling",
        "broken",
        r"Error in memory profiling",
        "another process gave memory of the card back while vLLM measured it",
        "start the unit again, with nothing else on the card",
        TEXTS,
    ),
    Known(
        "insufficient-shm",
        "broken",
        r"Insufficient space in /dev/shm.*: (?P<want>\d+) MiB required, (?P<have>\d+) MiB free"
        r"|insufficient shared memory|No space left on device: '/dev/shm",
        "/dev/shm of the container is too small for what its processes exchange",
        "raise vllm_shm_size",
        TEXTS,
    ),
    Known(
        "disk-full",
        "broken",
        r"No space left on device|Disk quota exceeded",
        "a disk of the box is full",
        "df -h on the box; docker image prune, /var/lib/tandem/vllm/cache of images that are gone, or a bigger disk",
        "errno(3)",
    ),
    Known(
        "read-only",
        "broken",
        r"Read-only file system(?:: '(?P<what>[^']+)')?",
        "the engine writes where it may not: {what}. /models is read-only for it; elsewhere the disk may have failed",
        "look for I/O errors with journalctl -k; compiled code belongs into /root/.cache/vllm, which is kept",
        "errno(3)",
    ),
    Known(
        "permission",
        "broken",
        r"Permission denied: '(?P<what>[^']+)'",
        "the engine may not read or write {what}",
        "chmod -R a+rX on the weights (vllm_model is /models in the container); with userns-remap in Docker root "
        "is nobody there",
        "errno(3)",
    ),
    Known(
        "weights-broken",
        "broken",
        r"Error while deserializing header: (?P<why>.+)"
        r"|(?P<old>HeaderTooLarge|HeaderTooSmall|InvalidHeader\w*|MetadataIncompleteBuffer)",
        "a file of the weights is cut short or is none ({why}{old}): an unfinished download, a Git LFS pointer, "
        "a web page",
        "compare the files' sizes with the source's and fetch them again (playbooks/fetch.yml, or hf download)",
        "safetensors' texts",
    ),
    Known(
        "weights-missing",
        "broken",
        r"Cannot find any model weights with|No such file or directory: '(?P<what>/models[^']*)'",
        "weights are missing under vllm_model {what}",
        "fetch the whole model; links that point out of the folder are dead in the container",
        TEXTS,
    ),
    Known(
        "weights-foreign",
        "broken",
        r"There is no module or parameter named (?P<what>'[^']*')"
        r"|Following weights were not initialized from checkpoint",
        "the weights do not fit the model that config.json names {what}",
        "take the image that the model's page asks for, or weights of the right kind",
        TEXTS,
    ),
    Known(
        "quantization",
        "broken",
        r"Quantization method specified in the model config \((?P<have>[^)]*)\) does not match"
        r".*argument \((?P<want>[^)]*)\)",
        "the weights are quantized as {have}, vllm_args ask for {want}",
        "remove quantization from vllm_args: vLLM takes the weights' own",
        TEXTS,
    ),
    Known(
        "quantization",
        "broken",
        r"Unknown quantization method: (?P<what>[^.]+)"
        r"|quantization method (?P<other>\S+) is not supported for the current GPU",
        "this vLLM has no quantization {what}{other} for these cards",
        "correct quantization in vllm_args, or take other weights",
        TEXTS,
    ),
    Known(
        "architecture",
        "broken",
        r"Model architectures (?P<what>\[.*?\]) are not supported"
        r"|has model type (?P<type>`[^`]*`) but Transformers does not",
        "this vLLM does not know the model {what}{type}",
        "take a newer image, or check that vllm_model holds the right weights",
        TEXTS,
    ),
    Known(
        "no-model",
        "broken",
        r"Unrecognized model in|Can't load the configuration of|Invalid repository ID or local directory specified",
        "vllm_model has no config.json of a model",
        "set vllm_model to the folder that has config.json and the weights",
        "Transformers' and vLLM's texts",
    ),
    Known(
        "tokenizer",
        "broken",
        r"Can't load tokenizer|Failed to load the tokenizer|Couldn't instantiate the backend tokenizer"
        r"|Tokenizer class \S+ does not",
        "the model's tokenizer is missing or of a kind that this image does not know",
        "fetch the whole model: tokenizer.json, tokenizer_config.json; or take a newer image",
        "Transformers' texts",
    ),
    Known(
        "hub",
        "broken",
        r"We couldn't connect to 'https://huggingface\.co'|LocalEntryNotFoundError|OfflineModeIsEnabled"
        r"|NameResolutionError|Temporary failure in name resolution|Cannot access gated repo|GatedRepoError",
        "the engine wants something from the hub that it does not have: a file is missing in vllm_model, or an "
        "argument names a repository",
        "fetch the whole model; set tokenizer, draft model and the like in vllm_args to paths under /models",
        "Transformers' and huggingface_hub's texts",
    ),
    Known(
        "remote-code",
        "broken",
        r"contains custom code which must be executed",
        "the model brings Python code of its own, which vLLM runs only if told to",
        "read that code first; trust-remote-code in vllm_args lets the model's authors run code in the engine",
        "Transformers' text",
    ),
    Known(
        "configuration",
        "broken",
        r"(?:Value error, )?(?P<why>\S.*?) \[type=\w+, input_value=",
        "vLLM refuses its configuration: {why}",
        "correct it in vllm_args",
        "pydantic's text",
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
        "cuda-803",
        "broken",
        r"[Ee]rror 803|unsupported display driver / cuda driver combination",
        "the CUDA library in the container is not of the driver that is loaded",
        "reboot after a driver's exchange; else nvidia-ctk cdi list, and an LD_LIBRARY_PATH or compat library in "
        "vllm_env or the image",
        "gpustack#4678; " + CUDA_TEXTS,
    ),
    Known(
        "driver-old",
        "broken",
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient for CUDA runtime version",
        "the driver is too old for the image's CUDA",
        "take a newer driver (nvidia_driver_branch), or an image for an older CUDA (rule E13)",
        "PyTorch's text; " + CUDA_TEXTS,
    ),
    Known(
        "driver-mismatch",
        "broken",
        r"[Dd]river/library version mismatch|NVRM: API mismatch",
        "the driver's library was exchanged while its old module is loaded",
        "reboot the box (nvidia_driver_allow_reboot)",
        "NVML's text for error 18",
    ),
    Known(
        "cuda-unknown",
        "broken",
        r"CUDA unknown error|CUDA_ERROR_UNKNOWN",
        "CUDA cannot be initialised though NVML may answer: mostly /dev/nvidia-uvm is missing in the container",
        "systemctl restart nvidia-cdi-refresh, then the engine's unit; site.yml makes it so at each boot",
        "PyTorch's text for cudaErrorUnknown; nvidia-container-toolkit#1979",
    ),
    Known(
        "cuda-not-ready",
        "broken",
        r"[Ee]rror 802|system not yet initialized|CUDA-capable device\(s\) is/are busy or unavailable",
        "CUDA cannot begin on the card",
        "sudo nvidia-smi on the box, ls -l /dev/nvidia*: /dev/nvidia-uvm must be there; then a reboot",
        CUDA_TEXTS,
    ),
    Known(
        "no-kernel",
        "broken",
        r"no kernel image is available for execution on the device",
        "the image has no compiled code for this card",
        "take an image that is built for compute capability 8.9",
        "vllm#19018",
    ),
    Known(
        "compiler",
        "broken",
        r"Could not find nvcc|PTXASError|[Cc]annot find (?:a working )?ptxas|InvalidCxxCompiler"
        r"|No working C\+\+ compiler"
        r"|Failed to find C compiler|ninja: build stopped|Ninja build failed",
        "the engine compiles a kernel, and the image's compiler is missing or fails",
        "take the image as vLLM publishes it; else set another attention-backend, or enforce-eager",
        "vllm#26642, PyTorch's and Triton's texts",
    ),
    Known(
        "ecc",
        "broken",
        r"uncorrectable ECC error encountered",
        "the card's memory has a fault that it could not correct",
        "reboot; if it recurs, exchange the card",
        CUDA_TEXTS,
    ),
    Known(
        "launch-failure",
        "broken",
        r"CUDA error: (?P<what>unspecified launch failure|misaligned address|an illegal instruction was encountered"
        r"|device-side assert triggered|the launch timed out and was terminated|invalid program counter)",
        "a kernel failed on the card ({what}): the kernel's log says whether it was the program or the card (Xid)",
        "the unit starts the engine again; if it recurs, remove speculative-config (rule E4), then look at "
        "clocks and power",
        CUDA_TEXTS,
    ),
    Known(
        "nccl-timeout",
        "broken",
        r"Watchdog caught collective operation timeout",
        "one card waited in vain for the other: a worker hangs or has died",
        "look for what happened to the other worker before; NCCL_P2P_DISABLE 1 and disable-custom-all-reduce "
        "true (rule E11)",
        "pytorch#118369",
        depth=SYMPTOM,
    ),
    Known(
        "nccl-system",
        "broken",
        r"unhandled system error|ncclSystemError",
        "NCCL could not open what it needs from the system: shared memory or a socket",
        "raise vllm_shm_size; NCCL_DEBUG: WARN in vllm_env prints which",
        "vllm#10523",
    ),
    Known(
        "nccl",
        "broken",
        r"NCCL error|ncclUnhandledCudaError|ncclInternalError|ncclRemoteError",
        "the cards could not exchange data",
        "check that NCCL_P2P_DISABLE is 1 and disable-custom-all-reduce true (rule E11), and vllm_shm_size",
        "vllm#42609, nccl-tests#117",
    ),
    Known(
        "port",
        "broken",
        r"[Aa]ddress already in use|EADDRINUSE",
        "something else listens on the engine's port",
        "set vllm_port, or end it: ss -ltnp on the box",
        "errno(3)",
    ),
    Known(
        "image",
        "broken",
        r"No such image|Unable to find image|pull access denied|manifest for \S+ not found",
        "the image is not on the box",
        "run site.yml, which fetches it",
        "Docker's texts",
    ),
    Known(
        "docker",
        "broken",
        r"Cannot connect to the Docker daemon",
        "Docker does not run",
        "systemctl status docker on the box",
        "Docker's text",
    ),
    Known(
        "worker-hangs",
        "broken",
        r"No available shared memory broadcast block found in (?P<seconds>\d+) seconds"
        r"|RPC call to (?P<call>\S+) timed out",
        "a worker has taken no work for a minute or more: it compiles, which ends, or it hangs on a card or on "
        "the other worker",
        "sudo nvidia-smi on the box and journalctl -k for Xid lines; if a card is at 100 % for ever, "
        "NCCL_P2P_DISABLE 1 and "
        "disable-custom-all-reduce true (rule E11); the unit's restart frees it",
        "vllm#46611",
        depth=SYMPTOM,
    ),
    Known(
        "too-slow",
        "broken",
        r"is not ready after (?P<seconds>\d+) s; last answer: (?P<last>.+)",
        "it was not ready within {seconds} s; its last answer was: {last}",
        "raise vllm_start_timeout if its log shows that it was still loading or compiling",
        "vllm-wait-ready",
        depth=SYMPTOM,
    ),
    Known(
        "engine-start",
        "broken",
        r"(?:Engine core|WorkerProc) initialization failed|Frontend process failed during engine core initialization",
        "the engine did not start; a line before says why",
        "read the first error above it",
        TEXTS,
        depth=FOLLOWS,
    ),
    Known(
        "engine-dead",
        "broken",
        r"EngineCore encountered|EngineDeadError|engine core exited unexpectedly|Worker failed with error"
        r"|died unexpectedly",
        "the engine died; a line before says why",
        "read the first error above it, and the kernel's: journalctl -k",
        TEXTS,
        depth=FOLLOWS,
    ),
    # The kernel's.
    Known(
        "oom-killer",
        "broken",
        r"(?:[Oo]ut of memory): Kill(?:ed)? process (?P<pid>\d+) \((?P<who>(?:VLLM|vllm|pt_main|python)[^)]*)\)"
        r"|oom-kill:.*,task=(?P<task>(?:VLLM|vllm|pt_main|python)[^,]*)",
        "the kernel's OOM killer ended {who}{task}: the box's main memory ran out",
        "free -h on the box, and journalctl -k: the table above the line says who held it. Lower what vllm_args "
        "keep in main memory "
        "(cpu-offload-gb, swap-space, KV offloading), or add memory",
        KERNEL,
    ),
    Known(
        "oom-killer-other",
        "worth knowing",
        r"(?:[Oo]ut of memory): Kill(?:ed)? process (?P<pid>\d+) \((?P<who>[^)]+)\)",
        "the kernel's OOM killer ended {who}: the box's main memory ran out",
        "free -h on the box; an engine's start is when it needs most",
        KERNEL,
    ),
    Known(
        "kernel-crash",
        "broken",
        r"(?P<what>BUG: (?:unable to handle|kernel NULL|soft lockup|Bad page|workqueue lockup).*|kernel BUG at .*"
        r"|Oops: .*"
        r"|general protection fault, .*|watchdog: .*hard LOCKUP.*)",
        "the kernel itself failed: {what}",
        "reboot the box; if it recurs, another kernel or driver, and test its memory",
        KERNEL,
    ),
    Known(
        "hung-task",
        "broken",
        r"INFO: task (?P<who>\S+?):\d+ blocked for more than (?P<seconds>\d+) seconds",
        "{who} has been stuck in the kernel for {seconds} s: in the driver or on a disk",
        "journalctl -k names the call below the line; a reboot ends it, by power if it hangs",
        KERNEL,
        depth=SYMPTOM,
    ),
    Known(
        "driver-init",
        "broken",
        r"NVRM: .*RmInitAdapter failed",
        "the driver could not bring a card up",
        "power the box off and on; if it recurs, the card, its power cable or its slot",
        "NVIDIA's open kernel modules",
    ),
    Known(
        "fallen-off",
        "broken",
        r"NVRM: .*(?:fallen off the bus|GPU is lost|GPU lost from the bus)",
        "a card has fallen off the bus: power, riser, heat or the card itself",
        "power the box off and on; check the clock lock (tandem-gpu-clocks status), the power cables and the slot",
        CATALOG,
    ),
    Known(
        "disk-error",
        "broken",
        r"I/O error, dev (?P<disk>[^ ,]+)|Buffer I/O error on dev(?:ice)? (?P<device>[^ ,]+)"
        r"|critical (?:medium|target) error, dev (?P<sick>[^ ,]+)",
        "the disk {disk}{device}{sick} fails to read or write",
        "smartctl -a on it; exchange it, then fetch the weights again",
        KERNEL,
    ),
    Known(
        "file-system",
        "broken",
        r"(?P<what>(?:EXT4-fs error|XFS \(\S+\): .*(?:[Cc]orrupt|error)|BTRFS (?:error|critical)"
        r"|Remounting filesystem read-only).*)",
        "a file system of the box is broken: {what}",
        "look at the disk (smartctl -a), then fsck from a rescue system",
        KERNEL,
    ),
    Known(
        "pcie-fatal",
        "broken",
        r"(?P<what>AER: .*Uncorrect(?:ed|able) \((?:Non-)?Fatal\).*|PCIe Bus Error: severity=Uncorrect(?:ed|able).*)",
        "the PCIe link failed: {what}",
        "power the box off and on; seat the card and its riser anew, and set the slot to PCIe 3 or 4 in the firmware",
        KERNEL,
    ),
    Known(
        "pcie-corrected",
        "worth knowing",
        r"AER: .*Correct(?:ed|able).*|PCIe Bus Error: severity=Correct(?:ed|able)",
        "the PCIe link corrects errors: slow at worst, and often what comes before a card is lost",
        "seat the card and its riser anew, if it goes on",
        KERNEL,
    ),
    Known(
        "hardware-error",
        "worth knowing",
        r"\[Hardware Error\]|mce: .*[Mm]achine check|Machine check events logged|EDAC .*\b[UC]E\b",
        "the processor or its memory reports a hardware error",
        "journalctl -k, ras-mc-ctl --errors; test the memory",
        KERNEL,
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

# Number: what it says of a card. The groups are the catalog's immediate actions.
XIDS = {
    # RESTART_APP, and 43, which the driver says when it has ended a program's work
    "software": {
        8: "its work stopped",
        11: "it was given invalid commands",
        13: "a kernel did what it may not (graphics engine exception)",
        25: "it was given invalid commands",
        31: "a kernel reached outside its memory (MMU fault)",
        32: "it was given corrupt commands",
        43: "a program's work was ended",
        **dict.fromkeys([39, 40, 41, 70, 71, 72, 75, 76, 77, 85], "a copy engine failed"),
        60: "its security engine refused a program",
        68: "its video decoder failed",
        69: "a program used a class that the card does not have",
        80: "a program's commands had a wrong checksum",
        94: "a memory error, contained to one program",
    },
    # RESET_GPU
    "reset": {
        46: "the card stopped working",
        48: "a memory error that could not be corrected (double-bit ECC)",
        62: "its internal controller halted",
        64: "a bad row of its memory could not be exchanged",
        95: "a memory error that reached beyond one program",
        109: "switching between programs took too long",
        110: "a security fault",
        119: "the card's firmware stopped answering (GSP)",
        120: "the card's firmware failed (GSP)",
        140: "a memory error that could not be corrected (ECC)",
        143: "the card could not be brought up",
        156: "a part of the card was retired",
        158: "the card did not answer in time",
        171: "a memory error that could not be corrected (DRAM)",
        172: "a memory error that could not be corrected (SRAM)",
    },
    # RESTART_BM
    "fallen-off": {
        79: "the card has fallen off the bus: power, riser, heat or the card itself",
        167: "the PCIe link stopped answering",
    },
    # CHECK_MECHANICALS
    "cable": {54: "the card lacks power from its own cable"},
    # IGNORE
    "information": {
        **dict.fromkeys([37, 38, 44, 66, 67], "its front end reports a fault"),
        61: "its internal controller met a breakpoint",
        63: "a bad row of its memory was exchanged for a spare one",
        74: "an NVLink error, which a card without NVLink should not have",
        92: "many memory errors, all corrected",
        93: "its settings are written more often than they last",
        121: "an error of a link that this card does not have (C2C)",
        **dict.fromkeys([122, 123, 124, 125], "its settings' memory could not be read or written (SPI, InfoROM)"),
        141: "a fault of a fast path",
        142: "its third video encoder failed",
        **dict.fromkeys([160, 161], "a channel was retired"),
        168: "it has less memory than it should",
    },
}
# verdict, depth, way out
XID_GROUPS = {
    "software": (
        "broken",
        CAUSE,
        "a program's fault, not the card's, in most cases: the unit starts the engine again and the card stays "
        "where it is; if it recurs, "
        "remove speculative-config (rule E4: known with MTP, FlashInfer and an fp8 KV cache)",
    ),
    "reset": (
        "broken",
        CAUSE,
        "reboot the box, and power it off and on if that hangs or does not help; if it recurs, take another "
        "nvidia_driver_branch, then suspect the "
        "card",
    ),
    "fallen-off": (
        "broken",
        CAUSE,
        "power the box off and on; check the clock lock (tandem-gpu-clocks status), the power cables and the slot",
    ),
    "cable": ("broken", CAUSE, "switch the box off and seat the card's power cable anew"),
    "information": ("worth knowing", CAUSE, "nothing, if it stays alone; else the other lines say what"),
    "after": (
        "worth knowing",
        SYMPTOM,
        "nothing by itself: it follows from another error, before it in the kernel's log or in the engine's",
    ),
    "other": (
        "worth knowing",
        CAUSE,
        "look the number up in NVIDIA's Xid catalog: docs.nvidia.com/deploy/xid-errors",
    ),
}
XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<card>[^)]+)\): (?P<number>\d+)\b(?P<rest>.*)")
RECOVERY = re.compile(r"recovery action changed from \S+ \([^)]*\) to \S+ \((?P<to>[^)]*)\)")

# Linux's numbers: the controller may be another system.
SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
ASKED_TO_STOP = {1, 2, 3, 15}
# what Python's faulthandler calls them
FATAL = {
    "Illegal instruction": 4,
    "Aborted": 6,
    "Bus error": 7,
    "Floating point exception": 8,
    "Floating-point exception": 8,
    "Segmentation fault": 11,
}
CODE_WAY_OUT = (
    "a fault in compiled code (vLLM, PyTorch, the driver) or in the box's memory: the unit starts the engine again; "
    "if it recurs in the same place, take another image or driver; if in changing ones, test the box's memory"
)
SIGNAL_WAYS_OUT = {
    4: "the processor does not know, or may not use, an instruction of the image: compare lscpu with what the image is "
    "built for, and take another image",
    6: "a library gave up: what it said is in the lines before",
    7: "a file in memory became shorter than it was: raise vllm_shm_size, look for a full disk (df -h) and for I/O "
    "errors (journalctl -k)",
    9: "it comes from outside: the kernel's OOM killer (journalctl -k says so), a stop that took too long, or "
    "somebody's kill",
    15: "it was asked to stop, by systemd, Docker, its parent or a person: if nobody meant to, see what failed before",
}
# what the kernel says of a process that dies without a handler of its own
TRAPS = re.compile(
    r"(?P<who>\S.*?)\[\d+\](?::| trap| general) ?(?P<what>segfault at|invalid opcode|divide error"
    r"|protection fault|stack segment|int3)"
    r".*?(?: in (?P<where>[^\[ ]+)\[|$)"
)
TRAP_SIGNALS = {"invalid opcode": 4, "divide error": 8, "int3": 5}
ENGINES_OWN = re.compile(r"VLLM|vllm|pt_main|python")
EXIT_CODES = re.compile(
    r"Worker proc (?P<worker>\S+) died unexpectedly \(exit code: -(?P<by>\d+)\)"
    r"|Failed core proc\(s\): .*?'(?P<core>\w+)': -(?P<of>\d+)"
    r"|Process (?P<process>\S+) \(PID: \d+\) died with exit code -(?P<after>\d+)"
)
# of the container: by vllm-wait-ready, and by systemd of Docker's client
ENDED = re.compile(r"exit code (?P<code>\d+)\b|, status=(?P<status>\d+)/")
FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.+)')

# what vLLM's processes, PyTorch's ranks and the kernel put before their lines
PREFIX = re.compile(
    r"^(?:\(\w+(?: pid=\d+)?\) )*(?:(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d )?(?:\[[^\]]*\]:? ?)*"
)
READY = re.compile(r'Application startup complete|"POST /v1/\S+ HTTP/1\.1" 200')
ERROR = re.compile(r"^(?:[\w.]+\.)?(?:[A-Z]\w*(?:Error|Exception|Timeout|Exit)|Exception): \S")
NO_CAUSE = re.compile(
    r"EngineDeadError|EngineGenerateError|initialization failed|Worker failed with error|CancelledError"
    r"|SystemExit|see (?:the )?stack trace",
    re.I,
)
RANK = {"broken": 0, "worth knowing": 1, "benign": 2}
LONGEST = 300


def signal_name(number):
    return f"{SIGNALS[number]} (signal {number})" if number in SIGNALS else f"signal {number}"


def finding(name, verdict, depth, line, reason, way_out, source):
    return {
        "id": name,
        "verdict": verdict,
        "line": line.strip()[:LONGEST],
        "count": 1,
        "reason": reason,
        "way_out": way_out,
        "source": source,
        "depth": depth,
    }


def xid(line):
    """The finding of a line with an Xid, or None."""
    match = XID.search(line)
    if match is None:
        return None
    number, card = int(match["number"]), match["card"]
    group, says = next(
        ((group, numbers[number]) for group, numbers in XIDS.items() if number in numbers),
        ("other", "not in the table of known ones"),
    )
    if number == 45:
        group, says = "after", "the driver ended a program's work after an earlier error"
    if number == 154:
        wanted = (RECOVERY.search(match["rest"]) or {"to": ""})["to"]
        says = f"the driver says how to recover: {wanted or 'see the line'}"
        # GPU Reset Required, PF FLR, Node Reboot Required, OS Reboot, Drain P2P, Drain and Reset
        group = {"None": "information", "": "other"}.get(wanted, "reset")
    verdict, depth, way_out = XID_GROUPS[group]
    if number == 154 and group != "other":
        # it sums up what another Xid has said
        depth = SYMPTOM
    return finding(f"xid-{group}", verdict, depth, line, f"Xid {number} of card {card}: {says}", way_out, CATALOG)


def death(who, number, line, place=""):
    """The finding of a process that a signal ended."""
    reason = f"{who} died of {signal_name(number)}{f', in {place}' if place else ''}"
    way_out = SIGNAL_WAYS_OUT.get(number, CODE_WAY_OUT)
    depth = SYMPTOM if number == 6 else CAUSE
    return finding("died-of-signal", "broken", depth, line, reason, way_out, "signal(7)")


def trap(line):
    """The finding of the kernel's line about a process that died, or None."""
    match = TRAPS.search(line)
    if match is None:
        return None
    who = re.sub(r"^.*?traps: ", "", match["who"]).split("kernel: ")[-1].split("] ")[-1]
    found = death(who, TRAP_SIGNALS.get(match["what"], 11), line, match["where"] or "")
    if not ENGINES_OWN.match(who):
        found.update(id="other-died", verdict="worth knowing", way_out="nothing, if it has no part in the engine")
    return found


def exit_code(line):
    """The finding of a line that tells the exit code of a process that a signal ended, or None."""
    match = EXIT_CODES.search(line)
    if match is None:
        match = ENDED.search(line)
        return of_container({"ExitCode": int(match["code"] or match["status"])}, line) if match else None
    who = match["worker"] or match["core"] or match["process"]
    return death(who, int(match["by"] or match["of"] or match["after"]), line)


def place_of(frames):
    """Where it was: the innermost frame, and vLLM's own innermost where that is another. frames: matches of FRAME."""
    if not frames:
        return ""
    if frames[0]["file"] == "<unknown>":  # C functions, by apache-tvm-ffi's handler
        return " < ".join(frame["function"].split("(")[0].split("<")[0] for frame in frames[:2])
    texts = [
        f"{frame['file'].split('-packages/')[-1]}, line {frame['line']} in {frame['function']}" for frame in frames
    ]
    own = next((text for text in texts if text.startswith("vllm/")), texts[0])
    return texts[0] if own == texts[0] else f"{texts[0]}, called by {own}"


def dumps(lines):
    """(number of the line, finding) for every process that said before it died where it was.

    Python's faulthandler does so (PYTHONFAULTHANDLER in the unit), and apache-tvm-ffi, which xgrammar brings along: its
    handler of SIGSEGV takes the place of Python's and knows functions in C only.
    """
    for at, line in enumerate(lines):
        match = re.search(r"Fatal Python error: (?P<what>.+)|!!! Segfault encountered !!!", line)
        if match is None:
            continue
        block = lines[at + 1 : at + 400]
        start = next(
            (number for number, text in enumerate(block) if text.startswith("Current thread")),
            None if match["what"] else -1,
        )
        frames = []
        for text in block[start + 1 :] if start is not None else []:
            frame = FRAME.match(text)
            if frame is None:
                break
            frames.append(frame)
        functions = {frame["function"] for frame in frames}
        who = (
            "a worker"
            if "worker_main" in functions
            else "EngineCore"
            if "run_engine_core" in functions or any("engine core exited unexpectedly" in text for text in block)
            else "the API server"
            if "run_server" in functions
            else "a process of the engine"
        )
        what = (match["what"] or "Segmentation fault").strip()
        if what in FATAL:
            yield at, death(who, FATAL[what], line, place_of(frames))
        else:
            found = death(who, 6, line, place_of(frames))
            yield at, {**found, "reason": f"{found['reason']}: Python itself gave up: {what}"}


def by_table(line, serving):
    for known in TABLE:
        match = re.search(known.pattern, line)
        if match is None or known.serving not in (None, serving):
            continue
        groups = {name: (value or "").strip() for name, value in match.groupdict().items()}
        reason = " ".join(known.reason.format(**groups).split())
        return finding(known.id, known.verdict, known.depth, line, reason, known.way_out.format(**groups), known.source)
    return None


def vllm_triage(text):
    """The known lines in `text`, a log, gravest first, causes before symptoms and these before what follows from them.

    Each is a dict: id, verdict (broken, worth knowing, benign), line (the first of its kind), count, reason, way_out,
    source, depth. The first matching entry of TABLE takes a line.
    """
    lines = text.splitlines()
    dumped = dict(dumps(lines))
    found, serving = {}, False
    for at, line in enumerate(lines):
        serving = serving or READY.search(line) is not None
        plain = PREFIX.sub("", line)
        one = dumped.get(at) or xid(plain) or exit_code(plain) or trap(plain) or by_table(plain, serving)
        if one is None:
            continue
        # one card's Xid is not another's, and one dead process is not another
        key = (one["id"], one["reason"] if one["id"].startswith("xid-") or one["id"] == "died-of-signal" else "")
        if key in found:
            found[key]["count"] += 1
        else:
            found[key] = {**one, "line": line.strip()[:LONGEST]}
    return sorted(found.values(), key=lambda each: (RANK[each["verdict"]], each["depth"]))


def of_container(state, line=None):
    """The finding of what Docker says of the container's end, or None. state: of `docker inspect`, or empty."""
    code = state.get("ExitCode") or 0
    line = line or f"its container: exit code {code}{', OOMKilled' if state.get('OOMKilled') else ''}"
    if state.get("OOMKilled"):
        known = next(each for each in TABLE if each.id == "oom-killer")
        reason = known.reason.format(who="a process of the engine", task="")
        return finding("oom-killer", "broken", CAUSE, line, reason, known.way_out, "Docker")
    if state.get("Running") or code <= 128 or code - 128 in ASKED_TO_STOP:
        return None
    return {**death("the engine's first process", code - 128, line), "depth": SYMPTOM}


def errors_of(text):
    """The lines with exceptions that are none of those that say only that another process ended."""
    plain = [PREFIX.sub("", line).strip() for line in text.splitlines()]
    return [line[:LONGEST] for line in plain if ERROR.match(line) and not NO_CAUSE.search(line)]


def told(each):
    times = f" ({each['count']} times)" if each["count"] > 1 else ""
    return f"- {each['reason']}. Way out: {each['way_out']}. Source: {each['source']}\n    {each['line']}{times}"


def vllm_triage_text(log, kernel="", container=None):
    """What is to be said after a failure: causes with their way out, what else is worth knowing, what may be ignored.

    log: the engine's; kernel: what the kernel said meanwhile; container: its State by `docker inspect`, or empty.
    """
    # what the kernel tells of cards and memory comes before what programs make of it
    found = vllm_triage(kernel + "\n" + log)
    ids = {each["id"] for each in found}
    ended = of_container(container or {})
    if ended and ended["id"] not in ids:
        found.append(ended)
    broken = [each for each in found if each["verdict"] == "broken"]
    causes = sorted((each for each in broken if each["depth"] < FOLLOWS), key=lambda each: each["depth"])
    if not causes and any(each["depth"] == FOLLOWS for each in broken) and not errors_of(log):
        line = next(each["line"] for each in broken)
        causes = [
            finding(
                "died-silently",
                "broken",
                CAUSE,
                line,
                "EngineCore ended without a word: by SIGKILL (signal 9), which no program can catch",
                SIGNAL_WAYS_OUT[9],
                "vLLM's source, tried with kill -KILL",
            )
        ]
    knowing = [each for each in found if each["verdict"] == "worth knowing"]
    benign = [each["id"] for each in found if each["verdict"] == "benign"]
    lines = ["Known causes in its log:", *map(told, causes)] if causes else ["No line of its log is a known cause."]
    if not causes and errors_of(log):
        lines.append(f"Its last error: {errors_of(log)[-1]}")
    if knowing:
        lines += ["Worth knowing:", *map(told, knowing)]
    if benign:
        lines.append(f"Harmless, whatever they look like: {', '.join(benign)} (docs/engine.md).")
    return "\n".join(lines)


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {"vllm_triage_text": vllm_triage_text}
