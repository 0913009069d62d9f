// A program under test for `squall run --workload command`, with Apache Kafka's own Java client: a producer, or, with
// --role reader or both, a consumer too. docs/workloads/command.md has the protocol.
//
//   java -cp "$HOME/.cache/squall/kafka-4.3.1/*" docs/examples/MyProgram.java
//
// Standard output belongs to the protocol: everything else goes to standard error.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class MyProgram {
    static final ObjectMapper JSON = new ObjectMapper();

    /** Callbacks come on the client's thread: one answer at a time, one line each. */
    static synchronized void say(ObjectNode answer) {
        System.out.println(answer);
        System.out.flush();
    }

    static ObjectNode answer(String type, JsonNode asked) {
        ObjectNode answer = JSON.createObjectNode().put("type", type);
        return asked == null ? answer : answer.put("id", asked.get("id").asLong());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        JsonNode init = JSON.readTree(in.readLine());
        Properties properties = new Properties();
        properties.put("bootstrap.servers", init.get("bootstrap").asText());
        if (init.get("role").asText().equals("reader")) {
            read(in, init, properties);
        } else {
            produce(in, init, properties);
        }
    }

    static void produce(BufferedReader in, JsonNode init, Properties properties) throws Exception {
        // What Squall asks for. To test your own settings, write them here instead.
        init.get("config").fields().forEachRemaining(each -> properties.put(each.getKey(), each.getValue().asText()));
        KafkaProducer<String, byte[]> producer =
            new KafkaProducer<>(properties, new StringSerializer(), new ByteArraySerializer());
        say(answer("ready", null).put("name", "kafka-clients"));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            if (asked.get("type").asText().equals("finish")) {
                break;
            }
            byte[] value = Base64.getDecoder().decode(asked.get("value").asText());
            ProducerRecord<String, byte[]> record = new ProducerRecord<>(
                asked.get("topic").asText(), asked.get("partition").asInt(), asked.get("timestamp_ms").asLong(),
                asked.get("key").asText(), value);
            producer.send(record, (written, error) -> {
                if (error == null) {
                    say(answer("ok", asked).put("partition", written.partition()).put("offset", written.offset()));
                } else {
                    // `fail` is a promise that the record is not there and never will be. In doubt: `info`.
                    String type = error instanceof RecordTooLargeException ? "fail" : "info";
                    say(answer(type, asked).put("error", error.getClass().getSimpleName()));
                }
            });
        }
        producer.close();
    }

    static void read(BufferedReader in, JsonNode init, Properties properties) throws Exception {
        properties.put("isolation.level", init.get("isolation").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        KafkaConsumer<String, byte[]> consumer =
            new KafkaConsumer<>(properties, new StringDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode each : init.get("assigned")) {
            places.add(new TopicPartition(each.get("topic").asText(), each.get("partition").asInt()));
        }
        consumer.assign(places);
        consumer.seekToBeginning(places);
        say(answer("ready", null).put("name", "kafka-clients"));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode asked = JSON.readTree(line);
            if (asked.get("type").asText().equals("finish")) {
                break;
            }
            try {
                ObjectNode answer = answer("records", asked);
                ArrayNode records = answer.putArray("records");
                for (ConsumerRecord<String, byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    records.addObject().put("partition", each.partition()).put("offset", each.offset())
                        .put("key", each.key()).put("value", each.value()); // Jackson writes bytes as base64
                }
                say(answer);
            } catch (RuntimeException error) {
                say(answer("error", asked).put("error", error.toString()));
            }
        }
        consumer.close(Duration.ofSeconds(1));
    }
}
