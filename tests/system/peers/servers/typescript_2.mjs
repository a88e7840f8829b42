// A server on the TypeScript SDK 2.x: `typescript_2.mjs stdio` or `typescript_2.mjs http PORT`.
//
// It offers the tools of the Python peers (tools.py, questions.py).

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import {
  McpServer,
  createMcpHandler,
  fromJsonSchema,
  inputRequired,
  inputResponse,
  isLegacyRequest,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const STATE = "asked once";
const FORM = {
  type: "object",
  properties: {
    name: { type: "string" },
    polite: { type: "boolean", default: true },
  },
  required: ["name"],
};

// Under each nonce a promise, and what fulfils it.
class Gates {
  #gates = new Map();

  #at(nonce) {
    if (!this.#gates.has(nonce)) {
      this.#gates.set(nonce, Promise.withResolvers());
    }
    return this.#gates.get(nonce);
  }

  open(nonce) {
    this.#at(nonce).resolve("yes");
  }

  // A test that is wrong gets an answer saying so, well before its own deadline.
  wait(nonce) {
    const late = new Promise((resolve) => setTimeout(resolve, 20_000, "no").unref());
    return Promise.race([this.#at(nonce).promise, late]);
  }
}

const started = new Gates();
const cancelled = new Gates();

function makeServer() {
  const server = new McpServer({ name: "typescript", version: "1.0.0" });

  function tool(name, properties, run) {
    const inputSchema = fromJsonSchema({ type: "object", properties, required: Object.keys(properties) });
    server.registerTool(name, { inputSchema }, async (args, context) => {
      const answer = await run(args, context);
      return typeof answer === "string" ? { content: [{ type: "text", text: answer }] } : answer;
    });
  }

  // The SDK makes requests of these where the revision has no `input_required`.
  function question(name, properties, build, inWords) {
    tool(name, properties, (args, { mcpReq }) => {
      if (mcpReq.inputResponses === undefined) {
        return inputRequired({ inputRequests: { answer: build(args) }, requestState: STATE });
      }
      if (mcpReq.requestState() !== STATE) {
        throw new Error(`the state came back as ${mcpReq.requestState()}`);
      }
      return inWords(inputResponse(mcpReq.inputResponses, "answer"));
    });
  }

  const number = { type: "number" };
  const string = { type: "string" };
  tool("add", { a: number, b: number }, ({ a, b }) => String(a + b));
  tool("fail", { reason: string }, ({ reason }) => {
    throw new Error(reason);
  });
  tool("count", { steps: number }, async ({ steps }, { mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= steps; progress++) {
      const params = { progressToken, progress, total: steps };
      await mcpReq.notify({ method: "notifications/progress", params });
    }
    return `counted to ${steps}`;
  });
  tool("wait", { nonce: string }, ({ nonce }, { mcpReq }) => {
    started.open(nonce);
    return new Promise((resolve) => {
      mcpReq.signal.addEventListener("abort", () => {
        cancelled.open(nonce);
        resolve("never");
      });
    });
  });
  tool("started", { nonce: string }, ({ nonce }) => started.wait(nonce));
  tool("cancelled", { nonce: string }, ({ nonce }) => cancelled.wait(nonce));

  question(
    "ask_model",
    { question: string },
    ({ question }) =>
      inputRequired.createMessage({
        messages: [{ role: "user", content: { type: "text", text: question } }],
        maxTokens: 100,
      }),
    ({ result }) => `${result.model}: ${result.content.text}`,
  );
  question(
    "ask_form",
    {},
    () => inputRequired.elicit({ message: "Who are you?", requestedSchema: FORM }),
    ({ action, content = {} }) => {
      const fields = Object.entries(content).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
      return `${action}: ${fields.sort().join(" ")}`;
    },
  );
  question(
    "ask_url",
    { url: string },
    ({ url }) => inputRequired.elicitUrl({ message: "Please agree.", url }),
    ({ action }) => action,
  );
  question(
    "ask_roots",
    {},
    () => inputRequired.listRoots(),
    ({ roots }) => roots.map(({ uri }) => uri).join(" "),
  );
  return server;
}

// Sessions for the revisions that have them, which the handler of the SDK would not keep.
function makeHttpServer() {
  const modern = toNodeHandler(createMcpHandler(makeServer, { legacy: "reject" }));
  const sessions = new Map();

  async function legacy(request, response, body) {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
        onsessionclosed: (id) => sessions.delete(id),
      });
      await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response, body);
  }

  return createServer(async (request, response) => {
    const body = request.method === "POST" ? await readJson(request) : undefined;
    const probe = await toWebRequest(request, body);
    await ((await isLegacyRequest(probe)) ? legacy : modern)(request, response, body);
  });
}

async function readJson(request) {
  const chunks = await Array.fromAsync(request);
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

const [, , how, port] = process.argv;
if (how === "stdio") {
  serveStdio(makeServer);
} else {
  makeHttpServer().listen(Number(port), "127.0.0.1");
}
