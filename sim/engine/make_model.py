#!/usr/bin/python3
"""make_model.py DIR: writes the tiny Qwen3 model that the simulated boxes serve.

Needs torch, tokenizers and safetensors. Weights are random and mean nothing. Two things are put in by hand, so that
whatever tests or prints a chat sees something sane: an answer begins with a few fixed words (OPENING), reasoning first,
which the reasoning parser takes apart; and only words, or the end, can follow, never control characters or a stray tool
call. Which words depends on the prompt and on the weights. The same on every machine: numpy's generator with a fixed
seed, and no kernel that differs by processor.
"""

import itertools
import json
import pathlib
import sys

import numpy
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|im_end|>"
SPECIAL = ["<|endoftext|>", "<|im_start|>", END]
# in the vocabulary as one token each, but shown in the text, as with the real tokenizer
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
WORD_LIST = """
a about above after again air all along always an and animal answer any apple are as at away back be bear beautiful
because become been before began being below between big bird black blue boat body book both bread bring brown build
but by came can car carry cat change child city clear close cloud cold color come could country cover cross cut dark
day deep did distance do dog door down draw dream dry each early earth east eat end enough even ever every eye face
fall family far farm fast father feel few field final find fine fire first fish five float flower fly follow food foot
for forest form found four fox friend from full game garden gave get girl give glass go gold good grass great green
ground group grow had half hand hard has have he head hear heart heavy help her here high hill him his hold home horse
hot hour house how hundred ice if in is island it just keep kind king know lake land large last late laugh lazy lead
learn leave left less let letter life light like line list listen little live long look love low made make man many
map mark may me mean measure men might mile milk mind minute moon more morning most mother mountain move much music
must my name near never new next night no north not note now number of off often oil old on once one only open or
other our out over own page paper part pass path people pick piece place plain plan plant play point pull quick quiet
rain ran reach read ready real red remember rest right river road rock room round run said same sand saw say school
sea second see seem self send sentence set seven shape she ship short should show side silver simple sing sit six sky
sleep slow small snow so some song soon sound south spring stand star start state stay step still stone stop story
street strong summer sun sure table take talk tell ten than that the their them then there these they thing thinking
this those thought thousand three through time to together told too took top town tree true try turn two under until
up upon us use valley very voice wait walk wall want war warm was watch water way we week well went were west what
wheel when where which while white who why will wind winter wish with wood word work world would write year yellow yes
yet you young your
"""
WORDS = WORD_LIST.split()
# Each token here is followed by the next one; no token occurs twice. The first is the last of a chat's prompt.
OPENING = ["\n", "<think>", "simulated", " thinking", "</think>", "Simulated", " answer", ":"]

CHAT_TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}
{{- 'tools:' }}{% for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + (call | tojson) + '</tool_call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}
{%- endif %}"""

# Heads and key/value heads divide by 2, which vLLM asks for TP 2; head_dim by 32, which the CPU's kernels ask for fp8.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    # the real model's, so that its command line runs as it is
    "max_position_embeddings": 262144,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "use_cache": True,
}


def make_tokenizer():
    """Byte-level BPE in which every word above, with a space before it, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" " + word for word in WORDS] + ["simulated", "Simulated"], trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return tokenizer


def one_token(tokenizer, text):
    ids = tokenizer.encode(text).ids
    if len(ids) != 1:
        raise ValueError(f"{text!r} is {len(ids)} tokens, not one: {ids}")
    return ids[0]


def make_weights(tokenizer):
    """Tensors by Qwen3's names. Hidden dimension 0 is 1 for every token, which gives the output layer a bias."""
    vocabulary, hidden, heads = tokenizer.get_vocab_size(), CONFIG["hidden_size"], CONFIG["head_dim"]
    random = numpy.random.default_rng(0)

    def matrix(rows, columns, scale):
        return random.standard_normal((rows, columns)) * scale / columns**0.5

    embedding = matrix(vocabulary, hidden, 1.0)
    embedding /= numpy.linalg.norm(embedding, axis=1, keepdims=True)
    output = matrix(vocabulary, hidden, 4.0)
    # Dimension 0, about 4 after the last norm, as a bias: words, and now and then the end, but nothing else.
    embedding[:, 0] = 1.0
    output[:, 0] = -25.0
    words = sorted({one_token(tokenizer, " " + word) for word in WORDS})
    output[words, 0] = 0.0
    output[one_token(tokenizer, END), 0] = 1.0
    # A token of the opening points so strongly at the one after it that nothing else can be chosen.
    opening = [one_token(tokenizer, text) for text in OPENING]
    for here, there in itertools.pairwise(opening):
        output[there, 1:] += 40.0 * embedding[here, 1:]
        output[there, 0] = -25.0

    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": output,
        "model.norm.weight": numpy.ones(hidden),
    }
    for layer in range(CONFIG["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for projection, count in (("q", CONFIG["num_attention_heads"]), ("k", CONFIG["num_key_value_heads"])):
            tensors[name + f"self_attn.{projection}_proj.weight"] = matrix(count * heads, hidden, 1.0)
            tensors[name + f"self_attn.{projection}_norm.weight"] = numpy.ones(heads)
        tensors[name + "self_attn.v_proj.weight"] = matrix(CONFIG["num_key_value_heads"] * heads, hidden, 1.0)
        tensors[name + "self_attn.o_proj.weight"] = matrix(hidden, CONFIG["num_attention_heads"] * heads, 0.1)
        tensors[name + "mlp.gate_proj.weight"] = matrix(CONFIG["intermediate_size"], hidden, 1.0)
        tensors[name + "mlp.up_proj.weight"] = matrix(CONFIG["intermediate_size"], hidden, 1.0)
        tensors[name + "mlp.down_proj.weight"] = matrix(hidden, CONFIG["intermediate_size"], 0.1)
        # nothing is added to dimension 0
        tensors[name + "self_attn.o_proj.weight"][0] = 0.0
        tensors[name + "mlp.down_proj.weight"][0] = 0.0
        tensors[name + "input_layernorm.weight"] = numpy.ones(hidden)
        tensors[name + "post_attention_layernorm.weight"] = numpy.ones(hidden)
    return {name: torch.from_numpy(tensor).to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    end, pad = one_token(tokenizer, END), one_token(tokenizer, "<|endoftext|>")
    files = {
        "config.json": {**CONFIG, "vocab_size": tokenizer.get_vocab_size(), "eos_token_id": end, "pad_token_id": pad},
        "generation_config.json": {"eos_token_id": end, "pad_token_id": pad},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONFIG["max_position_embeddings"],
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file(make_weights(tokenizer), folder / "model.safetensors", metadata={"format": "pt"})
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_model.py DIR")
    main(pathlib.Path(sys.argv[1]))
