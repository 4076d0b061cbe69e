import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A consumer of Kafka's Java client, as kafka_member.py is one of kafka-python. Arguments: bootstrap, group, topics with
 * commas between them, assignors likewise ("range", "sticky" and "cooperative-sticky"), rack.
 */
public class KafkaMember {
    static synchronized void say(String what) {
        System.out.println("{\"at\": " + System.nanoTime() / 1e9 + ", " + what + "}");
    }

    static String list(Collection<TopicPartition> partitions) {
        return partitions.stream().map(tp -> "[\"" + tp.topic() + "\", " + tp.partition() + "]")
                .collect(Collectors.joining(", ", "[", "]"));
    }

    /** The eager assignor; says when it leads. */
    public static class Eager extends StickyAssignor {
        @Override
        public GroupAssignment assign(Cluster cluster, GroupSubscription members) {
            say("\"leads\": \"sticky\"");
            return super.assign(cluster, members);
        }

        @Override
        public void onAssignment(Assignment assignment, ConsumerGroupMetadata group) {
            protocol = name();
            super.onAssignment(assignment, group);
        }
    }

    /** The cooperative assignor; says when it leads. */
    public static class Cooperative extends CooperativeStickyAssignor {
        @Override
        public GroupAssignment assign(Cluster cluster, GroupSubscription members) {
            say("\"leads\": \"cooperative-sticky\"");
            return super.assign(cluster, members);
        }

        @Override
        public void onAssignment(Assignment assignment, ConsumerGroupMetadata group) {
            protocol = name();
            super.onAssignment(assignment, group);
        }
    }

    /** Kafka's first assignor; says when it leads. */
    public static class Ranges extends RangeAssignor {
        @Override
        public GroupAssignment assign(Cluster cluster, GroupSubscription members) {
            say("\"leads\": \"range\"");
            return super.assign(cluster, members);
        }

        @Override
        public void onAssignment(Assignment assignment, ConsumerGroupMetadata group) {
            protocol = name();
            super.onAssignment(assignment, group);
        }
    }

    static final Map<String, Class<?>> ASSIGNORS =
            Map.of("range", Ranges.class, "sticky", Eager.class, "cooperative-sticky", Cooperative.class);

    /** The name of the assignor whose assignment came last. */
    static volatile String protocol = "";

    static volatile boolean ended;

    public static void main(String[] arguments) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[1],
                "client.rack", arguments.length > 4 ? arguments[4] : "",
                "partition.assignment.strategy",
                Stream.of(arguments[3].split(",")).map(name -> ASSIGNORS.get(name).getName())
                        .collect(Collectors.joining(",")),
                "session.timeout.ms", "3000",
                "heartbeat.interval.ms", "200",
                "enable.auto.commit", "false"), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments[2].split(",")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                say("\"revoked\": " + list(revoked));
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                say("\"protocol\": \"" + protocol + "\", \"generation\": " + consumer.groupMetadata().generationId()
                        + ", \"assigned\": " + list(assigned));
            }
        });
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException error) {
                // the starter has ended
            }
            ended = true;
        });
        input.setDaemon(true);
        input.start();
        while (!ended) {
            consumer.poll(Duration.ofMillis(100));
        }
        consumer.close();
        say("\"closed\": true");
    }
}
