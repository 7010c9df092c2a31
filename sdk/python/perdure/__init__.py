"""Perdure for Python: agents that do and undo the steps of durable jobs, and a client.

    from perdure import Agent, Client, Rejected

    payments = Agent("payments")

    @payments.do("charge")
    def charge(input, run):
        return {"id": bank.charge(input["amount"], idempotency_key=run.key)}

    @payments.undo("charge")
    def refund(input, output, run):
        bank.refund_by_key(run.do_key)

    Client("http://127.0.0.1:7420").serve(payments)
"""

from .agent import Agent, AsyncRun, Run
from .aio import AsyncClient, AsyncHost
from .client import Client, Submitted, at_rest
from .errors import (BacklogFull, Cancelled, Conflict, Error, Failed, Invalid, NoEffect, NotDrained, NotFound, Rejected,
                     RetryAfter, Unavailable)
from .host import Host
from .types import Alert, Job, Limit, Step, StepDetail

__version__ = "0.1.0"

__all__ = [
    "Agent", "AsyncClient", "AsyncHost", "AsyncRun", "BacklogFull", "Cancelled", "Client", "Conflict", "Error", "Failed", "Host", "Invalid", "Job", "NoEffect",
    "NotDrained", "NotFound", "Rejected", "RetryAfter", "Run", "Step", "StepDetail", "Submitted", "Unavailable", "at_rest",
]
