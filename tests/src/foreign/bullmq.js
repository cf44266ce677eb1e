// Puts COUNT jobs into a queue of BullMQ one by one, as many in hundreds, and has one worker end them all; see queues.rs for what it prints.
const { Queue, Worker } = require("bullmq");

const [url, count, threads] = process.argv.slice(-3);
const connection = { host: new URL(url).hostname, port: Number(new URL(url).port), maxRetriesPerRequest: null };
const options = { removeOnComplete: true };
const body = { text: "x".repeat(100) };
const seconds = () => Number(process.hrtime.bigint()) / 1e9;

async function main() {
  const queue = new Queue("mails", { connection });
  await queue.waitUntilReady();
  const began = seconds();
  for (let i = 0; i < count; i++) await queue.add("mail", body, options);
  const one = seconds() - began;
  const hundred = Array.from({ length: 100 }, () => ({ name: "mail", data: body, opts: options }));
  for (let i = 0; i < count; i += 100) await queue.addBulk(hundred);
  const many = seconds() - began - one;
  const start = seconds();
  let done = 0;
  const worker = new Worker("mails", async () => {}, { connection, concurrency: Number(threads) });
  await new Promise((all) => worker.on("completed", () => ++done === 2 * count && all()));
  console.log(count / one, count / many, (2 * count) / (seconds() - start));
  process.exit(0);
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
