"""What the engine image's shim takes out of a command line: simulate.py, without vLLM."""

import enum
import os
from types import SimpleNamespace

import pytest

# vLLM's defaults, as its parser leaves them, of everything that a rule looks at
DEFAULTS = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "disable_custom_all_reduce": False,
    "numa_bind": False,
    "attention_backend": None,
    "kv_cache_dtype": "auto",
    "speculative_config": None,
    "quantization": None,
    "load_format": "auto",
    "enable_sleep_mode": False,
    "kv_cache_memory_bytes": None,
    "enforce_eager": False,
    "distributed_executor_backend": None,
}
# what the simulation adds even to an empty command line
ALWAYS = {"kv_cache_memory_bytes", "enforce_eager", "distributed_executor_backend"}


def run(simulate, *, fp8=True, quantizations=("awq_marlin",), **given):
    able = simulate.Abilities(fp8_kv_cache=fp8, quantizations=frozenset(quantizations))
    return {change.attribute: change for change in simulate.changes({**DEFAULTS, **given}, able)}


def test_field_report_command_line(simulate):
    changes = run(
        simulate,
        tensor_parallel_size=2,
        kv_cache_dtype="fp8",
        speculative_config={"method": "mtp", "num_speculative_tokens": 2},
        gpu_memory_utilization=0.93,
        max_model_len=262144,
        max_num_seqs=16,
        reasoning_parser="qwen3",
    )
    assert [str(change) for change in changes.values()] == [
        "simulated: replaced --tensor-parallel-size=2 by 1: a CPU cannot split a model over GPUs",
        'simulated: dropped --speculative-config={"method": "mtp", "num_speculative_tokens": 2}: '
        "a CPU cannot gain by speculation, and the tiny model has no MTP head to do it with",
        f"simulated: added --kv-cache-memory-bytes={160 << 20}: "
        "a CPU cannot measure GPU memory, so --gpu-memory-utilization has no effect",
        "simulated: added --enforce-eager: a CPU cannot capture CUDA graphs, and compiling takes minutes",
        "simulated: added --distributed-executor-backend=uni: "
        "a CPU cannot have workers on GPUs, and a process fewer starts sooner",
    ]
    assert {name: change.value for name, change in changes.items()} == {
        "tensor_parallel_size": 1,
        "speculative_config": None,
        "kv_cache_memory_bytes": 160 << 20,
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
    }


def test_nothing_else_is_touched(simulate):
    assert set(run(simulate)) == ALWAYS
    ours = {
        "kv_cache_memory_bytes": simulate.KV_CACHE_BYTES,
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
    }
    assert run(simulate, **ours) == {}


def test_an_argument_that_this_vllm_lacks_is_no_matter(simulate):
    assert simulate.changes({"enforce_eager": True}, simulate.Abilities()) == []


@pytest.mark.parametrize(
    ("attribute", "given", "value"),
    [
        ("tensor_parallel_size", 2, 1),
        ("pipeline_parallel_size", 2, 1),
        ("data_parallel_size", 2, 1),
        ("disable_custom_all_reduce", True, False),
        ("numa_bind", True, False),
        ("attention_backend", "FLASHINFER", None),
        ("speculative_config", {"method": "ngram"}, None),
        ("quantization", "awq_marlin", None),
        ("load_format", "fastsafetensors", "auto"),
        ("enable_sleep_mode", True, False),
        ("kv_cache_memory_bytes", 9 << 30, 160 << 20),
        ("distributed_executor_backend", "mp", "uni"),
    ],
)
def test_each_rule(simulate, attribute, given, value):
    change = run(simulate, **{attribute: given})[attribute]
    assert (change.given, change.value) == (given, value)
    assert str(change).startswith(f"simulated: {change.verb} --{attribute.replace('_', '-')}")
    assert change.verb == ("replaced" if value not in (None, False) else "dropped")


@pytest.mark.parametrize(
    "given",
    [
        {"load_format": "safetensors"},
        {"load_format": "no-such-format"},
        {"quantization": "no-such-method"},
        {"tensor_parallel_size": 0},
        {"kv_cache_dtype": "no-such-dtype"},
    ],
)
def test_what_vllm_would_refuse_is_left_for_it_to_refuse(simulate, given):
    assert set(run(simulate, fp8=False, **given)) == ALWAYS


@pytest.mark.parametrize(
    ("fp8", "dtype", "replaced"), [(True, "fp8", False), (False, "fp8", True), (False, "bfloat16", False)]
)
def test_fp8_kv_cache_stays_where_the_cpu_has_kernels_for_it(simulate, fp8, dtype, replaced):
    changes = run(simulate, fp8=fp8, kv_cache_dtype=dtype)
    assert ("kv_cache_dtype" in changes) is replaced
    if replaced:
        assert str(changes["kv_cache_dtype"]).startswith("simulated: replaced --kv-cache-dtype=fp8 by auto: ")


def test_an_enum_is_written_as_on_the_command_line(simulate):
    backend = enum.Enum("AttentionBackendEnum", {"FLASH_ATTN": "vllm.v1.somewhere"}).FLASH_ATTN
    assert "dropped --attention-backend=FLASH_ATTN: " in str(
        run(simulate, attention_backend=backend)["attention_backend"]
    )


def test_gpus_needed(simulate):
    assert simulate.gpus_needed(DEFAULTS) == 1
    assert simulate.gpus_needed({**DEFAULTS, "tensor_parallel_size": 2, "pipeline_parallel_size": 3}) == 6
    assert simulate.gpus_needed({"tensor_parallel_size": None}) == 1


def test_too_few_gpus(simulate):
    assert simulate.too_few_gpus(2, 2) is None
    words = simulate.too_few_gpus(2, 1)
    assert words.startswith("World size (2) is larger than the number of available GPUs (1) in this node. ")


@pytest.mark.parametrize(
    ("setting", "seen"),
    [(None, 2), ("", 0), ("0", 1), ("1,0", 2), ("0,5,1", 1), ("-1", 0), ("GPU-aa,GPU-bb", 2), ("0,1,GPU-x,GPU-y", 2)],
)
def test_cuda_visible_devices(simulate, setting, seen):
    assert simulate.visible(2, setting) == seen


class NoDriver(Exception):
    """What pynvml raises."""


def fake_nvml(monkeypatch, *, cards=0, error=None, unified_memory=True):
    def init():
        if error:
            raise error

    module = SimpleNamespace(
        NVMLError=NoDriver,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: cards,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: "NVIDIA GeForce RTX 4090",
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("TANDEM_SIM_REQUIRE_GPU", raising=False)
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: unified_memory if path == "/dev/nvidia-uvm" else access(path, mode)
    )


ARGS = SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1)


def test_gpus_that_answer_are_enough(shim, monkeypatch, capsys):
    fake_nvml(monkeypatch, cards=2)
    shim.require_gpus(ARGS)
    assert capsys.readouterr().out == "simulated: 2 x NVIDIA GeForce RTX 4090 by NVML; the engine runs on the CPU\n"


def test_one_gpu_is_too_few_for_two(shim, monkeypatch):
    fake_nvml(monkeypatch, cards=1)
    with pytest.raises(ValueError, match=r"World size \(2\) is larger than the number of available GPUs \(1\)"):
        shim.require_gpus(ARGS)


def test_a_hidden_gpu_does_not_count(shim, monkeypatch):
    fake_nvml(monkeypatch, cards=2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(ValueError, match=r"available GPUs \(1\)"):
        shim.require_gpus(ARGS)


def test_cuda_fails_without_unified_memory_though_nvml_answers(shim, monkeypatch):
    fake_nvml(monkeypatch, cards=2, unified_memory=False)
    with pytest.raises(RuntimeError, match=r"^CUDA unknown error"):
        shim.require_gpus(ARGS)


def test_no_driver_is_no_device(shim, monkeypatch, capsys):
    fake_nvml(monkeypatch, error=NoDriver("Driver Not Loaded"))
    with pytest.raises(RuntimeError, match="Failed to infer device type"):
        shim.require_gpus(ARGS)
    assert capsys.readouterr().out == "simulated: NVML does not answer: Driver Not Loaded\n"


def test_gpus_need_not_be_there_when_the_environment_says_so(shim, monkeypatch, capsys):
    fake_nvml(monkeypatch, error=NoDriver("Driver Not Loaded"))
    monkeypatch.setenv("TANDEM_SIM_REQUIRE_GPU", "0")
    shim.require_gpus(ARGS)
    assert capsys.readouterr().out.startswith("simulated: did not ask NVML")
