"""The engine image by Docker: skipped without Docker, or before sim/engine/build.sh has run.

How it ends is in sim_standin/test_standin_contract.py.
"""

import json
import urllib.request

import pytest
import real_vllm
from real_vllm import IMAGE, KEY, NO_DRIVER, RESTRICTED, docker

pytestmark = real_vllm.needed()


def vllm(*arguments, options=()):
    """`docker run IMAGE ARGUMENTS`, to its end."""
    return docker("run", "--rm", *RESTRICTED, *options, IMAGE, *arguments)


def chat(engine, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **more}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(engine.url + "/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def test_the_model_is_the_same_every_time(tiny_model, tmp_path):
    real_vllm.make_model(tmp_path / "again")
    for file in tiny_model.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
    config = json.loads((tiny_model / "config.json").read_text())
    assert config["num_attention_heads"] % 2 == 0 and config["num_key_value_heads"] % 2 == 0
    assert {file.stat().st_mode & 0o777 for file in tiny_model.iterdir() if file.name != ".key"} == {0o644}


def test_help():
    """As the real image: `docker run IMAGE --help`, and by `--entrypoint vllm`."""
    entrypoint = docker("image", "inspect", "-f", "{{json .Config.Entrypoint}}", IMAGE).stdout
    assert json.loads(entrypoint) == ["vllm", "serve"]
    run = docker("run", "--rm", "--entrypoint", "vllm", IMAGE, "serve", "--help")
    assert run.returncode == 0, run.stderr
    assert "usage: vllm serve [model_tag] [options]" in run.stdout
    assert "simulated" not in run.stdout


def test_an_unknown_flag_is_refused_in_vllms_words():
    run = vllm("/models", "--no-such-flag", "3", options=NO_DRIVER)
    assert run.returncode == 2
    assert "vllm: error: unrecognized arguments: --no-such-flag 3" in run.stderr


# The parser lets these pass, vLLM refuses them when it builds its configuration. One process: imports take seconds.
REFUSED = {
    "utilization": ["--gpu-memory-utilization", "93"],
    "no backend": ["--attention-backend", "NO_SUCH"],
    "spec method": ["--speculative-config", '{"method": "no-such", "num_speculative_tokens": 2}'],
    "spec number": ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 0}'],
    "spec key": ["--speculative-config", '{"method": "mtp", "tokens": 2}'],
    "backend": ["--attention-backend", "FLASH_ATTN", "--kv-cache-dtype", "fp8"],
    "good": [
        "--attention-backend",
        "FLASH_ATTN",
        "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 2}',
    ],
}
CHECK = """
import importlib.machinery, importlib.util, json, sys
sys.path.insert(0, "/usr/local/lib/tandem-sim")
loader = importlib.machinery.SourceFileLoader("shim", "/usr/local/lib/tandem-sim/vllm")
shim = importlib.util.module_from_spec(importlib.util.spec_from_loader("shim", loader))
loader.exec_module(shim)
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for name, arguments in json.loads(sys.argv[1]).items():
    try:
        shim.check_as_on_gpus(parser.parse_args(["/models", *arguments]))
        said = ""
    except Exception as error:
        said = type(error).__name__ + ": " + str(error)
    print("SAID", json.dumps([name, said]))
# in this process, as the imports take seconds: the check of the image's build, and that it can fail
import runpy
from vllm.v1.attention.backends import cpu_attn
for name, choose in (("amx", cpu_attn._get_attn_isa), ("no hold", lambda *_: "vec"), ("no use", lambda *_: "amx")):
    cpu_attn._get_attn_isa = choose
    try:
        runpy.run_path("/usr/local/lib/tandem-sim/amx-check")
        said = ""
    except SystemExit as error:
        said = str(error)
    print("SAID", json.dumps([name, said]))
"""


def test_what_the_parser_lets_pass_is_refused_in_vllms_words_and_attention_keeps_off_amx():
    run = docker("run", "--rm", "--entrypoint", "python3", IMAGE, "-c", CHECK, json.dumps(REFUSED))
    assert run.returncode == 0, run.stderr
    said = dict(json.loads(line[5:]) for line in run.stdout.splitlines() if line.startswith("SAID "))
    assert said["good"] == ""
    assert "gpu_memory_utilization" in said["utilization"] and "less than or equal to 1" in said["utilization"]
    assert "NO_SUCH" in said["no backend"]
    assert "Input should be 'ngram'" in said["spec method"]
    assert "greater than 0" in said["spec number"]
    assert "Unexpected keyword argument" in said["spec key"]
    assert said["backend"].startswith(
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this configuration. "
        "Reason: ['kv_cache_dtype not supported', 'FP8 KV cache requires FA3 on SM90"
    )
    assert said["amx"] == ""
    assert "keep_off_amx() in shim/vllm has no hold on it" in said["no hold"]
    assert "vLLM's attention is not kept off AMX" in said["no use"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--speculative-config", '{"method": "no-such", "num_speculative_tokens": 2}'], "Input should be 'ngram'"),
        (["--max-model-len", "300000"], "is greater than the derived max_model_len"),
    ],
)
def test_a_start_that_is_refused_ends_with_exit_code_1(tiny_model, arguments, words):
    run = vllm("/models", *arguments, options=[*NO_DRIVER, "--volume", f"{tiny_model}:/models:ro"])
    assert run.returncode == 1, run.stdout
    assert words in run.stdout + run.stderr


def test_without_gpus_it_does_not_start():
    run = vllm("/models")
    assert run.returncode == 1
    assert "simulated: NVML does not answer: NVML Shared Library Not Found" in run.stdout
    assert "RuntimeError: Failed to infer device type" in run.stderr


def test_it_says_what_it_dropped(real_engine):
    log = real_engine.log()
    assert "simulated: replaced --tensor-parallel-size=2 by 1" in log
    assert 'simulated: dropped --speculative-config={"method": "mtp", "num_speculative_tokens": 2}' in log
    assert log.index("simulated: replaced --tensor-parallel-size") < log.index("Using max model len 262144")


def test_a_chat_is_answered(real_engine):
    answer = chat(real_engine, max_tokens=64)["choices"][0]
    assert answer["message"]["reasoning"] == "simulated thinking"
    assert answer["message"]["content"].startswith("Simulated answer:")
    assert answer["message"]["content"].isprintable()
    assert answer["finish_reason"] in ("stop", "length")


def test_a_chat_with_tools_and_history_is_answered(real_engine):
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": parameters}}
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Is it raining?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]
    answer = chat(real_engine, messages=messages, tools=[tool], max_tokens=16)
    assert answer["choices"][0]["message"]["content"].startswith("Simulated answer:")
    with_tools, without = (
        chat(real_engine, messages=messages, max_tokens=1, **more)["usage"] for more in ({"tools": [tool]}, {})
    )
    assert with_tools["prompt_tokens"] > without["prompt_tokens"] + 50


def test_thinking_can_be_switched_off(real_engine):
    message = chat(real_engine, max_tokens=16, chat_template_kwargs={"enable_thinking": False})["choices"][0]["message"]
    assert not message["reasoning"]
    assert message["content"].startswith("Simulated answer:")


def test_a_prompt_longer_than_a_batch_is_answered(real_engine):
    usage = chat(real_engine, messages=[{"role": "user", "content": "river " * 9000}], max_tokens=8)["usage"]
    assert usage["prompt_tokens"] > 9000
    assert usage["completion_tokens"] == 8


def test_metrics_and_limits_are_those_of_the_command_line(real_engine):
    with urllib.request.urlopen(real_engine.url + "/metrics", timeout=30) as response:
        info = next(
            line for line in response.read().decode().splitlines() if line.startswith("vllm:cache_config_info{")
        )
    assert 'gpu_memory_utilization="0.93"' in info
    assert 'enable_prefix_caching="True"' in info
    request = urllib.request.Request(real_engine.url + "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        assert json.load(response)["data"][0]["max_model_len"] == 262144
