// The console: pages for operators, over the REST API of the node that serves it. It begins here. place.ts has the URL,
// api.ts the calls, access.ts the user, load.ts data that is loaded repeatedly, events.ts the stream of a job, state.ts how states are
// shown, and pages/ the pages.
import { render } from "preact";
import { App } from "./app.tsx";
import { startAccess } from "./access.ts";
import { showBidiControls } from "./bidi.ts";
import { startKeys } from "./keys.ts";
import { startPlace } from "./place.ts";

showBidiControls();
startPlace();
startKeys();
startAccess();
render(<App />, document.getElementById("app")!);
