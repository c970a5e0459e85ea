"""The HTTP surface of vLLM's server over the simulated engine: routes, status codes, bodies, events of 0.32.0."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import time
import uuid

from . import faults as known_faults
from . import text
from .engine import Failed, Job
from .http import Response, Stream

NOTHING_AFTER_SHUTDOWN = "cannot schedule new futures after shutdown"


class Refusal(Exception):
    """An error answer in vLLM's shape."""

    def __init__(self, message, status=400, kind="BadRequestError", param=None):
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param

    def body(self):
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}}


def refuse_value(message, param, value=None, with_value=True):
    shown = f"parameter={param}, value={value}" if with_value else f"parameter={param}"
    return Refusal(f"{message} ({shown})", param=param)


def identifier(prefix):
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


class Api:
    def __init__(
        self, engine, metrics, names, root, max_model_len, keys, version, parsers, reconfigure, queue_limit=None
    ):
        """names: served model names. keys: API keys, or none. parsers: (reasoning parser, tool parser, automatic?).
        reconfigure: called with the new faults. queue_limit: --max-num-queued-reqs."""
        self.engine, self.metrics, self.names, self.root = engine, metrics, names, root
        self.max_model_len, self.keys, self.version, self.parsers = max_model_len, keys, version, parsers
        self.reconfigure, self.queue_limit = reconfigure, queue_limit
        self.fingerprint = f"vllm-{version}-simulated"
        self.vocabulary = {}
        self.routes = {
            "/health": {"GET": self.healthy},
            "/ping": {"GET": self.healthy, "POST": self.healthy},
            "/load": {"GET": lambda _: Response({"server_load": 0})},
            "/version": {"GET": lambda _: Response({"version": version})},
            "/docs": {"GET": lambda _: Response("simulated: no documentation here\n", kind="text/html; charset=utf-8")},
            "/openapi.json": {
                "GET": lambda _: Response(
                    {"openapi": "3.1.0", "info": {"title": "simulated", "version": version}, "paths": {}}
                )
            },
            "/metrics": {"GET": self.show_metrics},
            "/tokenize": {"POST": self.tokenize},
            "/detokenize": {"POST": self.detokenize},
            "/v1/models": {"GET": self.models},
            "/v1/completions": {"POST": self.completions},
            "/v1/chat/completions": {"POST": self.chat},
            "/invocations": {"POST": self.invocations},
            "/sim": {"GET": self.show_simulation},
            "/sim/fault": {"POST": self.set_faults, "GET": self.show_simulation},
        }

    # ---- every request ----

    async def handle(self, request):
        handler = request.path if request.path in self.routes else "none"
        try:
            response = await self.dispatch(request)
        except Refusal as refusal:
            response = Response(refusal.body(), refusal.status)
        except Failed as failed:
            response = Response(Refusal(str(failed), failed.status, "InternalServerError").body(), failed.status)
        if handler not in ("/health", "/metrics", "/load", "/ping", "/version"):
            self.metrics.request(request.method, handler, getattr(response, "status", 200))
        return response

    async def dispatch(self, request):
        if self.keys and request.path.startswith(("/v1", "/sim")) and not self.allowed(request):
            return Response({"error": "Unauthorized"}, 401)
        methods = self.routes.get(request.path)
        if methods is None:
            return Response({"detail": "Not Found"}, 404)
        method = "GET" if request.method == "HEAD" else request.method
        if method not in methods:
            return Response({"detail": "Method Not Allowed"}, 405, headers={"allow": ", ".join(methods)})
        answer = methods[method](request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def allowed(self, request):
        scheme, _, given = request.header("authorization").partition(" ")
        if scheme.lower() != "bearer":
            return False
        return any(hmac.compare_digest(given.encode(), key.encode()) for key in self.keys)

    def body(self, request):
        try:
            body = json.loads(request.body)
        except ValueError as error:
            at, why = getattr(error, "pos", 0), getattr(error, "msg", str(error))
            raise Refusal(
                f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', "
                f"'input': '<dict of 0 items>', 'ctx': {{'error': '{why}'}}}}",
                kind="Bad Request",
                param=f"body.{at}",
            ) from None
        if not isinstance(body, dict):
            raise Refusal("1 validation error: the body must be an object", kind="Bad Request", param="body")
        return body

    def require(self, body, name):
        if name not in body:
            raise Refusal(
                f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{name}', 'msg': 'Field required', "
                f"'input': '<dict of {len(body)} items>'}}",
                kind="Bad Request",
                param=f"body.{name}",
            )
        return body[name]

    # ---- small routes ----

    def healthy(self, _):
        if self.engine.dead:
            return Response("", 503)
        return Response("")

    def show_metrics(self, _):
        engine = self.engine
        page = self.metrics.text(len(engine.running), len(engine.waiting), engine.usage())
        return Response(page, kind="text/plain; version=1.0.0; charset=utf-8")

    def models(self, _):
        now = int(time.time())
        permission = {
            "object": "model_permission", "created": now, "allow_create_engine": False, "allow_sampling": True,
            "allow_logprobs": True, "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False,
            "organization": "*", "group": None, "is_blocking": False,
        }  # fmt: skip
        data = [
            {"id": name, "object": "model", "created": now, "owned_by": "vllm", "root": self.root, "parent": None,
             "max_model_len": self.max_model_len, "permission": [{"id": identifier("modelperm"), **permission}]}
            for name in self.names
        ]  # fmt: skip
        return Response({"object": "list", "data": data})

    def tokenize(self, request):
        body = self.body(request)
        if "messages" in body:
            prompt = text.render(body["messages"], body.get("tools"))
        else:
            prompt = str(self.require(body, "prompt"))
        pieces, ids = text.tokens(prompt), text.token_ids(prompt)
        if len(self.vocabulary) < 200_000:
            self.vocabulary.update(zip(ids, pieces, strict=True))
        strings = pieces if body.get("return_token_strs") else None
        return Response({"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids, "token_strs": strings})

    def detokenize(self, request):
        """Only what /tokenize has given before: token numbers are hashes."""
        ids = self.require(self.body(request), "tokens")
        return Response({"prompt": "".join(self.vocabulary.get(number, " simulated") for number in ids)})

    async def invocations(self, request):
        return await (self.chat if "messages" in self.body(request) else self.completions)(request)

    # ---- the simulation's own ----

    def show_simulation(self, _):
        engine = self.engine
        return Response(
            {
                "simulated": True,
                "faults": sorted(engine.faults),
                "possible_faults": known_faults.FAULTS,
                "time_scale": engine.scale,
                "running": len(engine.running),
                "waiting": len(engine.waiting),
                "clock_mhz": engine.mhz,
                "decode_tok_s": round(engine.speeds.decode_tok_s(1, engine.mhz), 2),
                "prefill_tok_s": round(engine.speeds.prefill_tok_s(engine.mhz), 1),
                "acceptance": engine.speeds.acceptance,
            }
        )

    def set_faults(self, request):
        wanted = self.require(self.body(request), "faults")
        if not isinstance(wanted, list):
            raise Refusal(f"faults must be a list of names, got {wanted!r}", param="faults")
        try:
            faults = known_faults.check([str(name) for name in wanted])
        except ValueError as error:
            raise Refusal(str(error), param="faults") from None
        self.reconfigure(faults)
        return self.show_simulation(request)

    # ---- completions ----

    def checked(self, body, prompt_ids, default_limit):
        """The most tokens to make. Raises Refusal where vLLM does."""
        if (body.get("n") or 1) != 1:
            raise Refusal("simulated: the stand-in engine makes one choice per request (n=1)", param="n")
        temperature = body.get("temperature")
        if temperature is not None and temperature < 0:
            raise refuse_value(
                f"temperature must be non-negative, got {float(temperature)}.", "temperature", float(temperature)
            )
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if "max_tokens" in body and body["max_tokens"] is not None and body["max_tokens"] < 1:
            raise refuse_value(
                f"max_tokens must be at least 1, got {body['max_tokens']}.", "max_tokens", body["max_tokens"]
            )
        if limit and limit > self.max_model_len:
            raise refuse_value(
                f"max_tokens={limit} cannot be greater than max_model_len={self.max_model_len}. "
                "Please request fewer output tokens.",
                "max_tokens",
                limit,
            )
        room = self.max_model_len - len(prompt_ids)
        if room < 1 or (limit and limit > room):
            total = len(prompt_ids) + (limit or 1)
            raise refuse_value(
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested "
                f"{limit or 1} output tokens and your prompt contains at least {len(prompt_ids)} input tokens, for a "
                f"total of at least {total} tokens. Please reduce the length of the input prompt or the number of "
                "requested output tokens.",
                "input_tokens",
                len(prompt_ids),
            )
        if self.engine.draining:
            raise Failed(NOTHING_AFTER_SHUTDOWN)
        if self.queue_limit is not None and len(self.engine.waiting) >= self.queue_limit:
            raise Refusal("simulated: too many queued requests (--max-num-queued-reqs)", 503, "ServiceUnavailableError")
        if len(prompt_ids) > known_faults.LONG_PROMPT and "long-500" in self.engine.faults:
            raise Failed("simulated fault long-500")
        return limit or min(default_limit, room)

    def model(self, body):
        name = body.get("model") or self.names[0]
        if name not in self.names:
            raise Refusal(
                f"The model `{name}` does not exist. Valid aliases: {', '.join(self.names)}.",
                404,
                "NotFoundError",
                "model",
            )
        return name

    def plain(self, prompt_ids, endless):
        """Function that gives the answer's pieces as (kind, text); it looks at the faults when it is called."""

        def pieces():
            if "exclamations" in self.engine.faults:
                made = itertools.repeat("!") if endless else itertools.repeat("!", 24)
            else:
                made = text.answer(prompt_ids, self.engine.corruptions or "", endless)
            return (("content", piece) for piece in made)

        return pieces

    def usage(self, job, made, reasoning=None, stream=False):
        usage = {"prompt_tokens": len(job.prompt), "total_tokens": len(job.prompt) + made, "completion_tokens": made}
        if not stream:
            usage["prompt_tokens_details"] = None
            usage["completion_tokens_details"] = None
        if reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        return usage

    async def completions(self, request):
        body = self.body(request)
        prompt = self.require(body, "prompt")
        name = self.model(body)
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if isinstance(prompt, list) and not all(isinstance(number, int) for number in prompt):
            raise Refusal("simulated: the stand-in engine takes one prompt per request", param="prompt")
        prompt_ids = prompt if isinstance(prompt, list) else text.token_ids(str(prompt))
        limit = self.checked(body, prompt_ids, 16)
        job = Job(prompt_ids, self.plain(prompt_ids, bool(body.get("ignore_eos"))), limit)
        about = {"id": identifier("cmpl"), "object": "text_completion", "created": int(time.time()), "model": name}
        if body.get("stream"):
            return Stream(self.stream_completion(job, about, body))
        said, reason, made = "", None, 0
        async for pieces, reason in self.engine.run(job):  # noqa: B007 -- the last reason counts
            said, made = said + "".join(piece for _, piece in pieces), made + len(pieces)
        choice = {
            "index": 0, "text": said, "logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": None,
            "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None,
        }  # fmt: skip
        return Response(
            {**about, "choices": [choice], "service_tier": None, "system_fingerprint": self.fingerprint,
             "usage": self.usage(job, made), "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
        )  # fmt: skip

    async def stream_completion(self, job, about, body):
        wants_usage, made = (body.get("stream_options") or {}).get("include_usage"), 0
        try:
            async for pieces, reason in self.engine.run(job):
                made += len(pieces)
                choice = {
                    "index": 0, "text": "".join(piece for _, piece in pieces), "logprobs": None,
                    "finish_reason": reason, "stop_reason": None, "prompt_token_ids": None, "token_ids": None,
                }  # fmt: skip
                last = {"system_fingerprint": self.fingerprint} if reason and not wants_usage else {}
                yield event({**about, "choices": [choice], **last})
            if wants_usage:
                usage = self.usage(job, made, stream=True)
                yield event({**about, "choices": [], "usage": usage, "system_fingerprint": self.fingerprint})
        except Failed as failed:
            yield event(Refusal(str(failed), failed.status, "InternalServerError").body())
        yield "data: [DONE]\n\n"

    # ---- chat ----

    def tool(self, body):
        """The tool that the answer calls, or None. Raises Refusal."""
        tools, choice = body.get("tools"), body.get("tool_choice")
        if choice is None:
            choice = "auto" if tools else "none"
        if choice == "none":
            return None
        if not tools:
            raise refuse_value("When using `tool_choice`, `tools` must be set.", "tool_choice", with_value=False)
        if isinstance(choice, dict):
            wanted = (choice.get("function") or {}).get("name")
            for tool in tools:
                if tool["function"]["name"] == wanted:
                    return tool
            raise refuse_value(
                "The tool specified in `tool_choice` does not match any of the specified `tools`",
                "tool_choice",
                with_value=False,
            )
        if choice == "auto":
            if not self.parsers[2]:
                raise Refusal('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
            # a tool's result is answered in words
            return tools[0] if (body["messages"] or [{}])[-1].get("role") == "user" else None
        return tools[0]

    def plan(self, body, prompt_ids, tool):
        plain = self.plain(prompt_ids, bool(body.get("ignore_eos")))
        thinks = self.parsers[0] and (body.get("chat_template_kwargs") or {}).get("enable_thinking", True)

        def pieces():
            if thinks and "exclamations" not in self.engine.faults:
                yield from (("reasoning", piece) for piece in text.THINKING)
            if tool and "no-tool-call" not in self.engine.faults and "exclamations" not in self.engine.faults:
                yield "call", tool["function"]["name"]
                yield from (("arguments", piece) for piece in text.tokens(text.call_arguments(tool)))
            else:
                yield from plain()

        return pieces

    async def chat(self, request):
        body = self.body(request)
        messages = self.require(body, "messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise Refusal(
                "1 validation error: messages must be a list of objects", kind="Bad Request", param="body.messages"
            )
        name, tool = self.model(body), self.tool(body)
        prompt_ids = text.token_ids(text.render(messages, body.get("tools")))
        limit = self.checked(body, prompt_ids, self.max_model_len)
        job = Job(prompt_ids, self.plan(body, prompt_ids, tool), limit)
        about = {"id": identifier("chatcmpl"), "created": int(time.time()), "model": name}
        named = isinstance(body.get("tool_choice"), dict)
        if body.get("stream"):
            return Stream(self.stream_chat(job, {**about, "object": "chat.completion.chunk"}, body, named))
        return await self.whole_chat(job, {**about, "object": "chat.completion"}, named)

    async def whole_chat(self, job, about, named):
        said, made, reason = {"reasoning": "", "content": "", "call": "", "arguments": ""}, {}, None
        async for pieces, reason in self.engine.run(job):  # noqa: B007 -- the last reason counts
            for kind, piece in pieces:
                said[kind] += piece
                made[kind] = made.get(kind, 0) + 1
        message = {
            "role": "assistant",
            "content": said["content"] or ("" if said["call"] else None),
            "refusal": None,
            "annotations": None,
        }
        message.update(audio=None, function_call=None)
        if said["call"]:
            call = {"name": said["call"], "arguments": said["arguments"]}
            message["tool_calls"] = [{"id": identifier("chatcmpl-tool"), "type": "function", "function": call}]
            # as vLLM does: a named tool's call ends with stop
            reason = "tool_calls" if reason == "stop" and not named else reason
        message["reasoning"] = said["reasoning"] or None
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None,
            "token_ids": None, "routed_experts": None,
        }  # fmt: skip
        usage = self.usage(job, sum(made.values()), made.get("reasoning", 0) if self.parsers[0] else None)
        return Response(
            {**about, "choices": [choice], "service_tier": None, "system_fingerprint": self.fingerprint, "usage": usage,
             "prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None, "kv_transfer_params": None,
             "ec_transfer_params": None, "metrics": None}
        )  # fmt: skip

    async def stream_chat(self, job, about, body, named):
        wants_usage = (body.get("stream_options") or {}).get("include_usage")
        made, thought, called, opened = 0, 0, False, False

        def chunk(delta, reason=None, more=None):
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            if reason:
                choice["stop_reason"] = None
            choice["token_ids"] = None
            return event({**about, "choices": [choice], **(more or {})})

        try:
            async for pieces, reason in self.engine.run(job):
                if not opened:
                    opened = True
                    choice = {
                        "index": 0,
                        "delta": {"role": "assistant", "content": ""},
                        "logprobs": None,
                        "finish_reason": None,
                    }
                    yield event({**about, "choices": [choice], "prompt_token_ids": None, "prompt_text": None})
                made += len(pieces)
                thought += sum(kind == "reasoning" for kind, _ in pieces)
                deltas = deltas_of(pieces)
                called = called or any("tool_calls" in delta for delta in deltas)
                if reason == "stop" and called and not named:
                    reason = "tool_calls"
                last = {"system_fingerprint": self.fingerprint} if reason and not wants_usage else {}
                if reason and not deltas:
                    deltas = [{}]
                for delta in deltas[:-1]:
                    yield chunk(delta)
                for delta in deltas[-1:]:
                    yield chunk(delta, reason, last)
            if wants_usage:
                usage = self.usage(job, made, thought if self.parsers[0] else None, stream=True)
                yield event({**about, "choices": [], "usage": usage, "system_fingerprint": self.fingerprint})
        except Failed as failed:
            yield event(Refusal(str(failed), failed.status, "InternalServerError").body())
        yield "data: [DONE]\n\n"


def deltas_of(pieces):
    """What one step has made, as deltas: neighbours of one kind together, as vLLM sends a step in one event."""
    deltas, last = [], None
    for kind, piece in pieces:
        if kind == last and kind in ("content", "reasoning"):
            deltas[-1][kind] += piece
        elif kind == last and kind == "arguments":
            deltas[-1]["tool_calls"][0]["function"]["arguments"] += piece
        elif kind == "call":
            call = {"id": identifier("chatcmpl-tool"), "type": "function", "index": 0, "function": {"name": piece}}
            deltas.append({"tool_calls": [call]})
        elif kind == "arguments":
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        else:
            deltas.append({kind: piece})
        last = kind
    return deltas


def event(content):
    return f"data: {json.dumps(content, separators=(',', ':'), ensure_ascii=False)}\n\n"
