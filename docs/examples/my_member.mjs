// A program under test for `squall run --workload command --role member`: a consumer in a group, of kafkajs.
// docs/workloads/command.md has the protocol. Standard output belongs to it: everything else goes to standard error.
//
//   npm install kafkajs && node docs/examples/my_member.mjs
//
// Two bugs can be planted, to see that Squall finds them, by an argument: `commit-ahead` commits what it has read, and
// processes it half a second later; `keep-revoked` also processes later, and does not look whether it still may.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { Kafka } = createRequire(`${process.cwd()}/`)("kafkajs");
const bug = process.argv[2];
const say = (type, line) => process.stdout.write(JSON.stringify({ type, ...line }) + "\n");
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const init = JSON.parse((await lines.next()).value);
const topic = init.topics[0];
const kafka = new Kafka({
  clientId: init.config["client.id"],
  brokers: init.bootstrap.split(","),
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 1000 },
  logCreator: () => ({ namespace, level, log }) => console.error(level, namespace, log.message, log.error ?? ""),
});
const consumer = kafka.consumer({
  groupId: init.config["group.id"],
  sessionTimeout: Number(init.config["session.timeout.ms"]),
  heartbeatInterval: Number(init.config["heartbeat.interval.ms"]),
  rebalanceTimeout: Number(init.config["max.poll.interval.ms"]),
  maxWaitTimeInMs: 200,
});

// --- which partitions are its own

let held = new Set();
let numbers = 0;

function gone(how) {
  if (held.size) say(how, { partitions: [...held] });
  held = new Set();
}

consumer.on(consumer.events.REBALANCING, () => gone("revoked"));
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  gone("lost"); // what was not given up before was taken away
  held = new Set(payload.memberAssignment[topic] ?? []);
  say("assigned", { member: payload.memberId, assigned: [...held].map((partition) => ({ partition })) });
});

// --- what it does with records

function work(partition, messages) {
  const mine = bug === "keep-revoked" ? messages : messages.filter(() => held.has(partition));
  if (!mine.length) return false;
  const reported = ({ offset, key, value }) => ({
    partition, offset, key: key?.toString() ?? null, value: value?.toString("base64") ?? null,
  });
  say("processed", { records: mine.map(reported) });
  return true;
}

async function commit(batch, commitOffsets) {
  const id = numbers++;
  const position = { partition: batch.partition, offset: String(BigInt(batch.lastOffset()) + 1n) };
  say("commit", { id, offsets: [position] });
  try {
    await commitOffsets({ topics: [{ topic, partitions: [position] }] });
    say("committed", { id });
  } catch (error) {
    say("committed", { id, error: error.type ?? error.name });
    throw error; // kafkajs joins again where it has to
  }
}

await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
say("ready", { name: "kafkajs" });
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch, commitOffsetsIfNecessary }) => {
    if (bug) {
      setTimeout(() => work(batch.partition, batch.messages), 500);
      if (bug === "commit-ahead") await commit(batch, commitOffsetsIfNecessary);
    } else if (work(batch.partition, batch.messages)) {
      await commit(batch, commitOffsetsIfNecessary);
    }
  },
});

await lines.next(); // finish, or the end of standard input
await consumer.disconnect();
gone("revoked");
process.exit(0);
