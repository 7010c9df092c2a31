/**
 * Tests of agents and their handlers, with any test framework.
 *
 * In memory, in virtual time: `testStep` carries out the runs of one step as Perdure would, with the faults that a test
 * wants, and `checkStep` checks that a handler's effects happen once, and are gone after an undo, whatever fails.
 *
 *     const step = testStep(payments, { input: { amount: 5 } });
 *     const done = await step.do({ faults: ["crashAfter"] });     // charged, and the answer is lost: asked again
 *     assert.equal(bank.charges.size, 1);
 *
 * Whole jobs, against a real server: `startServer` starts a `perdure serve` of its own, with agents, fakes and faults.
 *
 *     await using server = await startServer();
 *     const bank = server.fake("payments");
 *     const job = await server.submit({ type: "order", steps: { charge: { agent: "payments", undo: {} } } });
 *     await job.done();
 */

export { type Effects, checkStep } from "./check.ts";
export { Fake } from "./fake.ts";
export type { Fault, FaultOptions, Refusal } from "./faults.ts";
export { type CarryOptions, TestJob, TestServer, type TestServerOptions, describeJob, perdureBinary, startServer } from "./server.ts";
export { type StepFault, type TestedRun, TestStep, type TestStepOptions, type Turn, type TurnOptions, testStep } from "./step.ts";
