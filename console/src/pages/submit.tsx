// A form that submits a definition. The server checks it, and says where its faults are.
import { useSignal } from "@preact/signals";
import { call, callUrl, Problem } from "../api.ts";
import { go } from "../place.ts";
import { link } from "../router.ts";
import type { Job } from "../types.ts";
import { ProblemNote, useTitle } from "../widgets.tsx";

const example = `type: hello
steps:
  wait:
    agent: sleep
    with: {for: 30s}
  check:
    after: [wait]
    agent: approval
    with: {message: Is everything fine?}
`;

export function Submit() {
  useTitle("Submit");
  const text = useSignal(example);
  const problem = useSignal<Problem | undefined>(undefined);
  const sending = useSignal(false);
  const submit = async () => {
    if (sending.value) return;
    sending.value = true;
    problem.value = undefined;
    try {
      const job = await call<Job>(callUrl(["v1", "jobs"]), { method: "POST", headers: { "Content-Type": "application/yaml" }, body: text.value });
      go(link.job(job.id));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem.value = error.code === "unreachable" ? new Problem(0, "noAnswer", error.message, "The job may have been stored nevertheless: look at the list of jobs before you submit it again.") : error;
    } finally {
      sending.value = false;
    }
  };
  return (
    <>
      <div class="title">
        <h1>Submit a job</h1>
      </div>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <label class="stack">
          <span class="muted">The definition of the job, as YAML or JSON. A definition with a key is one job, however often it is submitted.</span>
          <textarea data-filter="" rows={18} spellcheck={false} autocomplete="off" wrap="off" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        </label>
        {problem.value && <ProblemNote problem={problem.value} />}
        <div>
          <button type="submit" class="main" disabled={sending.value}>
            {sending.value ? "Submitting …" : "Submit"}
          </button>
        </div>
      </form>
    </>
  );
}
