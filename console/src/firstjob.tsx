// What an empty store shows.
import { may } from "./access.ts";
import { serverAddress } from "./api.ts";
import { link } from "./router.ts";
import { Copy } from "./widgets.tsx";

/** How to begin, on an empty store. */
export function FirstJob() {
  const commands = `echo '{"type": "hello", "steps": {"wait": {"agent": "sleep", "with": {"for": "30s"}}}}' > hello.json
perdure submit hello.json --server ${serverAddress}
perdure watch @latest --server ${serverAddress}`;
  return (
    <div class="box empty">
      <h2>There are no jobs yet</h2>
      <p class="muted">These commands submit a first job, which waits for half a minute, and follow it:</p>
      <pre>{commands}</pre>
      <div class="buttons">
        <Copy text={commands} what="the commands" />
        {may("submit") && (
          <a class="button" href={link.submit()}>
            Submit a job here
          </a>
        )}
      </div>
    </div>
  );
}
