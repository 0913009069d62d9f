/* What Java's own clients get from a broker: one line for each action, its name, a tab and its result. */

import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

class Actions {
    static final TopicPartition T0 = new TopicPartition("t", 0), T1 = new TopicPartition("t", 1);
    static final TopicPartition NONE = new TopicPartition("none", 0);
    static String servers;
    static Admin admin;

    interface Action { Object call() throws Exception; }

    /** Prints what an action returned, or the class of what it threw. */
    static void act(String name, Action action) {
        String result;
        try {
            result = String.valueOf(action.call());
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException && thrown.getCause() != null ? thrown.getCause() : thrown;
            result = "! " + cause.getClass().getSimpleName();
        }
        System.out.println(name + "\t" + result.replace("\n", " "));
    }

    static <T> T get(KafkaFuture<T> future) throws Exception { return future.get(30, TimeUnit.SECONDS); }

    static Map<String, Object> client(Object... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("default.api.timeout.ms", 10000);
        config.put("request.timeout.ms", 8000);
        for (int at = 0; at < more.length; at += 2) config.put((String) more[at], more[at + 1]);
        return config;
    }

    static KafkaProducer<String, String> producer(Object... more) {
        Map<String, Object> config = client("max.block.ms", 10000, "delivery.timeout.ms", 10000, "linger.ms", 0);
        config.remove("default.api.timeout.ms");
        for (int at = 0; at < more.length; at += 2) config.put((String) more[at], more[at + 1]);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> config = client("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        for (int at = 0; at < more.length; at += 2) config.put((String) more[at], more[at + 1]);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] given) throws Exception {
        servers = given[0];
        admin = Admin.create(client());
        topics();
        configs();
        produce();
        reads();
        transactions();
        groups("classic");
        groups("consumer");
        offsets();
        cluster();
        ends();
        admin.close(Duration.ofSeconds(5));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void topics() {
        act("create t", () -> get(admin.createTopics(List.of(new NewTopic("t", 2, (short) 1))).all()));
        act("create t again", () -> get(admin.createTopics(List.of(new NewTopic("t", 2, (short) 1))).all()));
        act("create with defaults", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(new NewTopic("d", Optional.empty(), Optional.empty())));
            return get(made.numPartitions("d")) + " " + get(made.replicationFactor("d"));
        });
        act("create, config", () -> get(admin.createTopics(List.of(
            new NewTopic("c", 1, (short) 1).configs(Map.of("cleanup.policy", "compact")))).config("c")).get("cleanup.policy").value());
        act("create, bad config", () -> get(admin.createTopics(List.of(
            new NewTopic("x", 1, (short) 1).configs(Map.of("cleanup.policy", "nonsense")))).all()));
        act("create, unknown config", () -> get(admin.createTopics(List.of(
            new NewTopic("x", 1, (short) 1).configs(Map.of("no.such", "1")))).all()));
        act("create, too many replicas", () -> get(admin.createTopics(List.of(new NewTopic("x", 1, (short) 3))).all()));
        act("create, no partitions", () -> get(admin.createTopics(List.of(new NewTopic("x", 0, (short) 1))).all()));
        act("create, bad name", () -> get(admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all()));
        act("create, dots", () -> get(admin.createTopics(List.of(new NewTopic("..", 1, (short) 1))).all()));
        act("create, colliding", () -> {
            get(admin.createTopics(List.of(new NewTopic("a.b", 1, (short) 1))).all());
            return get(admin.createTopics(List.of(new NewTopic("a_b", 1, (short) 1))).all());
        });
        act("create, assigned", () -> get(admin.createTopics(List.of(new NewTopic("as", Map.of(0, List.of(1))))).all()));
        act("create, assigned to none", () -> get(admin.createTopics(List.of(new NewTopic("x", Map.of(0, List.of(9))))).all()));
        act("create, validate only", () -> get(admin.createTopics(List.of(new NewTopic("v", 1, (short) 1)),
            new CreateTopicsOptions().validateOnly(true)).all()));
        act("list topics", () -> new TreeSet<>(get(admin.listTopics().names())));
        act("list internal topics", () -> new TreeSet<>(get(admin.listTopics(new ListTopicsOptions().listInternal(true)).names())).contains("t"));
        act("describe t", () -> shown(get(admin.describeTopics(List.of("t")).allTopicNames()).get("t")));
        act("describe none", () -> get(admin.describeTopics(List.of("none")).allTopicNames()));
        act("describe by id", () -> shown(get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id("t")))).allTopicIds()).values().iterator().next()));
        act("describe by unknown id", () -> get(admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds()));
        act("describe with operations", () -> new TreeSet<>(get(admin.describeTopics(List.of("t"),
            new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames()).get("t").authorizedOperations().stream().map(Enum::name).toList()));
        act("more partitions", () -> get(admin.createPartitions(Map.of("as", NewPartitions.increaseTo(3))).all()));
        act("fewer partitions", () -> get(admin.createPartitions(Map.of("as", NewPartitions.increaseTo(2))).all()));
        act("same partitions", () -> get(admin.createPartitions(Map.of("as", NewPartitions.increaseTo(3))).all()));
        act("more partitions of none", () -> get(admin.createPartitions(Map.of("none", NewPartitions.increaseTo(2))).all()));
        act("more partitions, assigned", () -> get(admin.createPartitions(Map.of("as", NewPartitions.increaseTo(4, List.of(List.of(1))))).all()));
        act("more partitions, assigned to none", () -> get(admin.createPartitions(Map.of("as", NewPartitions.increaseTo(5, List.of(List.of(9))))).all()));
        act("delete none", () -> get(admin.deleteTopics(List.of("none")).all()));
        act("delete by id", () -> get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id("a.b")))).all()));
        act("delete by unknown id", () -> get(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).all()));
        act("delete", () -> get(admin.deleteTopics(List.of("d")).all()));
    }

    static Uuid id(String topic) throws Exception {
        return get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
    }

    static String shown(TopicDescription topic) {
        return topic.name() + " " + topic.isInternal() + " " + topic.partitions().stream().map(part -> part.partition() + ":"
            + part.leader().id() + part.replicas().stream().map(Node::id).toList() + part.isr().stream().map(Node::id).toList()
            + part.elr() + part.lastKnownElr()).toList();
    }

    static void configs() {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "t");
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "cg");
        act("describe config", () -> value(topic, "retention.ms"));
        act("describe config of none", () -> value(new ConfigResource(ConfigResource.Type.TOPIC, "none"), "retention.ms"));
        act("describe config of a broker", () -> value(broker, "num.partitions"));
        act("describe config of no broker", () -> value(new ConfigResource(ConfigResource.Type.BROKER, "9"), "num.partitions"));
        act("describe config of a group", () -> value(group, "consumer.session.timeout.ms"));
        act("describe loggers", () -> get(admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1"))).all()).size());
        act("set", () -> set(topic, "retention.ms", "1234567", AlterConfigOp.OpType.SET));
        act("set, seen", () -> value(topic, "retention.ms"));
        act("append", () -> set(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        act("append, seen", () -> value(topic, "cleanup.policy"));
        act("subtract", () -> set(topic, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        act("append to no list", () -> set(topic, "retention.ms", "1", AlterConfigOp.OpType.APPEND));
        act("delete config", () -> set(topic, "retention.ms", null, AlterConfigOp.OpType.DELETE));
        act("delete config, seen", () -> value(topic, "retention.ms"));
        act("set nonsense", () -> set(topic, "retention.ms", "abc", AlterConfigOp.OpType.SET));
        act("set unknown", () -> set(topic, "no.such", "1", AlterConfigOp.OpType.SET));
        act("set of none", () -> set(new ConfigResource(ConfigResource.Type.TOPIC, "none"), "retention.ms", "1", AlterConfigOp.OpType.SET));
        act("set of a broker", () -> set(broker, "log.retention.ms", "7654321", AlterConfigOp.OpType.SET));
        act("set of all brokers", () -> set(new ConfigResource(ConfigResource.Type.BROKER, ""), "log.retention.ms", "7654322", AlterConfigOp.OpType.SET));
        act("set read-only of a broker", () -> set(broker, "node.id", "3", AlterConfigOp.OpType.SET));
        act("set of a group", () -> set(group, "consumer.session.timeout.ms", "50000", AlterConfigOp.OpType.SET));
        act("set of a group, out of range", () -> set(group, "consumer.session.timeout.ms", "1", AlterConfigOp.OpType.SET));
        act("list config resources", () -> get(admin.listConfigResources().all()).stream().map(each -> each.type().name()).collect(Collectors.toCollection(TreeSet::new)));
    }

    static Object set(ConfigResource resource, String name, String value, AlterConfigOp.OpType how) throws Exception {
        return get(admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), how)))).all());
    }

    static String value(ConfigResource resource, String name) throws Exception {
        ConfigEntry entry = get(admin.describeConfigs(List.of(resource)).all()).get(resource).get(name);
        return entry == null ? "no such" : entry.value() + " " + entry.source() + " " + entry.isReadOnly();
    }

    static String sent(Future<RecordMetadata> future) throws Exception {
        RecordMetadata data = future.get(20, TimeUnit.SECONDS);
        return data.topic() + "-" + data.partition() + "@" + data.offset();
    }

    static ProducerRecord<String, String> record(TopicPartition at, String value) {
        return new ProducerRecord<>(at.topic(), at.partition(), "k", value);
    }

    static void produce() {
        for (String acks : List.of("0", "1", "all"))
            act("send, acks " + acks, () -> { try (var p = producer("acks", acks, "enable.idempotence", "false")) { return sent(p.send(record(T0, "a"))); } });
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd"))
            act("send, " + codec, () -> { try (var p = producer("compression.type", codec)) { return sent(p.send(record(T0, codec))); } });
        act("send, idempotent", () -> { try (var p = producer()) { sent(p.send(record(T0, "i"))); return sent(p.send(record(T0, "j"))); } });
        act("send to none", () -> { try (var p = producer("max.block.ms", 3000)) { return sent(p.send(record(NONE, "a"))); } });
        act("send to no partition", () -> { try (var p = producer("max.block.ms", 3000)) { return sent(p.send(record(new TopicPartition("t", 9), "a"))); } });
        act("send, no key, compacted", () -> { try (var p = producer()) { return sent(p.send(new ProducerRecord<>("c", null, "v"))); } });
        act("send, large", () -> { try (var p = producer("max.request.size", 5000000)) { return sent(p.send(record(T0, "x".repeat(2000000)))); } });
        act("partitions for", () -> { try (var p = producer()) { return p.partitionsFor("t").size(); } });
    }

    static String polled(Consumer<String, String> consumer, int wanted) {
        List<String> found = new ArrayList<>();
        long end = System.nanoTime() + 15_000_000_000L;
        while (found.size() < wanted && System.nanoTime() < end)
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(200)))
                found.add(each.partition() + "@" + each.offset() + "=" + (each.value().length() > 9 ? "..." : each.value()));
        return found.toString();
    }

    static void reads() {
        try (var c = consumer()) {
            c.assign(List.of(T0));
            act("beginning offsets", () -> c.beginningOffsets(List.of(T0, T1)));
            act("end offsets", () -> c.endOffsets(List.of(T0, T1)));
            act("end offsets of none", () -> c.endOffsets(List.of(NONE), Duration.ofSeconds(3)));
            act("offsets for times", () -> c.offsetsForTimes(Map.of(T0, 0L)).get(T0).offset());
            act("offsets for late times", () -> c.offsetsForTimes(Map.of(T0, Long.MAX_VALUE / 2)).get(T0));
            act("poll", () -> { c.seekToBeginning(List.of(T0)); return polled(c, 8); });
            act("position", () -> c.position(T0));
            act("lag", () -> c.currentLag(T0));
            act("seek behind the end", () -> { c.seek(T0, 999); return polled(c, 1); });
            act("consumer lists topics", () -> new TreeSet<>(c.listTopics().keySet()).contains("t"));
            act("consumer, partitions for", () -> c.partitionsFor("t").size());
            act("consumer, partitions for none", () -> c.partitionsFor("none"));
        }
        act("no reset", () -> { try (var c = consumer("auto.offset.reset", "none")) { c.assign(List.of(T0)); return polled(c, 1); } });
        act("seek out of range, no reset", () -> { try (var c = consumer("auto.offset.reset", "none")) { c.assign(List.of(T0)); c.seek(T0, 999); return polled(c, 1); } });
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1)))
            act("list offsets, " + spec.getClass().getSimpleName(), () -> get(admin.listOffsets(Map.of(T0, spec)).all()).get(T0).offset());
        act("list offsets, local", () -> get(admin.listOffsets(Map.of(T0, OffsetSpec.earliestLocal())).all()).get(T0).offset());
        act("list offsets, tiered", () -> get(admin.listOffsets(Map.of(T0, OffsetSpec.latestTiered())).all()).get(T0).offset());
        act("list offsets of none", () -> get(admin.listOffsets(Map.of(NONE, OffsetSpec.latest()), new ListOffsetsOptions().timeoutMs(3000)).all()));
        act("delete records", () -> get(admin.deleteRecords(Map.of(T0, RecordsToDelete.beforeOffset(2))).lowWatermarks().get(T0)).lowWatermark());
        act("delete records behind the end", () -> get(admin.deleteRecords(Map.of(T0, RecordsToDelete.beforeOffset(999))).all()));
        act("delete all records", () -> get(admin.deleteRecords(Map.of(T1, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(T1)).lowWatermark());
        act("delete records of none", () -> get(admin.deleteRecords(Map.of(NONE, RecordsToDelete.beforeOffset(1)), new DeleteRecordsOptions().timeoutMs(3000)).all()));
    }

    static void transactions() {
        act("transactions", () -> get(admin.listTransactions().all()).stream().noneMatch(each -> each.transactionalId().equals("tx")));
        var one = producer("transactional.id", "tx");
        act("begin before init", () -> { one.beginTransaction(); return "begun"; });
        act("init", () -> { one.initTransactions(); return "done"; });
        act("begin", () -> { one.beginTransaction(); return "begun"; });
        act("send in it", () -> sent(one.send(record(T1, "tx"))));
        act("describe it", () -> { var it = get(admin.describeTransactions(List.of("tx")).description("tx")); return it.state() + " " + it.topicPartitions() + " " + it.producerEpoch(); });
        act("list them", () -> get(admin.listTransactions().all()).stream().filter(each -> each.transactionalId().equals("tx")).map(each -> each.state().toString()).toList());
        act("list them, by state", () -> get(admin.listTransactions(new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))).all()).size());
        act("describe producers", () -> get(admin.describeProducers(List.of(T1)).partitionResult(T1)).activeProducers().stream().map(each -> each.producerEpoch() + " " + each.lastSequence() + " " + each.currentTransactionStartOffset()).toList());
        act("open, read committed", () -> { try (var c = consumer("isolation.level", "read_committed")) { c.assign(List.of(T1)); return c.endOffsets(List.of(T1)); } });
        act("open, read uncommitted", () -> { try (var c = consumer()) { c.assign(List.of(T1)); return c.endOffsets(List.of(T1)); } });
        act("send offsets", () -> { one.sendOffsetsToTransaction(Map.of(T0, new OffsetAndMetadata(3, "m")), new ConsumerGroupMetadata("txg")); return "sent"; });
        act("pending offsets", () -> get(admin.listConsumerGroupOffsets("txg").partitionsToOffsetAndMetadata()));
        act("commit", () -> { one.commitTransaction(); return "done"; });
        act("committed offsets", () -> {
            Map<TopicPartition, OffsetAndMetadata> found = Map.of();
            for (int tries = 0; found.isEmpty() && tries < 100; tries++, Thread.sleep(100))
                found = get(admin.listConsumerGroupOffsets("txg").partitionsToOffsetAndMetadata());
            return found;
        });
        act("abort", () -> { one.beginTransaction(); sent(one.send(record(T1, "ab"))); one.abortTransaction(); return "done"; });
        act("commit an empty one", () -> { one.beginTransaction(); one.commitTransaction(); return "done"; });
        act("read committed", () -> { try (var c = consumer("isolation.level", "read_committed")) { c.assign(List.of(T1)); return polled(c, 1); } });
        act("read uncommitted", () -> { try (var c = consumer()) { c.assign(List.of(T1)); return polled(c, 2); } });
        var two = producer("transactional.id", "tx");
        act("open", () -> { one.beginTransaction(); return sent(one.send(record(T1, "open"))); });
        act("second init", () -> { two.initTransactions(); return "done"; });
        act("fenced", () -> { one.commitTransaction(); return "done"; });
        act("second commit", () -> { two.beginTransaction(); sent(two.send(record(T1, "two"))); two.commitTransaction(); return "done"; });
        act("fence producers", () -> get(admin.fenceProducers(List.of("tx")).all()));
        act("fenced by admin", () -> { two.beginTransaction(); sent(two.send(record(T1, "three"))); return "sent"; });
        act("describe no transaction", () -> get(admin.describeTransactions(List.of("none")).all()));
        act("close producers", () -> { one.close(Duration.ofSeconds(2)); two.close(Duration.ofSeconds(2)); return "done"; });
        act("terminate", () -> {
            try (var p = producer("transactional.id", "ty")) {
                p.initTransactions(); p.beginTransaction(); sent(p.send(record(T1, "ty")));
                return get(admin.forceTerminateTransaction("ty").result());
            }
        });
    }

    static void groups(String protocol) {
        String group = protocol + "-group", name = protocol + ", ";
        var c = consumer("group.id", group, "group.protocol", protocol);
        act(name + "subscribe and poll", () -> { c.subscribe(List.of("t")); return polled(c, 6).length() > 2; });
        act(name + "assignment", () -> new TreeSet<>(c.assignment().stream().map(String::valueOf).toList()));
        act(name + "commit", () -> { c.commitSync(); return "done"; });
        act(name + "committed", () -> c.committed(Set.of(T0, T1)).values().stream().filter(Objects::nonNull).count());
        act(name + "commit given", () -> { c.commitSync(Map.of(T0, new OffsetAndMetadata(4, "meta"))); return c.committed(Set.of(T0)).get(T0).metadata(); });
        act(name + "describe", () -> {
            var it = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            return it.type() + " " + it.groupState() + " " + it.partitionAssignor() + " " + it.members().size() + " " + new TreeSet<>(it.members().iterator().next().assignment().topicPartitions().stream().map(String::valueOf).toList());
        });
        act(name + "list", () -> get(admin.listGroups().all()).stream().filter(each -> each.groupId().equals(group)).map(each -> each.type() + " " + each.protocol() + " " + each.groupState().orElse(null)).toList());
        act(name + "list by type", () -> get(admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.parse(protocol)))).all()).stream().anyMatch(each -> each.groupId().equals(group)));
        act(name + "delete a full group", () -> get(admin.deleteConsumerGroups(List.of(group)).all()));
        act(name + "alter offsets of a full group", () -> get(admin.alterConsumerGroupOffsets(group, Map.of(T0, new OffsetAndMetadata(1))).all()));
        act(name + "delete subscribed offsets", () -> get(admin.deleteConsumerGroupOffsets(group, Set.of(T0)).all()));
        act(name + "remove members", () -> get(admin.removeMembersFromConsumerGroup(group, new RemoveMembersFromConsumerGroupOptions()).all()));
        act(name + "close", () -> { c.close(CloseOptions.timeout(Duration.ofSeconds(5))); return "closed"; });
        act(name + "describe empty", () -> get(admin.describeConsumerGroups(List.of(group)).all()).get(group).groupState());
        act(name + "alter offsets", () -> get(admin.alterConsumerGroupOffsets(group, Map.of(T0, new OffsetAndMetadata(1))).all()));
        act(name + "offsets", () -> get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).get(T0).offset());
        act(name + "delete offsets", () -> get(admin.deleteConsumerGroupOffsets(group, Set.of(T0)).all()));
        act(name + "static member", () -> { try (var s = consumer("group.id", group, "group.protocol", protocol, "group.instance.id", "i")) { s.subscribe(List.of("t")); return polled(s, 1).length() > 2; } });
        act(name + "pattern", () -> { try (var s = consumer("group.id", group + "-p", "group.protocol", protocol)) { s.subscribe(java.util.regex.Pattern.compile("t|u")); return polled(s, 1).length() > 2; } });
        act(name + "server's pattern", () -> { try (var s = consumer("group.id", group + "-s", "group.protocol", protocol)) { s.subscribe(new SubscriptionPattern("t|u")); return polled(s, 1).length() > 2; } });
        act(name + "delete", () -> get(admin.deleteConsumerGroups(List.of(group + "-p")).all()));
    }

    static void offsets() {
        act("describe no group", () -> get(admin.describeConsumerGroups(List.of("none")).all()).get("none").groupState());
        act("describe no classic group", () -> get(admin.describeClassicGroups(List.of("none")).all()));
        act("delete no group", () -> get(admin.deleteConsumerGroups(List.of("none")).all()));
        act("offsets of no group", () -> get(admin.listConsumerGroupOffsets("none").partitionsToOffsetAndMetadata()));
        act("alter offsets of a new group", () -> get(admin.alterConsumerGroupOffsets("new", Map.of(T0, new OffsetAndMetadata(2, Optional.of(0), "m"))).all()));
        act("offsets of a new group", () -> get(admin.listConsumerGroupOffsets("new").partitionsToOffsetAndMetadata()));
        act("alter offsets of none", () -> get(admin.alterConsumerGroupOffsets("new", Map.of(NONE, new OffsetAndMetadata(2))).all()));
        act("delete offsets of none", () -> get(admin.deleteConsumerGroupOffsets("new", Set.of(NONE)).all()));
        act("remove from no group", () -> get(admin.removeMembersFromConsumerGroup("none", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("i")))).all()));
        act("empty group id", () -> get(admin.listConsumerGroupOffsets("").partitionsToOffsetAndMetadata()));
        act("describe share group", () -> get(admin.describeShareGroups(List.of("none")).all()).get("none").groupState());
        act("describe streams group", () -> get(admin.describeStreamsGroups(List.of("none")).all()).get("none").groupState());
    }

    static void cluster() {
        act("nodes", () -> get(admin.describeCluster().nodes()).stream().map(Node::id).toList());
        act("controller", () -> get(admin.describeCluster().controller()).id());
        act("cluster operations", () -> new TreeSet<>(get(admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations()).stream().map(Enum::name).toList()));
        act("fenced brokers too", () -> get(admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true)).nodes()).size());
        act("features", () -> get(admin.describeFeatures().featureMetadata()).finalizedFeatures().keySet().stream().sorted().toList());
        act("update features", () -> get(admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions().validateOnly(true)).all()));
        act("update unknown features", () -> get(admin.updateFeatures(Map.of("none", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all()));
        act("quorum", () -> { var it = get(admin.describeMetadataQuorum().quorumInfo()); return it.leaderId() + " " + it.voters().size() + " " + it.observers().size(); });
        act("log directories", () -> get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).values().iterator().next().replicaInfos().containsKey(T0));
        act("replica's log directories", () -> get(admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica("t", 0, 1))).all()).values().iterator().next().getCurrentReplicaOffsetLag());
        act("move to a directory", () -> get(admin.alterReplicaLogDirs(Map.of(new TopicPartitionReplica("t", 0, 1), "/none")).all()));
        act("elect preferred", () -> get(admin.electLeaders(ElectionType.PREFERRED, Set.of(T0)).partitions()).get(T0).map(each -> each.getClass().getSimpleName()));
        act("elect unclean", () -> get(admin.electLeaders(ElectionType.UNCLEAN, Set.of(T0)).partitions()).get(T0).map(each -> each.getClass().getSimpleName()));
        act("elect in none", () -> get(admin.electLeaders(ElectionType.PREFERRED, Set.of(NONE)).partitions()).get(NONE).map(each -> each.getClass().getSimpleName()));
        act("reassign", () -> get(admin.alterPartitionReassignments(Map.of(T0, Optional.of(new NewPartitionReassignment(List.of(1))))).all()));
        act("reassign to none", () -> get(admin.alterPartitionReassignments(Map.of(T0, Optional.of(new NewPartitionReassignment(List.of(9))))).all()));
        act("cancel no reassignment", () -> get(admin.alterPartitionReassignments(Map.of(T0, Optional.empty())).all()));
        act("list reassignments", () -> get(admin.listPartitionReassignments().reassignments()));
        act("describe ACLs", () -> get(admin.describeAcls(AclBindingFilter.ANY).values()));
        act("create ACLs", () -> get(admin.createAcls(List.of(new AclBinding(new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL), new AccessControlEntry("User:u", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all()));
        act("describe quotas", () -> get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()));
        act("alter quotas", () -> get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("client-id", "q")), List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 1e9))))).all()));
        act("describe SCRAM", () -> get(admin.describeUserScramCredentials().all()));
        act("unregister no broker", () -> get(admin.unregisterBroker(9).all()));
        act("create token", () -> get(admin.createDelegationToken().delegationToken()).tokenInfo().tokenId().isEmpty());
        act("instance id", () -> admin.clientInstanceId(Duration.ofSeconds(3)).toString().isEmpty());
    }

    static void ends() {
        act("delete t", () -> get(admin.deleteTopics(List.of("t")).all()));
        act("describe deleted", () -> get(admin.describeTopics(List.of("t")).allTopicNames()));
        act("send to deleted", () -> { try (var p = producer("max.block.ms", 3000)) { return sent(p.send(record(T0, "a"))); } });
    }
}
