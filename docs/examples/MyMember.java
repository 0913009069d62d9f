// A program under test for `squall run --workload command --role member`: a consumer in a group, with Apache Kafka's own
// Java client. docs/workloads/command.md has the protocol.
//
//   java -cp "$HOME/.cache/squall/kafka-4.3.1/*" docs/examples/MyMember.java
//
// Standard output belongs to the protocol: everything else goes to standard error.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class MyMember implements ConsumerRebalanceListener {
    static final ObjectMapper JSON = new ObjectMapper();

    final KafkaConsumer<String, byte[]> consumer;
    final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
    long commits = 0;
    volatile boolean finish = false;

    MyMember(KafkaConsumer<String, byte[]> consumer) {
        this.consumer = consumer;
    }

    static ObjectNode line(String type) {
        return JSON.createObjectNode().put("type", type);
    }

    static void say(ObjectNode line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        JsonNode init = JSON.readTree(in.readLine());
        Properties properties = new Properties();
        properties.put("bootstrap.servers", init.get("bootstrap").asText());
        init.get("config").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        try (KafkaConsumer<String, byte[]> consumer =
            new KafkaConsumer<>(properties, new StringDeserializer(), new ByteArrayDeserializer())) {
            MyMember member = new MyMember(consumer);
            consumer.subscribe(List.of(init.get("topics").get(0).asText()), member);
            say(line("ready").put("name", "kafka-clients"));
            Thread listener = new Thread(() -> member.untilFinish(in));
            listener.setDaemon(true);
            listener.start();
            member.run();
        } // closing gives the partitions up, and leaves the group
    }

    void untilFinish(BufferedReader in) {
        try {
            in.readLine(); // finish, or the end of standard input
        } catch (Exception gone) {
            System.err.println(gone);
        }
        finish = true;
    }

    void run() {
        while (!finish) {
            try {
                ArrayNode records = JSON.createArrayNode();
                for (ConsumerRecord<String, byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    // The service's work would be here.
                    records.addObject().put("partition", each.partition()).put("offset", each.offset())
                        .put("key", each.key()).put("value", each.value()); // Jackson writes bytes as base64
                    done.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
                }
                if (!records.isEmpty()) {
                    ObjectNode processed = line("processed");
                    processed.set("records", records);
                    say(processed);
                    commit();
                }
            } catch (RuntimeException error) {
                System.err.println(error); // the consumer goes on after it
            }
        }
    }

    /** Commits what was processed, and says so before and after. */
    void commit() {
        if (done.isEmpty()) {
            return;
        }
        long id = commits++;
        ObjectNode commit = line("commit").put("id", id);
        ArrayNode offsets = commit.putArray("offsets");
        done.forEach((place, at) -> offsets.addObject().put("partition", place.partition()).put("offset", at.offset()));
        say(commit);
        ObjectNode committed = line("committed").put("id", id);
        try {
            consumer.commitSync(done);
            done.clear();
        } catch (RuntimeException error) {
            committed.put("error", error.getClass().getSimpleName());
        }
        say(committed);
    }

    static ObjectNode about(String type, Collection<TopicPartition> places) {
        ObjectNode line = line(type);
        ArrayNode partitions = line.putArray("partitions");
        places.forEach(place -> partitions.add(place.partition()));
        return line;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        ObjectNode line = line("assigned").put("member", consumer.groupMetadata().memberId())
            .put("generation", consumer.groupMetadata().generationId());
        ArrayNode assigned = line.putArray("assigned");
        places.forEach(place -> assigned.addObject().put("partition", place.partition()));
        say(line);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        commit();
        done.keySet().removeAll(places);
        say(about("revoked", places));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        done.keySet().removeAll(places); // others may have them by now: nothing is committed
        say(about("lost", places));
    }
}
