"""Asks every route that vLLM has logged, once, one after another: prints {"POST /path": status or error}, JSON.

ask_routes.py ADDRESS PORT [KEY]; the engine's log on standard input.
"""

import http.client
import json
import re
import sys

address, port, *key = sys.argv[1:]
head = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key[0]}"} if key else {})}
answers = {}
# once, however often it has started: a gateway answers no more than 100 requests a minute without a key
for path, methods in sorted(set(re.findall(r"Route: (/\S*), Methods: ([A-Z, ]+)", sys.stdin.read()))):
    for method in methods.split(", "):
        connection = http.client.HTTPConnection(address, int(port), timeout=10)
        try:
            # a body that no route takes: whoever gets so far is answered, and nothing is done
            connection.request(method, re.sub(r"{.*?}", "x", path), b"[]" if method == "POST" else None, head)
            answers[f"{method} {path}"] = connection.getresponse().status
        except OSError as error:
            answers[f"{method} {path}"] = type(error).__name__
        finally:
            connection.close()
print(json.dumps(answers))
