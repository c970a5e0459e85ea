"""Known log lines, as vLLM, NCCL, PyTorch and the kernel write them."""

import pytest
from vllm_triage import TABLE, vllm_triage, vllm_triage_text  # plugins/filter/vllm_triage.py

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
    ("docker: could not select device driver with capabilities: [[gpu]].", "no-device"),
    ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-1", "no-device"),
    ("RuntimeError: Failed to infer device type, please set", "no-cards"),
    ("World size (2) is larger than the number of available GPUs (1) in this node.", "too-few-cards"),
    ("RuntimeError: NCCL error: unhandled cuda error", "nccl"),
    ("box1:211:340 [0] NCCL WARN Could not enable P2P between dev 0 and 1", "nccl-warn"),
    ("OSError: [Errno 98] Address already in use", "port"),
    ("ValueError: Model architectures ['Qwen4'] are not supported for now.", "architecture"),
    ("RuntimeError: Engine core initialization failed. See root cause above.", "engine-start"),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "engine-dead"),
    ("GDN decode kernel: cuda", "gdn-claim"),
    ("Maximum concurrency for 262,144 tokens per request: 2.13x", "kv-pool"),
]


@pytest.mark.parametrize(("line", "known"), LINES)
def test_each_line_is_known(line, known):
    (found,) = vllm_triage(PREFIX + line)
    assert found["id"] == known
    assert "{" not in found["reason"] + found["way_out"]


def test_every_entry_of_the_table_has_a_line():
    assert {known for _, known in LINES} == {known.id for known in TABLE}
    assert {known.verdict for known in TABLE} == {"broken", "worth knowing", "benign"}


def test_all_of_the_field_reports_lines_are_benign():
    assert {found["verdict"] for found in vllm_triage("\n".join(line for line, _ in LINES[:9]))} == {"benign"}


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 03:12:07 [api_server.py:1] Application startup complete.",
        'INFO: 127.0.0.1:4 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "Custom allreduce is disabled because your platform lacks GPU P2P capability",
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
