#!/usr/bin/env python3
"""The payment agent of examples/shop, in Python: `payments.py [--server URL] [--payment URL]`.

It wraps the shop's payment service, as payment_agent.go does. Run as many as you like, and kill them as you like.
"""

import argparse
import http.client
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Optional, TypedDict

from perdure import Agent, Client, Failed, Rejected, Run


class Charge(TypedDict):  # `with` of the step charge: which order, and no more
    order: str


class Receipt(TypedDict):  # what the step leaves as its output
    message: str


payments = Agent("payments", slots=8)
service = "http://127.0.0.1:9102"


@payments.do("charge")
def charge(input: Charge, run: Run) -> Receipt:
    receipt: Receipt = ask(run, "POST", "/charges", input)
    return receipt


@payments.undo("charge")
def refund(input: Charge, output: Optional[Receipt], run: Run) -> None:
    # What was answered is not needed, and may be missing: who charged and did not hear back has an unsure step, and it
    # is undone like one that is done. The key of the do run is enough.
    query = urllib.parse.urlencode({"order": input["order"]})
    ask(run, "DELETE", f"/charges/by-key/{run.do_key}?{query}")


def ask(run: Run, method: str, path: str, body: Any = None) -> Any:
    """Makes one call on behalf of a run. It does not try again: Perdure does."""
    # In run.headers() are the key, for the service to recognise a repetition, and the run's number, for it to refuse
    # older ones.
    request = urllib.request.Request(service + path, method=method, headers=run.headers(),
                                     data=None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=run.remaining()) as response:
            answer = response.read()
            return json.loads(answer) if answer else None
    except urllib.error.HTTPError as e:
        said = f"{method} {path}: {e.code} {e.read(1000).decode(errors='replace').strip()}"
        if e.code == 404 and run.direction == "undo":
            return None  # there is nothing to undo
        if e.code == 422:  # the card is declined: trying again is pointless, and this run changed nothing
            raise Rejected(said, code="declined", no_effect=True) from e
        if e.code >= 500:
            raise Failed(said, code=f"http_{e.code}") from e
        raise Rejected(said, code=f"http_{e.code}") from e
    except (OSError, http.client.HTTPException, ValueError) as e:  # perhaps it has acted, perhaps not
        raise Failed(f"{method} {path}: {e}", code="noAnswer") from e


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The payment agent of examples/shop.")
    parser.add_argument("--server", default="http://127.0.0.1:7420", help="URL of a node")
    parser.add_argument("--payment", default=service, help="URL of the payment service")
    arguments = parser.parse_args()
    service = arguments.payment
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    Client(arguments.server).serve(payments, heartbeat=2, grace=5)
