#!/usr/bin/env python3
"""An agent without any library: `python3 agent.py [SERVER]`. It works for agent.yaml. PERDURE_TOKEN is its token.

Three POSTs are the whole protocol. Run as many of these as you like, and kill them as you like.
"""
import json, os, signal, sys, threading, time, urllib.request, uuid

SERVER = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PERDURE_SERVER", "http://127.0.0.1:7420")
TOKEN = {"Authorization": "Bearer " + os.environ["PERDURE_TOKEN"]} if os.environ.get("PERDURE_TOKEN") else {}
HOLDER = f"python-{uuid.uuid4()}"  # never used again: what a dead agent held is not ours

def post(path, **body):
    body = json.dumps({"holder": HOLDER, **body}).encode()
    request = urllib.request.Request(SERVER + path, body, {"Content-Type": "application/json", **TOKEN})
    return json.load(urllib.request.urlopen(request, timeout=30))

def insist(path, **body):  # repeating a claim by its requestId, or a report, does no harm
    while True:
        try: return post(path, **body)
        except OSError as e:
            if getattr(e, "code", 0) in (401, 403): raise  # PERDURE_TOKEN is not a token for these runs
            print(path, e, flush=True); time.sleep(1)

def work(run, stop):  # where this has an effect elsewhere, it goes under run["key"]: the same in every try
    for _ in range(10):
        if stop.wait(0.3): raise InterruptedError("not ours any more, or not wanted")
    return {"text": f"Hello, {run['input']['name']}!"} if run["direction"] == "do" else None

def beat(handle, ours, stop):  # beats get through: the run stays ours. They do not: it is another's
    while not stop.wait(2):
        try: asked, answer = time.monotonic(), post("/v1/heartbeats", runs=[handle])["runs"][0]
        except OSError: answer = {"stop": time.monotonic() > ours}
        else: ours = asked + answer["remainingMs"] / 1000
        if answer["stop"]:  # with another reason, or none, the run is another's now, and nothing is reported of it
            stop.ours = answer.get("reason") in ("undo", "operator", "stalled")
            stop.set()

working = ended = False
def end(*_):  # SIGTERM: the run is finished, and no other one claimed
    global ended
    ended = True
    if not working: sys.exit()

signal.signal(signal.SIGTERM, end)

while not ended:
    for run in insist("/v1/agents/python/claim", wait="20s", heartbeat="8s", requestId=str(uuid.uuid4()))["runs"]:
        working, handle, stop = True, {k: run[k] for k in ("job", "step", "run")}, threading.Event()
        stop.ours = True
        threading.Thread(target=beat, args=(handle, time.monotonic() + run["remainingMs"] / 1000, stop), daemon=True).start()
        try: report = {"outcome": "done", "output": work(run, stop)}
        except Exception as e: report = {"outcome": "failed", "error": {"code": type(e).__name__, "message": str(e)}}
        stop.set()
        results = insist("/v1/reports", reports=[{**handle, **report}])["results"] if stop.ours else "not ours any more"
        print(handle, run["direction"], report, results, flush=True)
        working = False
