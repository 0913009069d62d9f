// Java's own admin and consumer, where they name topics by id: java -cp "JARS/*" ByTopicId.java --bootstrap-server ADDRESSES RECORDS
//
// Topics "read-1" and "read-2" hold RECORDS records together. Each line of standard output is one result.

import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ByTopicId {
    static final String GROUP = "by-pattern";

    public static void main(String[] args) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", args[1]);
        try (Admin admin = Admin.create(given)) {
            read(args[1], Integer.parseInt(args[2]), admin);
            Map<String, Uuid> ids = new TreeMap<>();
            admin.describeTopics(List.of("read-1", "read-2")).allTopicNames().get()
                .forEach((name, topic) -> ids.put(name, topic.topicId()));
            Collection<String> names = new TreeSet<>();
            admin.describeTopics(TopicCollection.ofTopicIds(ids.values())).allTopicIds().get()
                .forEach((id, topic) -> names.add(topic.name()));
            System.out.println("described by id: " + names);
            System.out.println("described by a wrong id: " + failure(
                () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get()));
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(ids.get("read-2")))).all().get();
            System.out.println("left: " + admin.listTopics().names().get());
        }
    }

    /** Reads everything by a pattern that the brokers match (KIP-848), and is removed from the group by an admin. */
    static void read(String bootstrap, int records, Admin admin) throws Exception {
        Properties given = new Properties();
        given.put("bootstrap.servers", bootstrap);
        given.put("group.id", GROUP);
        given.put("group.protocol", "consumer");
        given.put("auto.offset.reset", "earliest");
        given.put("key.deserializer", ByteArrayDeserializer.class.getName());
        given.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(given)) {
            consumer.subscribe(new SubscriptionPattern("read-.*"));
            Set<String> from = new TreeSet<>();
            Set<String> places = new HashSet<>();
            long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (places.size() < records && System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    from.add(record.topic());
                    places.add(record.topic() + record.partition() + "@" + record.offset());
                }
            }
            System.out.println("read by pattern: " + places.size() + " of " + from);
            admin.removeMembersFromConsumerGroup(GROUP, new RemoveMembersFromConsumerGroupOptions()).all().get();
            int members = admin.describeConsumerGroups(List.of(GROUP)).all().get().get(GROUP).members().size();
            System.out.println("members after their removal: " + members);
        }
    }

    interface Call {
        Object make() throws Exception;
    }

    static String failure(Call call) throws Exception {
        try {
            return "none: " + call.make();
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        }
    }
}
