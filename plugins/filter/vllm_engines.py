# SPDX-License-Identifier: Apache-2.0
"""Several engines on one box: what is wrong with their list, their cards, and what the box needs. Pure functions."""

from __future__ import annotations

import json
import re
import time

# What is done about an engine, the least first.
NEEDS = ["nothing", "start", "restart"]
# The name becomes a part of unit, container and file names.
NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"


def vllm_engines_findings(engines, port, cards=None):
    """Sentences about what is wrong with `engines` (vllm_engines); none when all is well.

    port   vllm_port, which an entry without a port has
    cards  how many the box has; null while that is not known
    """
    if not engines:
        return ["vllm_engines is empty; a box has at least one engine: leave it out for one, main, on all cards"]
    findings = []
    names = [str(engine.get("name")) for engine in engines]
    pairs = list(zip(names, engines, strict=True))
    for name in dict.fromkeys(names):
        if not re.fullmatch(NAME, name):
            findings.append(
                f"vllm_engines has an engine named {name!r}; allowed are a-z, 0-9 and - between them, such as main"
            )
        if name == "cache":
            findings.append(
                "vllm_engines has an engine named cache, where kernel caches are kept; give it another name"
            )
        if names.count(name) > 1:
            findings.append(f"vllm_engines has {names.count(name)} engines named {name}; give each a name of its own")
    findings += _shared({name: [int(engine.get("port") or port)] for name, engine in pairs}, "port")
    for name, engine in pairs:
        findings += _card_findings(name, engine.get("gpus"), cards)
    everything = [name for name, engine in pairs if not engine.get("gpus")]
    if len(engines) > 1 and everything:
        findings.append(
            f"engine {everything[0]} has no gpus, so it takes all cards, and others want some; "
            "give each engine in vllm_engines its gpus, such as [0]"
        )
    return findings + _shared({name: engine.get("gpus") or [] for name, engine in pairs}, "card")


def _card_findings(name, gpus, cards):
    for gpu in gpus or []:
        if not str(gpu).isdigit():
            yield f"engine {name} has card {gpu!r} in its gpus; they are indexes as NVML counts them, from 0"
        elif cards is not None and int(gpu) >= cards:
            yield f"engine {name} wants card {gpu}; the box has {cards}, so allowed are 0 to {cards - 1}"


def _shared(wanted, what):
    """`wanted`: the numbers that each engine takes, by its name."""
    takers = {}
    for name, numbers in wanted.items():
        for number in dict.fromkeys(map(str, numbers)):
            takers.setdefault(number, []).append(name)
    return [
        f"engines {' and '.join(names)} share {what} {number}; give each a {what} of its own in vllm_engines"
        for number, names in takers.items()
        if len(names) > 1
    ]


def vllm_engine_box(box, gpus):
    """What rules and fit are told of a box (a vllm_box, or null) for an engine on the cards `gpus`, null being all."""
    if not (box and box.get("cards") and gpus):
        return box
    of_it = [card for card in box.get("gpus", []) if str(card["index"]) in map(str, gpus)]
    known = {}
    if of_it and all("memory_mib" in card for card in of_it):
        # another card of the box may be smaller, or older
        capabilities, memories = ([card[name] for card in of_it] for name in ("capability", "memory_mib"))
        known = {
            "memory_mib": min(memories) if None not in memories else None,
            "capability": min(capabilities, key=_numbers) if None not in capabilities else None,
            "names": sorted({card["name"] for card in of_it}),
        }
    return {**box, "cards": len(gpus), "gpus": of_it, **known}


def _numbers(version):
    return tuple(int(part) for part in version.split("."))


def vllm_uuids(gpu_info, gpus):
    """UUIDs of the cards `gpus` (indexes; null is all) by the result of module gpu_info.

    A bare box has no driver that knows them: placeholders, as check mode shows the unit nevertheless.
    """
    if not gpu_info.get("available"):
        return [f"GPU-{gpu}-known-once-the-driver-runs" for gpu in gpus or ["all"]]
    wanted = {int(gpu) for gpu in gpus or []}
    return [
        gpu["uuid"]
        for position, gpu in enumerate(gpu_info["gpus"])
        if not wanted or gpu.get("index", position) in wanted
    ]


def vllm_greatest_need(needs):
    """The greatest of `needs`: nothing, start or restart."""
    return max(needs, key=NEEDS.index, default="nothing")


def vllm_other_cards(label, uuids, available):
    """Whether a running engine has other cards than it is to have: two have changed slots, or one was replaced.

    label      tandem.cards of its container; null or empty for one from before it was written, which tells nothing
    uuids      those of the cards that it is to have
    available  whether the driver says them
    """
    return bool(label and available) and set(label.split(",")) != set(uuids)


def vllm_what_changes(about, image, command, cards=None):
    """What a restart is for, as short lines: the image, and options as they are and as they are wanted.

    about    about.json of the configuration that runs (image, arguments), or None where nobody kept it
    image    the wanted one, with its tag
    command  the wanted arguments: model, and options as --name=value or --name
    cards    where they are others: [those it has, as its label says them, those it is to have]
    """
    if cards:
        has, wanted = cards[0].split(","), list(cards[1])
        return [
            f"cards {', '.join(uuid for uuid in has if uuid not in wanted) or 'none'} -> "
            f"{', '.join(uuid for uuid in wanted if uuid not in has) or 'none'} (changed slots, or were replaced)",
            *(vllm_what_changes(about, image, command) if about and _differs(about, image, command) else []),
        ]
    if not about:
        return ["runs a configuration of which no run kept the options"]
    changes = [f"image {about['image']} -> {image}"] if about["image"] != image else []
    runs, wanted = ({name: value for name, _, value in _options(words)} for words in (about["arguments"], command))
    for name in [*runs, *(name for name in wanted if name not in runs)]:
        if runs.get(name) != wanted.get(name):
            before, after = (options[name] or "on" if name in options else "not set" for options in (runs, wanted))
            changes.append(f"{name} {before} -> {after}")
    return changes or ["its key, environment, weights, shared memory or list of cards"]


def _differs(about, image, command):
    return about["image"] != image or about["arguments"] != command


def _options(words):
    return [word[2:].partition("=") for word in words if word.startswith("--")]


def vllm_engine_remarks(needs, left, removes):
    """Lines about what is out of the ordinary on a box.

    needs    dicts per engine: unit, need, runs (hash or ""), unverified, starts (of vllm-last-good: those that failed)
    left     containers of engines that are no longer wanted, by name (of host_info; null where there is none)
    removes  whether these are removed
    """
    lines = [f"{each['unit']}: {each['need']}" for each in needs if len(needs) > 1 and each["need"] != "nothing"]
    lines += [
        f"{each['unit']} runs {each['runs']}, which no run has seen to work yet (an earlier one was cut short, or it "
        "is from before such a record was kept); it is checked now"
        for each in needs
        if each["unverified"]
    ]
    lines += [
        f"{each['unit']}: {starts['failed']} starts in a row have failed, the first at "
        f"{time.strftime('%F %T UTC', time.gmtime(starts['since']))}; why: journalctl -u {each['unit']} on the box"
        for each in needs
        if (starts := each.get("starts")) and starts["failed"] > 1
    ]
    for name, container in left.items():
        state = "runs" if (container or {}).get("running") else "does not run"
        what = "is stopped and removed" if removes else "is left alone; vllm_remove_engines=true stops and removes it"
        lines.append(f"{name}.service is on the box, {state}, and is not in vllm_engines: it {what}")
    return lines


def vllm_in_the_way(needs, left):
    """Sentences about running engines that are no longer wanted and hold a card or port that is now.

    needs  dicts per engine: unit, need, cards (UUIDs), port
    left   as in vllm_engine_remarks. The container's labels say what it holds; without them it holds all cards.
    """
    sentences = []
    for name, container in left.items():
        if not (container or {}).get("running"):
            continue
        labels = container["labels"]
        held = labels["tandem.cards"].split(",") if "tandem.cards" in labels else None
        for each in needs:
            if each["need"] == "nothing":
                continue
            cards = each["cards"] if held is None else [card for card in each["cards"] if card in held]
            what = [f"card {', '.join(cards)}"] if cards else []
            what += [f"port {each['port']}"] if str(each["port"]) == labels.get("tandem.port") else []
            if what:
                sentences.append(
                    f"{name}.service runs, is not in vllm_engines, and holds {' and '.join(what)}, "
                    f"which {each['unit']} needs; stop and remove it with vllm_remove_engines=true, or put it back "
                    "into vllm_engines"
                )
    return sentences


def vllm_clients_notice(needs, left, removes):
    """Sentences about what clients of a gateway would notice although one box changes after another.

    The gateway knows one key, and each engine's port, for all of a run; an engine that it does not know any more it
    does not drain. needs, left, removes: as in vllm_engine_remarks; with need, other_key, port, models, and the running
    container's labels. A container without the label in question is from before it was written, and tells nothing.
    """
    sentences = []
    for each in needs:
        if each["need"] != "restart":
            continue
        if each["other_key"]:
            sentences.append(
                f"{each['unit']} serves with another key than vllm_api_key; the gateway sends one key to all engines, "
                "so its clients would be refused until every box has the new one (clients' own keys are "
                "gateway_api_keys, and change without that)"
            )
        port = each["labels"].get("tandem.port", str(each["port"]))
        if port != str(each["port"]):
            sentences.append(
                f"{each['unit']} serves on port {port}, vllm_port is {each['port']}; the gateway would look for every "
                "engine at its new port at once"
            )
        models = each["labels"].get("tandem.models", ",".join(each["models"])).split(",")
        if not set(models) & set(each["models"]):
            sentences.append(
                f"{each['unit']} serves the model as {' and '.join(models)}, wanted is {' and '.join(each['models'])}; "
                "while some boxes have the old name and some the new one, requests for either would find boxes that do "
                "not know it (served-model-name takes a list: roll both names first, the new one alone later)"
            )
    if removes:
        sentences += [
            f"{name}.service serves and is to be removed; the gateway, which does not know it any more, cannot wait "
            "for the requests that it still works on"
            for name, container in left.items()
            if (container or {}).get("active")
        ]
    return sentences


def vllm_canary_failures(text):
    """What failed of what vllm-canary printed, as one line; `text` itself where it printed no JSON."""
    try:
        checks = json.loads(text)["checks"]
    except (ValueError, KeyError, TypeError):
        return str(text).strip() or "it said nothing"
    return "; ".join(f"{check['name']}: {check['says']}" for check in checks if check["outcome"] == "fail")


def vllm_canary_line(text):
    """The outcome of each check of what vllm-canary printed, as one line."""
    try:
        checks = json.loads(text)["checks"]
    except (ValueError, KeyError, TypeError):
        return str(text).strip()
    return ", ".join(
        f"{check['name']} {check['outcome']}" + (f" ({check['says']})" if check["outcome"] == "skipped" else "")
        for check in checks
    )


def vllm_canary_words(args, acceptance):
    """Options of vllm-canary that follow from vLLM's options `args`: what this engine can be asked.

    acceptance  share of drafted tokens to be accepted at least
    """
    words = []
    if args.get("enable-auto-tool-choice") is True and args.get("tool-call-parser"):
        words.append("--tools")
    if args.get("reasoning-parser"):
        words.append("--reasoning")
    if str(args.get("kv-cache-dtype", "auto")) != "auto":
        words.append(f"--kv-cache-dtype={args['kv-cache-dtype']}")
    # what is healthy is known of MTP alone; 7 tokens of dflash are well with 0.48 of them accepted (club-3090 PR 1056)
    config = args.get("speculative-config")
    method = config.get("method") if isinstance(config, dict) else args.get("spec-method")
    if str(method).endswith("mtp"):
        words.append(f"--min-acceptance={acceptance}")
    return words


class FilterModule:
    """Ansible's entry point."""

    def filters(self):
        return {
            "vllm_engines_findings": vllm_engines_findings,
            "vllm_engine_box": vllm_engine_box,
            "vllm_uuids": vllm_uuids,
            "vllm_greatest_need": vllm_greatest_need,
            "vllm_engine_remarks": vllm_engine_remarks,
            "vllm_other_cards": vllm_other_cards,
            "vllm_what_changes": vllm_what_changes,
            "vllm_in_the_way": vllm_in_the_way,
            "vllm_clients_notice": vllm_clients_notice,
            "vllm_canary_failures": vllm_canary_failures,
            "vllm_canary_line": vllm_canary_line,
            "vllm_canary_words": vllm_canary_words,
        }
