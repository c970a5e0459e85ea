"""Known log lines, as vLLM, NCCL, PyTorch and the kernel write them, and logs of engines that a signal ended.

fixtures/engine_deaths: real vLLM 0.32.0 (CPU build), whose engine core was ended by `kill -ILL` and others while it
prefilled a long prompt, with PYTHONFAULTHANDLER=1. The kernel's lines of processes that died and of its OOM killer are
of Linux 6.18.
"""

import re
from pathlib import Path

import pytest
import yaml
from vllm_triage import TABLE, XIDS, vllm_triage, vllm_triage_text  # plugins/filter/vllm_triage.py

ROOT = Path(__file__).parents[2]
DEATHS = Path(__file__).parent / "fixtures/engine_deaths"

PREFIX = "(EngineCore pid=211) ERROR 11-30 03:12:07 [core.py:1512] "
LINES = [
    # the field report's, which look bad and are harmless
    (
        "CUDAGraphMode.FULL_AND_PIECEWISE not supported with spec-decode for FlashInferBackend, set to PIECEWISE",
        "piecewise",
    ),
    (
        "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend FlashInferBackend "
        "(support: AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE); setting cudagraph_mode=PIECEWISE",
        "piecewise",
    ),
    ("Falling back to the Triton GDN decode path: fused_gdn_decode_post_conv_mtp is not built", "gdn-triton"),
    ("Falling back to the Triton GDN spec decode path: torch.ops._C.x is not built", "gdn-triton"),
    ("Triton kernel JIT compilation during inference: precopy_mamba_align_fused_kernel", "jit"),
    ("Triton kernel JIT compilation during inference: _causal_conv1d_fwd_kernel", "jit"),
    ("Triton kernel JIT compilation during inference: another_kernel. This causes a latency spike", "jit"),
    ("Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer", "mtp-layer"),
    ("Add 3 padding layers, may waste at most 6.25% KV cache memory", "padding"),
    # broken
    (
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
        "['FP8 KV cache requires FA3 on SM90 or FA4 on SM100']",
        "fp8-backend",
    ),
    (
        "Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. Reason: "
        "['FP8 KV cache requires FA3 on SM90, FA4 with head_size=512 on SM90, or FA4 on SM100']",
        "fp8-backend",
    ),
    (
        "ValueError: To serve at least one request with the model's max seq len (262144), (10.2 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (9.3 GiB). Based on the available memory, the "
        "estimated maximum model length is 238000. Try increasing `gpu_memory_utilization`",
        "kv-too-large",
    ),
    ("which is larger than the available KV cache memory (0.2 GiB). Try increasing", "kv-too-large"),
    ("ValueError: No available memory for the cache blocks. Try increasing", "kv-none"),
    (
        "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161). Each decode sequence requires one",
        "mamba-blocks",
    ),
    (
        "ValueError: Free memory on device cuda:0 (1.4/23.5 GiB) on startup is less than desired GPU memory "
        "utilization (0.93, 21.9 GiB).",
        "memory-taken",
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.", "out-of-memory"),
    ("vllm serve: error: unrecognized arguments: --max-num-seq=8", "unknown-option"),
    ("vllm serve: error: argument --dtype: invalid choice: 'bf16'", "bad-option"),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "illegal-access"),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=4242, name=VLLM::Worker_TP, Ch 0000000e, MMU Fault", "xid-software"),
    ("NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', GPU has fallen off the bus.", "xid-fallen-off"),
    ("NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed", "xid-other"),
    (
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
        "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
        "cuda-unknown",
    ),
    ("Error 804: forward compatibility was attempted on non supported HW", "cuda-804"),
    ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
    ("Failed to initialize NVML: Unknown Error", "nvml-unknown"),
    ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "no-library"),
    ("docker: could not select device driver with capabilities: [[gpu]].", "no-device"),
    ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-1", "no-device"),
    ("RuntimeError: Failed to infer device type, please set", "no-cards"),
    ("World size (2) is larger than the number of available GPUs (1) in this node.", "too-few-cards"),
    # vLLM 0.32.0's words
    (
        "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 64 MiB "
        "free. Increase "
        "/dev/shm (e.g. --shm-size or --ipc=host).",
        "insufficient-shm",
    ),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/nccl-1'", "insufficient-shm"),
    (
        "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 21.2 GiB.",
        "profiling",
    ),
    (
        "ValueError: There is no module or parameter named 'vision' in Qwen3ForCausalLM. The available",
        "weights-foreign",
    ),
    ("RuntimeError: Cannot find any model weights with `/models`", "weights-missing"),
    (
        "ValueError: Quantization method specified in the model config (awq) does not match the quantization "
        "method specified "
        "in the `quantization` argument (gptq).",
        "quantization",
    ),
    ("ValueError: Unknown quantization method: int5. Must be one of ['awq'].", "quantization"),
    (
        "  Value error, User-specified max_model_len (300000) is greater than the derived max_model_len "
        "(max_position_embeddings="
        "262144). [type=value_error, input_value=ArgsKwargs((), {'model': '/models'}), input_type=ArgsKwargs]",
        "configuration",
    ),
    (
        "  Input should be 'ngram', 'medusa' or 'mtp' [type=literal_error, input_value='no-such', input_type=str]",
        "configuration",
    ),
    (
        "INFO [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds. This "
        "typically happens when "
        "some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache "
        "quantization).",
        "worker-hangs",
    ),
    ("TimeoutError: RPC call to sample_tokens timed out.", "worker-hangs"),
    (
        "RuntimeError: Worker failed with error 'x', please check the stack trace above for the root cause",
        "engine-dead",
    ),
    ("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup", "engine-dead"),
    ("Exception: WorkerProc initialization failed due to an exception in a background process.", "engine-start"),
    # written by the engine's image when asked for it
    (
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, "
        "file not fully "
        "covered",
        "weights-broken",
    ),
    ("SafetensorError: Error while deserializing header: header too large", "weights-broken"),
    ("SafetensorError: Error while deserializing header: HeaderTooLarge", "weights-broken"),
    ("safetensors_rust.SafetensorError: MetadataIncompleteBuffer", "weights-broken"),
    ("PermissionError: [Errno 13] Permission denied: '/models/model.safetensors'", "permission"),
    ("OSError: [Errno 28] No space left on device", "disk-full"),
    ("OSError: [Errno 30] Read-only file system: '/models/x'", "read-only"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/models/model-00002-of-00008.safetensors'",
        "weights-missing",
    ),
    (
        "ValueError: The checkpoint you are trying to load has model type `qwen9` but Transformers does not "
        "recognize this "
        "architecture.",
        "architecture",
    ),
    ("ValueError: Unrecognized model in /models. Should have a `model_type` key in its config.json.", "no-model"),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them", "hub"),
    ("OSError: [Errno 98] Address already in use (while attempting to bind on address ('127.0.0.1', 8123))", "port"),
    # others' reports and sources
    ("OSError: Can't load tokenizer for '/models'. If you were trying to load it from", "tokenizer"),
    ("ValueError: The repository /models contains custom code which must be executed to correctly load", "remote-code"),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display "
        "driver / cuda driver "
        "combination",
        "cuda-803",
    ),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 12040).", "driver-old"),
    ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver-old"),
    ("CUDA error 802: system not yet initialized", "cuda-not-ready"),
    ("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment", "cuda-unknown"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernel"),
    ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist", "compiler"),
    (
        "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor",
        "compiler",
    ),
    ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "ecc"),
    ("torch.AcceleratorError: CUDA error: unspecified launch failure", "launch-failure"),
    ("torch.AcceleratorError: CUDA error: out of memory", "out-of-memory"),
    (
        "[rank1]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL",
        "nccl-timeout",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system error "
        "(run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.27.7",
        "nccl-system",
    ),
    ("Error response from daemon: No such image: vllm/vllm-openai:v9", "image"),
    ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "docker"),
    ("vllm-main is not ready after 870 s; last answer: [Errno 111] Connection refused", "too-slow"),
    (
        "ERROR [multiproc_executor.py:316] Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting "
        "down executor.",
        "died-of-signal",
    ),
    (
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        "{'EngineCore': -4}",
        "died-of-signal",
    ),
    ("vllm-main is not ready: its container is exited (exit code 137: SIGKILL ended it)", "died-of-signal"),
    ("vllm-main.service: Main process exited, code=exited, status=139/n/a", "died-of-signal"),
    ("RuntimeError: NCCL error: unhandled cuda error", "nccl"),
    ("box1:211:340 [0] NCCL WARN Could not enable P2P between dev 0 and 1", "nccl-warn"),
    ("OSError: [Errno 98] Address already in use", "port"),
    ("ValueError: Model architectures ['Qwen4'] are not supported for now.", "architecture"),
    ("RuntimeError: Engine core initialization failed. See root cause above.", "engine-start"),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "engine-dead"),
    ("GDN decode kernel: cuda", "gdn-claim"),
    ("Maximum concurrency for 262,144 tokens per request: 2.13x", "kv-pool"),
]
# what the kernel says, by the pattern of tasks/why.yml
KERNEL = [
    *[(line, known) for line, known in LINES if line.startswith("NVRM")],
    (
        "NVRM: Xid (PCI:0000:41:00): 119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU1 GSP!",
        "xid-reset",
    ),
    ("NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)", "xid-reset"),
    ("NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x1 (PF FLR) to 0x0 (None)", "xid-information"),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 43, pid=7, name=python3, channel 0x00000008", "xid-software"),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid-other"),
    ("NVRM: Xid (PCI:0000:41:00): 45, pid=15041, name=vllm, Ch 00000006", "xid-after"),
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "xid-information",
    ),
    ("NVRM: Xid (PCI:0000:41:00): 54, pid=1", "xid-cable"),
    ("NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.", "fallen-off"),
    ("NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x40:2427)", "driver-init"),
    ("NVRM: API mismatch: the client has the version 580.95.05, but", "driver-mismatch"),
    (
        "Memory cgroup out of memory: Killed process 30102 (VLLM::EngineCor) total-vm:220424kB, "
        "anon-rss:202936kB, file-rss:3756kB",
        "oom-killer",
    ),
    (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task"
        "=python3,pid=29967,uid=0",
        "oom-killer",
    ),
    ("Out of memory: Killed process 812 (mysqld) total-vm:5220424kB, anon-rss:4202936kB", "oom-killer-other"),
    (
        "VLLM::Worker_TP[635]: segfault at 0 ip 00007fc505051ad8 sp 00007ffcaeeb14b8 error 4 in "
        "libc.so.6[167ad8,7fc504f10000+156000] "
        "likely on CPU 0 (core 0, socket 0)",
        "died-of-signal",
    ),
    (
        "traps: python3[540] trap invalid opcode ip:7fac698fa000 sp:7ffc80694578 error:0 in "
        "_C.abi3.so[0,7fac698fa000+1000]",
        "died-of-signal",
    ),
    (
        "traps: python3[732] general protection fault ip:7f558e134ad8 sp:7fff3031fa08 error:0 in "
        "libc.so.6[167ad8,7f558dff3000+156000]",
        "died-of-signal",
    ),
    (
        "traps: mysqld[854] trap divide error ip:7f9c8d04b005 sp:7fff73a1d108 error:0 in mysqld[5,7f9c8d04b000+1000]",
        "other-died",
    ),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel-crash"),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [nvidia-smi:4242]", "kernel-crash"),
    ("INFO: task VLLM::Worker_TP:4242 blocked for more than 120 seconds.", "hung-task"),
    ("I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2", "disk-error"),
    ("Buffer I/O error on dev sda1, logical block 7, async page read", "disk-error"),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0", "file-system"),
    ("pcieport 0000:40:01.1: AER: Uncorrectable (Fatal) error message received from 0000:41:00.0", "pcie-fatal"),
    ("nvidia 0000:41:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)", "pcie-corrected"),
    ("mce: [Hardware Error]: Machine check events logged", "hardware-error"),
]
LINES = [*LINES, *KERNEL]


@pytest.mark.parametrize(("line", "known"), LINES)
def test_each_line_is_known(line, known):
    (found,) = vllm_triage(PREFIX + line)
    assert found["id"] == known
    assert "{" not in found["reason"] + found["way_out"]


def test_every_entry_of_the_table_has_a_line():
    assert {known.id for known in TABLE} <= {known for _, known in LINES}
    assert {known.verdict for known in TABLE} == {"broken", "worth knowing", "benign"}


def test_all_of_the_field_reports_lines_are_benign():
    assert {found["verdict"] for found in vllm_triage("\n".join(line for line, _ in LINES[:9]))} == {"benign"}


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 03:12:07 [api_server.py:1] Application startup complete.",
        'INFO: 127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "Custom allreduce is disabled because your platform lacks GPU P2P capability",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='/models', compilation_config={'level': -1}",
        "vllm-main is not ready: its container is exited (exit code 1)",
        "vllm-main.service: Main process exited, code=exited, status=143/n/a",
        "Engine core initialization finished. Core proc(s): {'EngineCore': 0}",
        "",
    ],
)
def test_an_ordinary_line_is_none_of_them(line):
    assert vllm_triage(line) == []


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ("kv-too-large", "max-model-len <= 238000"),
        ("mamba-blocks", "max-num-seqs <= 161"),
        ("unknown-option", "--max-num-seq=8"),
        ("memory-taken", "1.4 of 23.5 GiB"),
        ("xid-software", "a program's fault, not the card's"),
        ("xid-reset", "Xid 119 of card 0000:41:00: the card's firmware stopped answering"),
        ("xid-reset", "reboot the box"),
        ("xid-fallen-off", "power the box off and on"),
        ("xid-after", "an earlier error"),
        ("died-of-signal", "VllmWorker-1 died of SIGKILL (signal 9)"),
        ("worker-hangs", "it hangs on a card or on the other worker"),
        ("oom-killer", "OOM killer ended VLLM::EngineCor: the box's main memory ran out"),
        ("configuration", "vLLM refuses its configuration: User-specified max_model_len (300000) is greater"),
        ("weights-broken", "incomplete metadata, file not fully covered"),
        ("insufficient-shm", "vllm_shm_size"),
        ("permission", "/models/model.safetensors"),
        ("too-few-cards", "2 cards are wanted, the container has 1"),
    ],
)
def test_what_a_line_says_is_used(known, words):
    (found,) = vllm_triage(next(line for line, name in LINES if name == known))
    assert words in f"{found['reason']}. {found['way_out']}"


def test_the_cause_comes_before_what_follows_from_it_and_lines_are_counted():
    log = "\n".join(
        [
            "Triton kernel JIT compilation during inference: a",
            "Triton kernel JIT compilation during inference: b",
            "RuntimeError: Engine core initialization failed. See root cause above.",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ]
    )
    found = vllm_triage(log)
    assert [each["id"] for each in found] == ["out-of-memory", "engine-start", "jit"]
    assert found[2]["count"] == 2
    text = vllm_triage_text(log)
    assert text.startswith("Known causes in its log:\n- the card's memory ran out")
    assert "a line before says why" not in text
    assert "Harmless, whatever they look like: jit" in text


def test_a_log_without_a_known_cause_says_so():
    assert vllm_triage_text("something else") == "No line of its log is a known cause."


def test_what_the_kernel_says_is_asked_for():
    """The task's pattern lets pass what the filter knows, and what an ordinary kernel says it does not."""
    tasks = yaml.safe_load((ROOT / "roles/vllm/tasks/why.yml").read_text())
    text = next(
        task["vars"]["__vllm_kernel_pattern"] for task in tasks if "__vllm_kernel_pattern" in task.get("vars", {})
    )
    pattern = "|".join(yaml.safe_load(re.search(r"\[.*\]", text, re.S)[0]))
    assert [line for line, _ in KERNEL if not re.search(pattern, line)] == []
    assert not re.search(pattern, "docker0: port 1(veth81ea6f1) entered disabled state")


@pytest.mark.parametrize("group", [*XIDS, "other"])
def test_every_xid_is_shown_with_what_to_do(group):
    for number in XIDS.get(group, [173, 999]):
        line = f"NVRM: Xid (PCI:0000:41:00): {number}, pid='<unknown>', name=<unknown>"
        text = vllm_triage_text("nothing known", line)
        assert f"Xid {number} of card 0000:41:00: " in text and line in text and "Way out: " in text
    if group in ("information", "other"):
        assert "No line of its log is a known cause.\nWorth knowing:\n- Xid" in text
    if group == "other":
        assert "docs.nvidia.com/deploy/xid-errors" in text


def test_two_cards_are_two_findings_and_repetitions_are_counted():
    lines = [f"NVRM: Xid (PCI:0000:{card}:00): 79, GPU has fallen off the bus." for card in ("01", "41", "41")]
    assert [(each["reason"][:29], each["count"]) for each in vllm_triage("\n".join(lines))] == [
        ("Xid 79 of card 0000:01:00: th", 1),
        ("Xid 79 of card 0000:41:00: th", 2),
    ]


@pytest.mark.parametrize(
    ("name", "number", "place"),
    [
        (
            "SIGILL",
            4,
            ", in torch/_ops.py, line 1279 in __call__, called by vllm/_custom_ops.py, line 3927 in cpu_attention_",
        ),
        ("SIGABRT", 6, ", in torch/_ops.py, line 1279 in __call__"),
        ("SIGBUS", 7, ", in torch/_ops.py, line 1279 in __call__"),
        ("SIGFPE", 8, ", in torch/_ops.py, line 1279 in __call__"),
        # by the handler of apache-tvm-ffi, which knows C only
        ("SIGSEGV", 11, ", in GOMP_parallel < cpu_attention_with_kv_cache"),
    ],
)
def test_a_core_that_a_signal_ended_is_told_by_name_and_place(name, number, place):
    (found, *others) = vllm_triage((DEATHS / f"{name}.log").read_text())
    assert found["reason"].startswith(f"EngineCore died of {name} (signal {number}){place}")
    assert {each["id"] for each in others} == {"engine-dead"}
    text = vllm_triage_text((DEATHS / f"{name}.log").read_text())
    assert text.startswith(f"Known causes in its log:\n- EngineCore died of {name} (signal {number})")


@pytest.mark.parametrize("log", ["SIGKILL", "at-start"])
def test_a_core_that_ended_without_a_word_is_told_as_that(log):
    text = vllm_triage_text((DEATHS / f"{log}.log").read_text())
    assert "EngineCore ended without a word: by SIGKILL (signal 9)" in text and "OOM killer" in text
    # where the kernel or Docker says more, they are believed
    line = next(line for line, known in KERNEL if known == "oom-killer")
    for kernel, container in ((line, {}), ("", {"ExitCode": 0, "OOMKilled": True, "Running": False})):
        text = vllm_triage_text((DEATHS / f"{log}.log").read_text(), kernel, container)
        assert "the box's main memory ran out" in text and "without a word" not in text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"ExitCode": 132, "OOMKilled": False, "Running": False}, "died of SIGILL (signal 4)"),
        ({"ExitCode": 139, "OOMKilled": False, "Running": False}, "died of SIGSEGV (signal 11)"),
        ({"ExitCode": 137, "OOMKilled": False, "Running": False}, "died of SIGKILL (signal 9)"),
        ({"ExitCode": 137, "OOMKilled": True, "Running": False}, "OOM killer ended a process of the engine"),
        ({"ExitCode": 192, "OOMKilled": False, "Running": False}, "died of signal 64"),
        ({"ExitCode": 143, "OOMKilled": False, "Running": False}, None),
        ({"ExitCode": 1, "OOMKilled": False, "Running": False}, None),
        ({"ExitCode": 0, "OOMKilled": False, "Running": True}, None),
        ({}, None),
    ],
)
def test_how_the_container_ended(state, words):
    text = vllm_triage_text("nothing known", "", state)
    assert text == "No line of its log is a known cause." if words is None else words in text


def test_a_cause_comes_before_the_signal_that_follows_from_it():
    log = "\n".join(
        [
            "(EngineCore pid=7) ERROR 11-30 03:12:07 [core.py:1] No available shared memory broadcast block "
            "found in 60 seconds.",
            "terminate called after throwing an instance of 'c10::AcceleratorError'",
            "  what():  CUDA error: an illegal memory access was encountered",
            (DEATHS / "SIGABRT.log").read_text(),
        ]
    )
    found = [each["id"] for each in vllm_triage(log)]
    assert found == ["illegal-access", "worker-hangs", "died-of-signal", "engine-dead"]


def test_memory_that_ran_out_with_requests_is_not_memory_that_ran_out_at_a_start():
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
    assert "while the engine started" in vllm_triage_text(line)
    for before in (
        "INFO:     Application startup complete.",
        'INFO: 1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    ):
        assert "with requests running" in vllm_triage_text(f"{before}\n{line}")


def test_an_error_that_is_not_in_the_table_is_told():
    log = "\n".join(
        [
            "(EngineCore pid=7) ERROR 11-30 03:12:07 [core.py:1] Traceback (most recent call last):",
            "(EngineCore pid=7) ERROR 11-30 03:12:07 [core.py:1] ValueError: VLLM_X must be 0 or 1, got {'True'}",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
            "{'EngineCore': 1}",
        ]
    )
    assert vllm_triage_text(log) == (
        "No line of its log is a known cause.\nIts last error: ValueError: VLLM_X must be 0 or 1, got {'True'}"
    )
