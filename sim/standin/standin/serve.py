"""`vllm serve`, simulated: parse, refuse what vLLM refuses, load, answer, end as vLLM ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from . import api, cards, engine, faults, http, metrics, options, speeds

#: KV caches of one byte per element
FP8 = ("fp8", "int8", "nvfp4", "int4", "turboquant", "ultraquant")


#: labels of vllm:cache_config_info that say nothing here
CACHE_CONFIG = {
    "_block_size_resolved": True,
    "cache_hit_alignment_tokens": None,
    "effective_attention_block_size": None,
    "enable_mamba_shared_prefix_checkpoint": False,
    "hash_block_size": None,
    "is_attention_free": False,
    "kv_cache_dtype_skip_layers": [],
    "kv_cache_layout": None,
    "kv_offloading_backend": "native",
    "kv_offloading_size": None,
    "kv_sharing_fast_prefill": False,
    "mamba_block_size": None,
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": None,
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": None,
    "num_gpu_blocks_override": None,
    "prefix_cache_retention_interval": 0,
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": None,
    "replayssm_buffer_len": 16,
    "skip_page_size_padded": None,
    "sliding_window": None,
    "swa_bounded_replay": True,
    "use_kda_recoverssm": False,
    "use_replayssm": False,
    "user_specified_block_size": False,
}


def say(words, level="INFO", process="APIServer"):
    stamp = time.strftime("%m-%d %H:%M:%S")
    for line in str(words).splitlines():
        print(f"({process} pid={os.getpid()}) {level} {stamp} [simulated] {line}", flush=True)


def fail(words):
    """As vLLM's start-up ends: a traceback, exit code 1."""
    process = "EngineCore"
    print(f"({process} pid={os.getpid()}) [simulated] Traceback (most recent call last):", file=sys.stderr)
    print(
        f'({process} pid={os.getpid()}) [simulated]   File "/simulated/v1/engine/core.py", line 1, in run_engine_core',
        file=sys.stderr,
    )
    for line in words.splitlines():
        print(f"({process} pid={os.getpid()}) [simulated] {line}", file=sys.stderr)
    print(
        "[simulated] RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        file=sys.stderr,
    )
    sys.exit(1)


class Configuration:
    """What of the command line and the environment the simulation goes by."""

    def __init__(self, parsed, environment):
        self.parsed = parsed
        self.data = speeds.load()
        self.tensor_parallel = parsed.tensor_parallel_size or 1
        dtype = parsed.kv_cache_dtype or "auto"
        self.kv_dtype, self.kv = dtype, "fp8" if dtype.startswith(FP8) else "16-bit"
        speculative = parsed.speculative_config or {}
        self.drafts = int(speculative.get("num_speculative_tokens") or 0)
        self.root = parsed.model_tag or parsed.model or "/models"
        self.names = parsed.served_model_name or [self.root]
        self.utilization = parsed.gpu_memory_utilization or 0.92
        self.prefix = parsed.enable_prefix_caching is not False
        kv_bytes = parsed.kv_cache_memory_bytes
        self.block_size, self.blocks, self.state_blocks, self.block_bytes = speeds.memory_blocks(
            self.data, self.kv, self.drafts, self.tensor_parallel, self.utilization, self.prefix, whole_bytes(kv_bytes)
        )
        #: the longest request that the pool holds
        self.longest = max((self.blocks - self.state_blocks) * self.block_size, 0)
        self.max_model_len = parsed.max_model_len or min(262144, self.longest)
        self.host, self.port = parsed.host or "0.0.0.0", parsed.port or 8000
        self.shutdown_timeout = parsed.shutdown_timeout or 0
        self.keys = [key for key in (parsed.api_key or [environment.get("VLLM_API_KEY")]) if key]
        self.scale = positive(environment, "SIM_TIME_SCALE", 1.0)
        self.load_s = positive(environment, "SIM_LOAD_SECONDS", 3.0, zero=True)
        power = environment.get("SIM_POWER", "0")
        self.power_mhz = {"0": None, "": None, "1": self.data["power"]["survives_up_to_mhz"]}.get(power)
        if power not in ("", "0", "1"):
            self.power_mhz = positive(environment, "SIM_POWER", 0)

    def speeds(self, wrong):
        return speeds.Speeds(
            self.data,
            self.kv,
            self.drafts,
            self.tensor_parallel,
            "half-speed" in wrong,
            0.1 if "low-acceptance" in wrong else None,
        )

    def cache_config(self, wrong):
        """Labels of vllm:cache_config_info."""
        per_request = -(-self.max_model_len // self.block_size) + self.state_blocks
        concurrency = self.blocks / per_request
        return {
            "block_size": self.block_size,
            "cache_dtype": "auto" if "cache-dtype" in wrong else self.kv_dtype,
            "enable_prefix_caching": self.prefix,
            "gpu_memory_utilization": self.utilization,
            "kv_cache_max_concurrency": round(concurrency, 3),
            "kv_cache_memory_bytes": self.parsed.kv_cache_memory_bytes,
            "kv_cache_size_tokens": int(self.blocks * self.max_model_len / per_request),
            "num_gpu_blocks": self.blocks,
            "simulated": True,
            **CACHE_CONFIG,
        }


def whole_bytes(text):
    if text is None:
        return None
    return options.human_int(str(text))


def positive(environment, name, default, zero=False):
    given = environment.get(name)
    if given in (None, ""):
        return default
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if value < 0 or (value == 0 and not zero):
        sys.exit(f"simulated: {name} is {given!r}; it must be a number above 0")
    return value


def get_cards(needed):
    """The cards that the container was given, as vLLM finds them: enough of them, or it does not start."""
    if os.environ.get("TANDEM_SIM_REQUIRE_GPU", "1") == "0":
        mhz = os.environ.get("SIM_CLOCK_MHZ")
        say(f"simulated: did not ask NVML for GPUs: TANDEM_SIM_REQUIRE_GPU=0, clock {mhz or 'as unlocked'}")
        return cards.NoCardsAtAll(int(mhz) if mhz else None)
    try:
        found = cards.Cards()
    except cards.NoCards as error:
        print(f"simulated: NVML does not answer: {error}", flush=True)
        fail(
            "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`"
        )
    if len(found.gpus) < needed:
        fail(
            f"ValueError: World size ({needed}) is larger than the number of available GPUs ({len(found.gpus)}) "
            "in this node."
        )
    root = os.environ.get("SIM_NVML_ROOT", "")
    if os.path.exists(root + "/dev/nvidiactl") and not os.path.exists(root + "/dev/nvidia-uvm"):
        fail(
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
            "env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero."
        )
    return found


def require_memory(configuration, found):
    """As vLLM: free memory on each card, and a KV cache that holds at least one request of full length."""
    for index, (free, total) in enumerate(found.free_mib()):
        wanted = configuration.utilization * total
        if free < wanted:
            fail(
                f"ValueError: Free memory on device cuda:{index} ({free / 1024:.2f}/{total / 1024:.2f} GiB) "
                f"on startup is less than desired GPU memory utilization ({configuration.utilization}, "
                f"{wanted / 1024:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by others."
            )
    gib = configuration.block_bytes / 2**30
    needed = -(-configuration.max_model_len // configuration.block_size) + configuration.state_blocks
    if configuration.blocks < needed or not configuration.longest:
        fail(
            f"ValueError: To serve at least one request with the models's max seq len ({configuration.max_model_len}), "
            f"{needed * gib:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({configuration.blocks * gib:.2f} GiB). Based on the available memory, the estimated maximum model "
            f"length is {configuration.longest}. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`."
        )


def say_what_loads(configuration, version):
    parsed = configuration.parsed
    say(f"vLLM API server version {version} (simulated: a stand-in, no model runs)")
    say(f"Using max model len {configuration.max_model_len}")
    backend = parsed.attention_backend or ("FLASHINFER" if configuration.kv == "fp8" else "FLASH_ATTN")
    say(f"Using {backend} attention backend (simulated)", process="EngineCore")
    if configuration.drafts:
        # vLLM keeps full graphs here from 0.33.0 on
        if backend == "FLASHINFER" and version < "0.33":
            say(
                "CUDAGraphMode.FULL_AND_PIECEWISE is not supported with spec-decode for attention backend "
                "FlashInferBackend; setting cudagraph_mode=PIECEWISE (simulated)", "WARNING", "EngineCore"
            )  # fmt: skip
        if configuration.drafts > 1:
            say(
                "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer (simulated)",
                "WARNING",
            )


def say_what_fits(configuration):
    info = configuration.cache_config(())
    say(f"GPU KV cache size: {info['kv_cache_size_tokens']:,} tokens (simulated)", process="EngineCore")
    say(
        f"Maximum concurrency for {configuration.max_model_len:,} tokens per request: "
        f"{info['kv_cache_max_concurrency']:.2f}x (simulated)",
        process="EngineCore",
    )


def run_engine_core():
    os.kill(os.getpid(), signal.SIGILL)


def die_of_a_signal():
    """A child dies, as vLLM's engine core is one; where, Python itself says if PYTHONFAULTHANDLER is set."""
    child = os.fork()
    if not child:
        run_engine_core()
    os.waitpid(child, 0)


async def serve(configuration, version, wrong, found):
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def on_death(why):
        if "illegal-instruction" in machine.faults:
            die_of_a_signal()
            say("[shutdown] MPClient: engine core exited unexpectedly; starting cleanup (simulated)", "WARNING")
        else:
            say(f"EngineCore encountered a fatal error (simulated).\n{why}", "ERROR", "EngineCore")
        say("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue (simulated).", "ERROR")
        # vLLM exits 0 when its engine dies; what is in flight learns of it first
        loop.call_later(0.3, os._exit, 0)

    def on_power_failure(tokens):
        say(f"simulated power failure: a prefill of {tokens} tokens on cards that are not locked low enough", "ERROR")
        cards.cut_the_power()
        # no answer leaves a box without power; where nothing watches for the failure, at least the engine ends
        time.sleep(10)
        os._exit(137)

    measured = metrics.Metrics(
        configuration.names[0], configuration.drafts, lambda: configuration.cache_config(machine.faults)
    )
    memory_mib = int(configuration.utilization * configuration.data["memory"]["card_mib"])
    settings = {
        "max_num_seqs": configuration.parsed.max_num_seqs or 256,
        "chunk": configuration.parsed.max_num_batched_tokens or 2048,
        "block_size": configuration.block_size,
        "blocks": configuration.blocks,
        "state_blocks": configuration.state_blocks,
        "prefix": configuration.prefix,
        "memory_mib": memory_mib,
    }
    machine = engine.Engine(
        settings, configuration.speeds(wrong), found, measured, wrong, configuration.scale, on_death, on_power_failure,
        configuration.power_mhz,
    )  # fmt: skip

    def reconfigure(names):
        machine.faults = names
        machine.speeds = configuration.speeds(names)
        say(f"simulated faults: {', '.join(sorted(names)) or 'none'}", "WARNING")
        if "crash-loop" in names:
            loop.call_later(5, machine.die, "simulated fault crash-loop")

    parsed = configuration.parsed
    surface = api.Api(
        machine, measured, configuration.names, configuration.root, configuration.max_model_len, configuration.keys,
        version, (parsed.reasoning_parser, parsed.tool_call_parser, parsed.enable_auto_tool_choice), reconfigure,
        parsed.max_num_queued_reqs,
    )  # fmt: skip
    quiet = parsed.disable_uvicorn_access_log or parsed.uvicorn_log_level in ("critical", "error", "warning")

    def log(peer, request, status, _):
        if not quiet:
            where = f"{peer[0]}:{peer[1]}" if peer else "?"
            print(f'INFO:     {where} - "{request.method} {request.path} HTTP/1.1" {status} (simulated)', flush=True)

    # one load of the cards' memory, then the weights
    found.hold(memory_mib, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loading = asyncio.ensure_future(asyncio.sleep(configuration.load_s / configuration.scale))
    if "never-ready" in wrong:
        loading = asyncio.ensure_future(asyncio.Event().wait())
    stopping = asyncio.ensure_future(ended.wait())
    await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if ended.is_set():
        say("[shutdown] stopped while loading (simulated)")
        os._exit(143)
    if "exit-at-start" in wrong:
        fail("RuntimeError: CUDA error: simulated fault exit-at-start")
    say_what_fits(configuration)
    server = http.Server(surface.handle, log)
    try:
        await server.start(configuration.host, configuration.port)
    except OSError as error:
        fail(f"OSError: {error}")
    say(f"Starting vLLM server on http://{configuration.host}:{configuration.port} (simulated)")
    print("INFO:     Application startup complete. (simulated)", flush=True)
    if wrong:
        reconfigure(wrong)

    await stopping
    await shut_down(machine, server, configuration.shutdown_timeout)


async def shut_down(machine, server, timeout):
    """As vLLM: with a timeout what runs may end, new requests get 500, /health stays 200; without, it is aborted."""
    say(f"[shutdown] API server: {'draining' if timeout else 'aborting'}, timeout {timeout} s (simulated)")
    machine.draining = True
    deadline = machine.now() + timeout
    while (machine.running or machine.waiting) and machine.now() < deadline:
        await asyncio.sleep(0.02)
    machine.stop_all()
    try:
        await asyncio.wait_for(server.stop(), 5)
    except TimeoutError:
        say("[shutdown] clients that do not go away are left (simulated)", "WARNING")
    say("[shutdown] complete (simulated)")
    os._exit(0)


def main(arguments, version):
    try:
        parsed = options.parse(arguments, version)
        options.refuse_on_these_cards(parsed)
    except options.Refused as error:
        fail(str(error))
    try:
        wrong = faults.from_environment(os.environ.get("SIM_FAULT"))
    except ValueError as error:
        sys.exit(f"SIM_FAULT: {error}")
    configuration = Configuration(parsed, os.environ)
    needed = configuration.tensor_parallel * (parsed.pipeline_parallel_size or 1) * (parsed.data_parallel_size or 1)
    found = get_cards(needed)
    say_what_loads(configuration, version)
    require_memory(configuration, found)
    asyncio.run(serve(configuration, version, wrong, found))
