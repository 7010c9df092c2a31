// What the API answers, as in its OpenAPI document. The types are generated for the TypeScript package
// (go test ./sdk -run TypeScriptTypes -refresh), and are the same here.
export type * from "../../sdk/typescript/src/types.ts";
