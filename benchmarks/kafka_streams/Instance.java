import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/**
 * One instance of the benchmark's Kafka Streams application: orders are joined with the table of users, then counted by
 * user and window.
 *
 * <p>Arguments: topic of orders, of users, of totals; the window's size in milliseconds; then settings of Kafka Streams
 * as name=value. Whenever its tasks or its state have changed, it prints a line of JSON. It ends with its standard input.
 */
public class Instance {
    static final long LOOK_MS = 20;
    static final Duration GRACE = Duration.ofHours(1);

    /** How many orders a user has in a window, and the region that the last one was joined with. */
    record Total(long n, String region) {
        byte[] bytes() {
            byte[] text = region.getBytes(StandardCharsets.UTF_8);
            return ByteBuffer.allocate(Long.BYTES + text.length).putLong(n).put(text).array();
        }

        static Total of(byte[] bytes) {
            return new Total(ByteBuffer.wrap(bytes).getLong(),
                    new String(bytes, Long.BYTES, bytes.length - Long.BYTES, StandardCharsets.UTF_8));
        }

        String json(long windowStart) {
            return "{\"window_start\":\"" + Instant.ofEpochMilli(windowStart) + "\",\"n\":" + n
                    + ",\"region\":\"" + region + "\"}";
        }
    }

    static Topology topology(String orders, String users, String totals, Duration window) {
        Serde<String> text = Serdes.String();
        Serde<Total> total = Serdes.serdeFrom(
                (topic, value) -> value == null ? null : value.bytes(),
                (topic, bytes) -> bytes == null ? null : Total.of(bytes));
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> regions = builder.table(users, Consumed.with(text, text));
        builder.stream(orders, Consumed.with(text, text))
                .join(regions, (item, region) -> region)
                .groupByKey(Grouped.with(text, text))
                .windowedBy(TimeWindows.ofSizeAndGrace(window, GRACE))
                .aggregate(() -> new Total(0, ""), (user, region, before) -> new Total(before.n() + 1, region),
                        Materialized.<String, Total, WindowStore<Bytes, byte[]>>as("totals")
                                .withKeySerde(text).withValueSerde(total).withRetention(GRACE.plus(window)))
                .toStream()
                .map((key, value) -> KeyValue.pair(key.key(), value.json(key.window().start())))
                .to(totals, Produced.with(text, text));
        return builder.build();
    }

    static String partitions(KafkaStreams streams, boolean active) {
        TreeSet<Integer> found = new TreeSet<>();
        for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
            for (TaskMetadata task : active ? thread.activeTasks() : thread.standbyTasks()) {
                found.add(task.taskId().partition());
            }
        }
        return found.stream().map(String::valueOf).collect(Collectors.joining(",", "[", "]"));
    }

    static void endWithInput() {
        Thread thread = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException gone) {
                // as at its end
            }
            Runtime.getRuntime().halt(0);
        });
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        endWithInput();
        Properties settings = new Properties();
        for (int i = 4; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Duration window = Duration.ofMillis(Long.parseLong(arguments[3]));
        KafkaStreams streams = new KafkaStreams(topology(arguments[0], arguments[1], arguments[2], window), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        String before = "";
        while (true) {
            KafkaStreams.State state = streams.state();
            String tasks = state.isRunningOrRebalancing()
                    ? "\"active\": " + partitions(streams, true) + ", \"standby\": " + partitions(streams, false)
                    : "\"active\": [], \"standby\": []";
            String now = "\"state\": \"" + state + "\", " + tasks;
            if (!now.equals(before)) {
                System.out.println("{\"at\": " + System.currentTimeMillis() / 1e3 + ", " + now + "}");
                before = now;
            }
            Thread.sleep(LOOK_MS);
        }
    }
}
