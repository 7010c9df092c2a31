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

Handlers may be `async def`. AsyncClient is the client for async code. perdure.testing is for tests of your own.
"""

from .agent import Agent, AsyncRun, Run
from .aio import AsyncClient, AsyncHost
from .client import Client, Submitted, at_rest
from .errors import (BacklogFull, Cancelled, Conflict, Denied, Error, Failed, Invalid, NoEffect, NotDrained, NotFound, Rejected,
                     RetryAfter, Unavailable)
from .host import Host
from .types import (AgentInfo, Alert, BatchResult, Entry, FieldError, Health, Holder, ItemProblem, Job, KeyLimit, Limit, Mark, Node,
                    PageAlert, PageEntry, PageJob, Reason, Role, RunError, StateNames, Step, StepDetail, StepLimit)

__version__ = "0.1.0"

__all__ = [
    "Agent", "AsyncClient", "AsyncHost", "AsyncRun", "BacklogFull", "Cancelled", "Client", "Conflict", "Denied", "Error", "Failed", "Host",
    "Invalid", "NoEffect", "NotDrained", "NotFound", "Rejected", "RetryAfter", "Run", "Submitted", "Unavailable", "at_rest",
    # What a server answers.
    "AgentInfo", "Alert", "BatchResult", "Entry", "FieldError", "Health", "Holder", "ItemProblem", "Job", "KeyLimit", "Limit", "Mark", "Node",
    "PageAlert", "PageEntry", "PageJob", "Reason", "Role", "RunError", "StateNames", "Step", "StepDetail", "StepLimit",
]
