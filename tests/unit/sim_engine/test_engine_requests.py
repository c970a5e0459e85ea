"""Every option of the engine's own schema, put to the simulation's engine: it may refuse one, and fails of none."""

import concurrent.futures
import json
import urllib.error
import urllib.request

import pytest
import real_vllm
from real_vllm import KEY

pytestmark = real_vllm.needed()

COMPLETION = {"model": "m", "prompt": "Why is the sky blue?", "max_tokens": 4, "temperature": 0}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    "max_completion_tokens": 4,
    "temperature": 0,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
ANSWER = {"role": "assistant", "content": "Because"}

# option -> bodies' parts with it
BOTH = {
    "model": [{"model": "m"}, {"model": "nobody"}],
    "frequency_penalty": [{"frequency_penalty": 0.5}],
    "presence_penalty": [{"presence_penalty": -0.5}],
    "repetition_penalty": [{"repetition_penalty": 1.2}],
    "logit_bias": [{"logit_bias": {"100": 5, "101": -100}}],
    "max_tokens": [{"max_tokens": 1}],
    "n": [{"n": 3, "temperature": 0.7}],
    "seed": [{"seed": 7, "temperature": 0.7}],
    "stop": [{"stop": "a"}, {"stop": ["a", "b"]}],
    "stream": [{"stream": True}],
    "stream_options": [{"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}],
    "stream_interval": [{"stream": True, "stream_interval": 2}],
    "temperature": [{"temperature": 0.7}],
    "top_p": [{"top_p": 0.9, "temperature": 0.7}],
    "top_k": [{"top_k": 20, "temperature": 0.7}],
    "min_p": [{"min_p": 0.05, "temperature": 0.7}],
    "user": [{"user": "somebody"}],
    "use_beam_search": [{"use_beam_search": True, "n": 2}],
    "watermarking": [{"watermarking": True}],
    "length_penalty": [{"length_penalty": 0.8, "use_beam_search": True, "n": 2}],
    "stop_token_ids": [{"stop_token_ids": [100, 101]}],
    "include_stop_str_in_output": [{"include_stop_str_in_output": True, "stop": ["a"]}],
    "ignore_eos": [{"ignore_eos": True}],
    "min_tokens": [{"min_tokens": 2}],
    "skip_special_tokens": [{"skip_special_tokens": False}],
    "spaces_between_special_tokens": [{"spaces_between_special_tokens": False}],
    "truncate_prompt_tokens": [{"truncate_prompt_tokens": 4}, {"truncate_prompt_tokens": -1}],
    "truncation_side": [{"truncation_side": "left", "truncate_prompt_tokens": 4}],
    "allowed_token_ids": [{"allowed_token_ids": [100, 101, 102]}],
    "prompt_logprobs": [{"prompt_logprobs": 2}, {"prompt_logprobs": 0}],
    "logprob_token_ids": [{"logprob_token_ids": [100, 101]}, {"logprob_token_ids": [100], "logprobs": 1}],
    "bad_words": [{"bad_words": ["sky"]}],
    "add_special_tokens": [{"add_special_tokens": False}, {"add_special_tokens": True}],
    "response_format": [
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": JSON_SCHEMA},
    ],
    "structured_outputs": [
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"regex": "[a-z]{3}"}},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}},
        {"structured_outputs": {"json_object": True}},
    ],
    "priority": [{"priority": 1}, {"priority": 0}],
    "request_id": [{"request_id": "one-of-mine"}],
    "session_id": [{"session_id": "a-session"}],
    "return_tokens_as_token_ids": [{"return_tokens_as_token_ids": True}],
    "return_token_ids": [{"return_token_ids": True}],
    "routed_experts_prompt_start": [{"routed_experts_prompt_start": 1}],
    "return_token_offsets": [{"return_token_offsets": True}],
    "mm_payload": [{"mm_payload": "none"}],
    "return_mm_kwargs": [{"return_mm_kwargs": True}],
    "cache_salt": [{"cache_salt": "salt"}],
    "kv_transfer_params": [{"kv_transfer_params": {"do_remote_decode": True}}],
    "ec_transfer_params": [{"ec_transfer_params": {"a": 1}}],
    "vllm_xargs": [{"vllm_xargs": {"a": "b"}}],
    "repetition_detection": [
        {"repetition_detection": {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 2}, "max_tokens": 16}
    ],
    "thinking_token_budget": [{"thinking_token_budget": 2}],
}
OPTIONS = {
    "/v1/completions": {
        **BOTH,
        "prompt": [{"prompt": [100, 101]}, {"prompt": ["a", "b"]}, {"prompt": [[100], [101, 102]]}, {"prompt": ""}],
        "echo": [{"echo": True}, {"echo": True, "logprobs": 2}, {"echo": True, "max_tokens": 0}],
        # K3: the core died of the first of these, as torch compiles what sorts them
        "logprobs": [{"logprobs": 3}, {"logprobs": 0}, {"logprobs": 99}, {"logprobs": 5, "n": 2, "temperature": 0.7}],
        "suffix": [{"suffix": "."}],
        "prompt_embeds": [{"prompt_embeds": "AAAA"}],
    },
    "/v1/chat/completions": {
        **BOTH,
        "messages": [{"messages": [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]}, {"messages": []}],
        "logprobs": [{"logprobs": True}],
        "top_logprobs": [{"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 20, "stream": True}],
        "max_completion_tokens": [{"max_completion_tokens": 2}],
        "tools": [{"tools": [TOOL]}],
        "tool_choice": [
            {"tools": [TOOL], "tool_choice": "none"},
            {"tools": [TOOL], "tool_choice": "required", "max_completion_tokens": 32},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        ],
        "parallel_tool_calls": [{"tools": [TOOL], "parallel_tool_calls": False}],
        "reasoning_effort": [{"reasoning_effort": "low"}, {"reasoning_effort": "none"}],
        "include_reasoning": [{"include_reasoning": False}],
        "echo": [{"echo": True, "add_generation_prompt": False}],
        "add_generation_prompt": [{"add_generation_prompt": False}],
        "continue_final_message": [
            {
                "continue_final_message": True,
                "add_generation_prompt": False,
                "messages": [*CHAT["messages"], ANSWER],
            }
        ],
        "documents": [{"documents": [{"title": "a", "text": "b"}]}],
        "chat_template": [{"chat_template": "{{ messages[0].content }}"}],
        "chat_template_kwargs": [{"chat_template_kwargs": {"enable_thinking": False}}],
        "media_io_kwargs": [{"media_io_kwargs": {"video": {"num_frames": 2}}}],
        "mm_processor_kwargs": [{"mm_processor_kwargs": {"a": 1}}],
        "return_prompt_text": [{"return_prompt_text": True}],
    },
}
# what this engine, this model or this command line does not do; everything else is answered
REFUSED = [
    {"model": "nobody"},
    {"logprob_token_ids": [100, 101]},
    {"prompt": ""},
    {"logprobs": 99},
    {"suffix": "."},
    {"prompt_embeds": "AAAA"},
    {"messages": []},
    {"chat_template": "{{ messages[0].content }}"},
    {"media_io_kwargs": {"video": {"num_frames": 2}}},
    {"mm_processor_kwargs": {"a": 1}},
]
MESSAGES = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
OTHERS = [
    ("/v1/responses", {"model": "m", "input": "hello", "max_output_tokens": 4, "top_logprobs": 2}),
    ("/v1/messages", {**MESSAGES, "max_tokens": 4}),
    ("/v1/messages/count_tokens", MESSAGES),
    ("/v1/chat/completions/batch", {"model": "m", "messages": [MESSAGES["messages"]], "max_tokens": 2}),
    ("/invocations", {**COMPLETION, "logprobs": 3}),
    ("/generative_scoring", {"model": "m", "query": "a", "items": ["b"], "label_token_ids": [100, 101]}),
    ("/tokenize", {"model": "m", "prompt": "hello"}),
    ("/detokenize", {"model": "m", "tokens": [100]}),
]


def post(url, path, body):
    """(status, text of the answer); 0 where none came."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    try:
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def schema(engine, path):
    """The options of a path, by the engine itself."""
    with urllib.request.urlopen(engine.url + "/openapi.json", timeout=60) as answer:
        described = json.load(answer)
    reference = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    return described["components"]["schemas"][reference.rpartition("/")[2]]["properties"]


@pytest.mark.parametrize(("path", "plain"), [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
def test_no_option_fails_the_engine(real_engine, path, plain):
    assert set(OPTIONS[path]) == set(schema(real_engine, path)), "an option is new or gone: give it a value here"
    wrong = []
    for bodies in OPTIONS[path].values():
        for body in bodies:
            status, text = post(real_engine.url, path, {**plain, **body})
            right = range(400, 500) if body in REFUSED else (200,)
            # in a stream a failure comes after the 200
            if status not in right or '"code":5' in text.replace(" ", ""):
                wrong.append((body, status, text[:300]))
    assert wrong == []
    assert post(real_engine.url, path, plain)[0] == 200


def test_nor_do_all_of_them_at_once(real_engine):
    """In one batch, as many as the engine takes."""
    asked = [
        (path, {**plain, **body})
        for path, plain in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT))
        for bodies in OPTIONS[path].values()
        for body in bodies
    ]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda request: post(real_engine.url, *request), asked))
    failed = [(request, *answer) for request, answer in zip(asked, answers, strict=True) if not 200 <= answer[0] < 500]
    assert failed == []


@pytest.mark.parametrize(("path", "body"), OTHERS, ids=[path for path, _ in OTHERS])
def test_no_other_route_fails_it(real_engine, path, body):
    assert post(real_engine.url, path, body)[0] == 200
