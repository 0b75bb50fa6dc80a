// Serves a script by aimock. As a model does, it sends a tool only such arguments as are in the schema that it was shown.
import { readFileSync } from "node:fs";

import { LLMock } from "../lab/vendors/node_modules/@copilotkit/aimock/dist/index.js";

const vendor = new LLMock({ port: 0, auth: { apiKeys: [process.env.SCRIPTED_KEY] } });
for (const { match, response } of JSON.parse(readFileSync(process.argv[2], "utf-8"))) {
  vendor.on(match, response.toolCalls ? (request) => asShown(request, response) : response);
}
console.log(`listening on ${await vendor.start()}`);

function asShown(request, { toolCalls }) {
  return { toolCalls: toolCalls.map((call) => ({ ...call, arguments: JSON.stringify(known(request, call)) })) };
}

function known(request, { name, arguments: wanted }) {
  const shown = request.tools.find((tool) => tool.function.name === name).function.parameters.properties;
  return Object.fromEntries(Object.entries(wanted).filter(([field]) => field in shown));
}
