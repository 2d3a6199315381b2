// OpenAI's SDK for Node with zod: parsed answers and calls, whole and streamed.
const OpenAI = require("openai").default;
const { zodFunction, zodResponseFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const [baseURL, apiKey, tool, asked] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const common = {
  model: "my-model",
  messages: [{ role: "user", content: asked }],
  temperature: 0,
  max_completion_tokens: 100,
};

async function main() {
  const said = {};
  const tools = [JSON.parse(tool)];
  const answer = await client.chat.completions.create({ ...common, tools });
  const { name, arguments: text } = answer.choices[0].message.tool_calls[0].function;
  said.called = [name, JSON.parse(text)];
  const runner = client.chat.completions.stream({ ...common, tools });
  const call = (await runner.finalChatCompletion()).choices[0].message.tool_calls[0].function;
  said.streamed = [call.name, JSON.parse(call.arguments)];
  const City = z.object({ city: z.enum(["Paris", "Rome"]), days: z.number().int().min(1).max(9) });
  const format = zodResponseFormat(City, "trip");
  const parsed = await client.chat.completions.parse({ ...common, response_format: format });
  said.json_schema = parsed.choices[0].message.parsed;
  const held = await client.chat.completions.parse({
    ...common,
    tools: [zodFunction({ name: "plan", parameters: City })],
    tool_choice: { type: "function", function: { name: "plan" } },
  });
  said.function_calling = held.choices[0].message.tool_calls[0].function.parsed_arguments;
  console.log(JSON.stringify(said));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
